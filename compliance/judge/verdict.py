"""Verdicts: what findings add up to, by a policy."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from compliance.judge.check import NotJudged
from compliance.judge.finding import Finding, Severity
from runs.errors import ExitCode, HarnessError, SetupError

# FAIL: there is an error. FLAG: there are warnings. ERROR: there is no verdict.
Outcome = Literal["PASS", "FLAG", "FAIL", "ERROR"]
OUTCOME_OF: dict[Severity, Outcome] = {"error": "FAIL", "warning": "FLAG", "note": "PASS", "pass": "PASS"}


@dataclass(frozen=True)
class Policy:
    """How findings add up."""

    contradictions_end_it: bool = False  # files that cannot all be true are no verdict, but an error: exit code 4
    warnings_flag: bool = True


FINDINGS = Policy()  # a contradiction is an error as others are
LOGS = Policy(contradictions_end_it=True, warnings_flag=False)
FOLDERS = Policy(contradictions_end_it=True)


@dataclass
class Verdict:
    """Findings, and what they add up to.

    Attributes:
        outcome_policy: how they add up.
        held_official: official rules count. Else they are shown beside the verdict.
        declared: why the subject's own manifest says that it is not eligible for submission.
    """

    schema_version: ClassVar[int] = 1  # of its record; 2: `not_judged` is a list of objects

    findings: list[Finding] = field(default_factory=list, kw_only=True)
    applied: frozenset[str] = field(default=frozenset(), kw_only=True, repr=False)  # rules, met or violated
    not_judged: list[NotJudged] = field(default_factory=list, kw_only=True)
    error: HarnessError | None = field(default=None, kw_only=True)  # why there is no verdict
    outcome_policy: Policy = field(default=FINDINGS, kw_only=True, repr=False)
    held_official: bool = field(default=True, kw_only=True)
    declared: list[str] = field(default_factory=list, kw_only=True)

    @property
    def title(self) -> str:
        """What stands in front of a reason, where this is a part of a verdict."""
        return ""

    @property
    def members(self) -> "Sequence[Verdict]":
        """The verdicts on parts of the subject, whose findings count too."""
        return ()

    def of(self, *severities: Severity) -> list[Finding]:
        """The findings of these severities, in their order."""
        return [finding for severity in severities for finding in self.findings if finding.severity == severity]

    def counts(self, finding: Finding) -> bool:
        """Whether a finding bears on the verdict."""
        return self.held_official or finding.kind != "official"

    def _contradicts(self, finding: Finding) -> bool:
        return (
            self.outcome_policy.contradictions_end_it
            and finding.kind == "contradiction"
            and finding.severity == "error"
        )

    @property
    def contradictions(self) -> list[Finding]:
        """Files that cannot all be true; none where the policy takes them as errors like others."""
        own = [one for one in self.findings if self._contradicts(one)]
        return [one for member in self.members for one in member.contradictions] + own

    @property
    def broken(self) -> list[Finding]:
        """The subject's own violated rules, counted or not; without contradictions."""
        return [one for one in self.of("error") if not self._contradicts(one)]

    @property
    def _fails(self) -> bool:
        return (self.held_official and bool(self.declared)) or any(map(self.counts, self.broken))

    @property
    def failures(self) -> list[str]:
        """Why the outcome is FAIL, in sentences."""
        found = [f"{one.title}{text}" for one in self.members for text in one.failures]
        found += [one.sentence for one in self.broken if self.counts(one)]
        return found + (self.declared if self.held_official else [])

    @property
    def outcome(self) -> Outcome:
        """By the gravest finding that counts."""
        whole = (*self.members, self)
        if self.contradictions or any(one.error is not None for one in whole):
            return "ERROR"
        if any(one._fails for one in whole):
            return "FAIL"
        flagged = any(one.counts(finding) for one in whole for finding in one.of("warning"))
        return "FLAG" if flagged and self.outcome_policy.warnings_flag else "PASS"

    def exit_code(self, *, strict: bool = False) -> ExitCode:
        """Warnings count with `strict`."""
        no_verdict = self.error is None or isinstance(self.error, SetupError)  # else a file is damaged
        if no_verdict and self.contradictions:
            return ExitCode.FAILED
        if self.error is not None:
            return self.error.exit_code
        negative = self.outcome == "FAIL" or (strict and self.outcome == "FLAG")
        return ExitCode.NEGATIVE if negative else ExitCode.OK

    @property
    def reasons(self) -> list[str]:
        """Why the outcome is not PASS, the gravest first."""
        reasons = [] if self.error is None else [self.error.message]
        for one in (*self.members, self):
            own = (finding for finding in one.findings if one._contradicts(finding))
            reasons += (f"the files contradict each other: {one.title}{finding.sentence}" for finding in own)
        return reasons + self.failures

    @property
    def unofficial(self) -> list[str]:
        """Why the subject is not eligible for submission, each reason once; empty where it must be eligible."""
        reasons = [
            text
            for one in (*self.members, self)
            if not one.held_official
            for text in (*one.declared, *(finding.sentence for finding in one.broken if not one.counts(finding)))
        ]
        return list(dict.fromkeys(reasons))

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        """The fields of every record of a verdict; plain types only."""
        return {
            "schema_version": self.schema_version,
            "verdict": self.outcome,
            "exit_code": int(self.exit_code(strict=strict)),
            "error": None if self.error is None else {"message": self.error.message, "fix": self.error.fix},
            "findings": [finding.as_json() for finding in self.findings],
            "not_judged": [asdict(one) for one in self.not_judged],
        }
