"""Our checks of a whole tree, in one pass."""

import signal
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from compliance.finding import Finding
from compliance.submission.check.descriptions import check_models, check_sources, check_systems
from compliance.submission.check.duplicates import check_duplicates
from compliance.submission.check.finding import Findings, in_order
from compliance.submission.check.scenario import ScenarioOutcome, check_scenario
from compliance.submission.check.structure import check_layout, check_names, check_rehearsal, walk
from compliance.submission.tree import DIVISIONS, Place, Tree
from runs.environment import usable_cores
from runs.errors import InputError
from runs.rounds import Round

PARALLEL_FROM = 24  # scenarios; to start processes takes longer than to check a few
PLACES_AT_A_TIME = 8


@dataclass(frozen=True)
class Checked:
    """What our checks found; `places` are the scenarios that were looked at."""

    tree: Tree
    places: list[Place]
    findings: list[Finding]
    not_judged: dict[Place, list[str]] = field(default_factory=dict)  # of results of which not every rule is known

    def count(self, severity: str) -> int:
        return sum(finding.severity == severity for finding in self.findings)


def check_tree(root: Path, in_round: Round) -> Checked:
    """Check everything in a tree against the rules of a round.

    Raises:
        InputError: there is no such tree, or nothing in it.
    """
    if not root.is_dir():
        problem = "is no directory" if root.exists() else "does not exist"
        raise InputError(f"{root} {problem}", "name the directory that holds closed/ or open/")
    root = root.resolve()
    tree = Tree(root, in_round)
    findings = Findings(root)
    contents = walk(root, findings)
    if not contents.files or not any((root / division).is_dir() for division in DIVISIONS):
        raise InputError(
            f"{root} holds no submission: none of {', '.join(f'{name}/' for name in DIVISIONS)} with files in it",
            "name the directory that holds closed/ or open/",
        )
    found = list(tree.places())
    check_names(contents, findings)
    check_layout(tree, contents, findings)
    check_rehearsal(tree, contents, findings)
    check_systems(tree, found, findings)
    check_sources(tree, contents, findings)
    check_models(tree, found, findings)
    outcomes = _check_all(tree, found)
    check_duplicates(outcomes, findings)
    every = findings.items + [finding for outcome in outcomes for finding in outcome.findings]
    not_judged = {outcome.place: outcome.not_judged for outcome in outcomes if outcome.not_judged}
    return Checked(tree, found, in_order(every), not_judged)


def _check_all(tree: Tree, places: list[Place]) -> list[ScenarioOutcome]:
    """Every scenario, a process a core where there are many; in the order of the places."""
    check = partial(check_scenario, tree)
    cores = len(usable_cores())
    if len(places) < PARALLEL_FROM or cores == 1:
        return [check(place) for place in places]
    # An interrupt is left to this process.
    leave = (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(cores, get_context("forkserver"), signal.signal, leave) as pool:
        return list(pool.map(check, places, chunksize=PLACES_AT_A_TIME))
