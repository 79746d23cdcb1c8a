"""What a verification finds: checks against rules, and contradictions between files."""

from dataclasses import dataclass, field
from typing import Any, Literal

# "result": without it there is no result at all. "official": asked of a result that claims to be official.
Kind = Literal["result", "official"]


@dataclass(frozen=True)
class Check:
    """One rule, what was found and what is required, both with their units."""

    name: str
    passed: bool
    found: str
    required: str
    kind: Kind = "result"

    def __str__(self) -> str:
        return f"{self.name}: {self.found}; required: {self.required}: {'pass' if self.passed else 'FAIL'}"

    @property
    def failure(self) -> str:
        return f"{self.name}: {self.found}, required: {self.required}"


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
        found = [check.failure for check in self.checks if not check.passed and (strict or check.kind == "result")]
        if official and not self.claims_official:
            found += self._declared()
        return found

    def unofficial(self) -> list[str]:
        """Why a part that does not claim to be official is not; empty for one that does."""
        if self.claims_official:
            return []
        missed = [check.failure for check in self.checks if not check.passed and check.kind == "official"]
        return self._declared() + missed

    def _declared(self) -> list[str]:
        return self.declared_unofficial or ["the leg's record says so and gives no reason"]
