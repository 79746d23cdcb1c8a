"""A verdict: what was found, what it adds up to, what was not judged and why. One type for every command, and how it is
told: `finding_lines` for people, `record` for programs.

Each command adds what only it knows (legs, metrics, a tree); what decides, and how findings are told, stands here.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from compliance.finding import Finding, Severity
from runs.errors import ExitCode, HarnessError

SCHEMA_VERSION = 1
# FAIL decides alone. FLAG: nothing is refuted, and something is to be asked. ERROR: there is no verdict.
Outcome = Literal["PASS", "FLAG", "FAIL", "ERROR"]
WORTH: dict[Severity, Outcome] = {"error": "FAIL", "warning": "FLAG", "note": "PASS", "pass": "PASS"}


@dataclass
class Verdict:
    """What was found."""

    findings: list[Finding] = field(default_factory=list, kw_only=True)
    not_judged: dict[str, list[str]] = field(default_factory=dict, kw_only=True)  # of what, and why
    error: HarnessError | None = field(default=None, kw_only=True)  # why nothing can be said

    def of(self, *severities: Severity) -> list[Finding]:
        """The findings of these severities; of several, one after the other."""
        return [finding for severity in severities for finding in self.findings if finding.severity == severity]

    @property
    def outcome(self) -> Outcome:
        """The gravest finding counts; nothing outweighs it."""
        if self.error is not None:
            return "ERROR"
        there = {WORTH[finding.severity] for finding in self.findings}
        return "FAIL" if "FAIL" in there else "FLAG" if "FLAG" in there else "PASS"

    def exit_code(self, *, strict: bool = False) -> ExitCode:
        """Warnings count with `strict`."""
        if self.error is not None:
            return self.error.exit_code
        negative = self.outcome == "FAIL" or (strict and self.outcome == "FLAG")
        return ExitCode.NEGATIVE if negative else ExitCode.OK

    @property
    def reasons(self) -> list[str]:
        """Why it is no PASS, in sentences."""
        if self.error is not None:
            return [self.error.message]
        return [finding.sentence for finding in self.of("error")]

    def finding_lines(self) -> list[str]:
        """For people: a line for each finding, the gravest first."""
        return [f"  {finding.line_with_place}" for finding in self.of("error", "warning", "note", "pass")]

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        """What every record of a verdict begins with; plain types only."""
        return {
            "schema_version": SCHEMA_VERSION,
            "verdict": self.outcome,
            "exit_code": int(self.exit_code(strict=strict)),
            "error": None if self.error is None else {"message": self.error.message, "fix": self.error.fix},
            "findings": [finding.as_json() for finding in self.findings],
            "not_judged": self.not_judged,
        }
