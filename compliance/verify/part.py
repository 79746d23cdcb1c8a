"""What a verification finds in one leg: checks against rules, and contradictions between files."""

from dataclasses import dataclass, field
from typing import Any, Literal

from compliance.checks import Check


@dataclass
class Part:
    """What was found in one leg of a result."""

    mode: Literal["performance", "accuracy"]
    directory: str
    scenario: str
    loadgen_key: str
    loadgen_version: str
    claims_official: bool
    declared_unofficial: list[str]  # the leg's own record of why it is not official
    rule: str  # what the verdict on this part rests on
    checks: list[Check] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # the numbers, for people
    details: dict[str, Any] = field(default_factory=dict)  # the numbers, for programs
    reference_score: float | None = None
    test_score: float | None = None

    def failures(self, official: bool) -> list[str]:
        """Why the part does not pass; `official` asks for the official rules whatever the leg claims."""
        strict = official or self.claims_official
        found = [check.sentence for check in self.checks if not check.passed and (strict or check.kind == "result")]
        if official and not self.claims_official:
            found += self._declared()
        return found

    def unofficial(self) -> list[str]:
        """Why a part that does not claim to be official is not; empty for one that does."""
        if self.claims_official:
            return []
        missed = [check.sentence for check in self.checks if not check.passed and check.kind == "official"]
        return self._declared() + missed

    def _declared(self) -> list[str]:
        return self.declared_unofficial or ["the leg's record says so and gives no reason"]
