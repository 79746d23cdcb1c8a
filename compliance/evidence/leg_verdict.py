"""The verdict on one leg of a result."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from compliance.finding import Finding
from compliance.verdict import Verdict
from runs.record.leg import FinishedLeg


@dataclass
class LegVerdict(Verdict):
    """What was found in one leg of a result."""

    mode: Literal["performance", "accuracy"]
    directory: str
    scenario: str
    loadgen_key: str
    loadgen_version: str
    claims_official: bool
    declared_unofficial: list[str]  # the leg's own record of why it is not official
    rule: str  # what the verdict on this part rests on
    notes: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # the numbers, for people
    details: dict[str, Any] = field(default_factory=dict)  # the numbers, for programs
    reference_score: float | None = None
    test_score: float | None = None

    @classmethod
    def begin(cls, leg: FinishedLeg, rule: str) -> Self:
        """Before anything was found in the leg."""
        return cls(
            mode="performance" if leg.is_performance else "accuracy",
            directory=str(leg.run.root),
            scenario=leg.scenario,
            loadgen_key=leg.benchmark.loadgen_key,
            loadgen_version=str(leg.detail.get("loadgen_version", "")),
            claims_official=leg.claims_official,
            declared_unofficial=leg.manifest.unofficial_reasons if leg.manifest else [],
            rule=rule,
        )

    @property
    def contradictions(self) -> list[Finding]:
        """Files that cannot all be true."""
        return [finding for finding in self.findings if finding.kind == "contradiction"]

    @property
    def checks(self) -> list[Finding]:
        """Rules that were applied, kept or broken."""
        return [finding for finding in self.findings if finding.kind != "contradiction"]

    @property
    def broken(self) -> list[Finding]:
        """Rules that were broken, beside contradictions."""
        return [check for check in self.checks if check.severity == "error"]

    def failed(self, official: bool) -> list[Finding]:
        """Broken rules that count; `official` asks for the official rules whatever the leg claims."""
        strict = official or self.claims_official
        return [check for check in self.broken if strict or check.kind != "official"]

    def failures(self, official: bool) -> list[str]:
        """Why the part does not pass, in sentences."""
        found = [check.sentence for check in self.failed(official)]
        if official and not self.claims_official:
            found += self.declared
        return found

    def unofficial(self) -> list[str]:
        """Why a part that does not claim to be official is not; empty for one that does."""
        if self.claims_official:
            return []
        return self.declared + [check.sentence for check in self.broken if check.kind == "official"]

    @property
    def declared(self) -> list[str]:
        """What the record of an unofficial leg gives as the reasons."""
        return self.declared_unofficial or ["the leg's record says so and gives no reason"]

    def as_json(self) -> dict[str, Any]:
        """The record."""
        return asdict(replace(self, findings=[])) | {"findings": [finding.as_json() for finding in self.findings]}
