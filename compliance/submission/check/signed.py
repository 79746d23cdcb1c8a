"""The sign-off of the runs that a tree was made of: asked for closed results, where their runs were named."""

from dataclasses import dataclass
from typing import Any

from compliance.signoff import bundle_verdict
from compliance.signoff.verdict import Verdict
from compliance.submission.check.driver import Checked
from compliance.submission.check.runs_index import RunsIndex
from compliance.submission.tree import Place


@dataclass(frozen=True)
class SignedOff:
    """What became of one system. Without a verdict where not all of its legs were among the runs."""

    system: str  # division/organisation/system
    legs: int
    legs_found: int
    verdict: Verdict | None = None

    @property
    def blocks(self) -> bool:
        return self.verdict is not None and self.verdict.blocks

    @property
    def headline(self) -> str:
        if self.verdict is not None:
            return self.verdict.headline
        return f"not possible: {self.legs_found} of {self.legs} legs are among the runs of --runs"

    def as_json(self) -> dict[str, Any]:
        """The sign-off's own record, under the name of the system."""
        return {
            "system": self.system,
            "legs": self.legs,
            "legs_found": self.legs_found,
            "verdict": None if self.verdict is None else self.verdict.as_json(),
        }


def sign_off_systems(checked: Checked, runs: RunsIndex) -> list[SignedOff]:
    """Sign off each system outside of the open division from its runs.

    The sign-off holds the logs in the tree against the runs as well, where the tree has one system only; of several
    each would call the others' logs foreign, and the check itself compares the bytes.
    """
    systems: dict[str, list[Place]] = {}
    for place in checked.places:
        systems.setdefault(f"{place.division}/{place.organisation}/{place.system}", []).append(place)
    tree = checked.tree
    found = []
    for system, places in systems.items():
        if places[0].division == "open":
            continue
        legs = [leg for place in places for leg in (tree.performance(place), tree.accuracy(place))]
        own = [run for run in map(runs.find, legs) if run is not None]
        verdict = None
        if len(own) == len(legs):
            verdict = bundle_verdict([run.root for run in own], tree=tree.root if len(systems) == 1 else None)
        found.append(SignedOff(system, len(legs), len(own), verdict))
    return found
