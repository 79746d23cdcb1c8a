"""Verdicts: a policy combines findings to one outcome."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from compliance.judge.check import NotJudged
from compliance.judge.finding import Finding, Severity
from runs.errors import ExitCode, HarnessError, SetupError

# FAIL: at least one error. FLAG: at least one warning. ERROR: no verdict was reached.
Outcome = Literal["PASS", "FLAG", "FAIL", "ERROR"]


@dataclass(frozen=True)
class Policy:
    """The way in which findings are combined to an outcome."""

    contradictions_end_it: bool = False  # True: files that contradict each other cause ERROR (exit code 4)
    warnings_flag: bool = True


FINDINGS = Policy()  # contradictions count like other errors
LOGS = Policy(contradictions_end_it=True, warnings_flag=False)
FOLDERS = Policy(contradictions_end_it=True)


@dataclass
class Verdict:
    """Findings and their combined outcome.

    Attributes:
        outcome_policy: How the findings combine.
        held_official: Whether official rules count. Otherwise they are only shown.
        declared: Reasons in the subject's manifest why it is not eligible for submission.
    """

    schema_version: ClassVar[int] = 1  # version of the JSON output; in version 2, `not_judged` is a list of objects

    findings: list[Finding] = field(default_factory=list, kw_only=True)
    applied: frozenset[str] = field(default=frozenset(), kw_only=True, repr=False)  # rules, met or violated
    not_judged: list[NotJudged] = field(default_factory=list, kw_only=True)
    error: HarnessError | None = field(default=None, kw_only=True)  # error that caused the outcome ERROR
    outcome_policy: Policy = field(default=FINDINGS, kw_only=True, repr=False)
    held_official: bool = field(default=True, kw_only=True)
    declared: list[str] = field(default_factory=list, kw_only=True)

    @property
    def title(self) -> str:
        """Prefix of the reasons if this verdict is a part of another verdict."""
        return ""

    @property
    def members(self) -> "Sequence[Verdict]":
        """Verdicts on parts of the subject. Their findings count too."""
        return ()

    def of(self, *severities: Severity) -> list[Finding]:
        """Return the findings of these severities, in the order of the severities."""
        return [finding for severity in severities for finding in self.findings if finding.severity == severity]

    def counts(self, finding: Finding) -> bool:
        """Return True if a finding counts for the outcome."""
        return self.held_official or finding.kind != "official"

    def _contradicts(self, finding: Finding) -> bool:
        return (
            self.outcome_policy.contradictions_end_it
            and finding.kind == "contradiction"
            and finding.severity == "error"
        )

    @property
    def contradictions(self) -> list[Finding]:
        """Findings on files that contradict each other; empty if the policy counts them like other errors."""
        contradicting = [one for one in self.findings if self._contradicts(one)]
        return [one for member in self.members for one in member.contradictions] + contradicting

    @property
    def violated(self) -> list[Finding]:
        """Errors on the subject itself, except contradictions. Errors that do not count are included."""
        return [one for one in self.of("error") if not self._contradicts(one)]

    @property
    def _fails(self) -> bool:
        return (self.held_official and bool(self.declared)) or any(map(self.counts, self.violated))

    @property
    def failures(self) -> list[str]:
        """Reasons for FAIL, as sentences."""
        sentences = [f"{one.title}{text}" for one in self.members for text in one.failures]
        sentences += [one.sentence for one in self.violated if self.counts(one)]
        return sentences + (self.declared if self.held_official else [])

    @property
    def outcome(self) -> Outcome:
        """The outcome. The most severe finding that counts decides it."""
        verdicts = (*self.members, self)
        if self.contradictions or any(one.error is not None for one in verdicts):
            return "ERROR"
        if any(one._fails for one in verdicts):
            return "FAIL"
        flagged = any(one.counts(finding) for one in verdicts for finding in one.of("warning"))
        return "FLAG" if flagged and self.outcome_policy.warnings_flag else "PASS"

    def exit_code(self, *, strict: bool = False) -> ExitCode:
        """Return the exit code. With `strict`, warnings count as failures."""
        no_verdict = self.error is None or isinstance(self.error, SetupError)  # other errors: a damaged file
        if no_verdict and self.contradictions:
            return ExitCode.FAILED
        if self.error is not None:
            return self.error.exit_code
        negative = self.outcome == "FAIL" or (strict and self.outcome == "FLAG")
        return ExitCode.NEGATIVE if negative else ExitCode.OK

    @property
    def reasons(self) -> list[str]:
        """Reasons why the outcome is not PASS, most severe first."""
        reasons = [] if self.error is None else [self.error.message]
        for verdict in (*self.members, self):
            contradicting = (finding for finding in verdict.findings if verdict._contradicts(finding))
            reasons += (
                f"the files contradict each other: {verdict.title}{finding.sentence}" for finding in contradicting
            )
        return reasons + self.failures

    @property
    def unofficial(self) -> list[str]:
        """Reasons why the subject is not eligible for submission, each once; empty if such reasons cause FAIL."""
        reasons = [
            text
            for verdict in (*self.members, self)
            if not verdict.held_official
            for text in (
                *verdict.declared,
                *(finding.sentence for finding in verdict.violated if not verdict.counts(finding)),
            )
        ]
        return list(dict.fromkeys(reasons))

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        """Return the fields that every verdict has in JSON, in plain types."""
        return {
            "schema_version": self.schema_version,
            "verdict": self.outcome,
            "exit_code": int(self.exit_code(strict=strict)),
            "error": None if self.error is None else {"message": self.error.message, "fix": self.error.fix},
            "findings": [finding.as_json() for finding in self.findings],
            "not_judged": [asdict(one) for one in self.not_judged],
        }
