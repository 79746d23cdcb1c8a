"""One rule, what was found and what it asks for: the form in which verify and the audits state a finding."""

from dataclasses import dataclass
from typing import Literal

# "result": without it there is no result at all. "official": asked of a result that claims to be official.
Kind = Literal["result", "official"]


@dataclass(frozen=True)
class Check:
    """A rule that was applied.

    Attributes:
        name: the rule, in a few words.
        passed: whether it was kept.
        found, required: texts, with their units.
        kind: of which results it is asked.
        where: which file or samples to look at; only shown of a rule that was not kept.
    """

    name: str
    passed: bool
    found: str
    required: str
    kind: Kind = "result"
    where: str = ""

    @property
    def sentence(self) -> str:
        """The finding without its outcome."""
        place = f" ({self.where})" if self.where and not self.passed else ""
        return f"{self.name}: {self.found}, required: {self.required}{place}"

    def __str__(self) -> str:
        return f"{'pass' if self.passed else 'FAIL'}: {self.sentence}"
