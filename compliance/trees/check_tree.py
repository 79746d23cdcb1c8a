"""The check of a whole tree, and its outcome.

In each result a rule is violated (it has findings), met (applied without findings), not applicable, or without input.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cache, cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compliance.judge.check import NOT_APPLICABLE, WITHOUT_INPUT, Judgement, NotJudged, grouped, rules_of
from compliance.judge.finding import Finding
from compliance.judge.verdict import Outcome, Verdict
from compliance.trees import copies, descriptions, layout, scenario, system_names, tree_evidence
from compliance.trees import findings as readers
from compliance.trees.causes import RANKS, SUBJECT, Cause, CausedFinding, causes, with_causes
from compliance.trees.findings import in_order, presented
from compliance.trees.official_checker import OfficialResult
from compliance.trees.scenario import ON_RUNS, RESULT, ScenarioOutcome, check_scenario
from compliance.trees.tree import DIVISIONS, FREE_IN_OPEN, OPEN_IS_FREE, Place, Tree
from runs.errors import ExecutionError, InputError
from runs.harness import PROGRAM
from runs.machine.environment import usable_cores
from runs.processes.interrupts import wait_for_result
from runs.processes.workers import leave_signals, signals_later, workers
from runs.rounds import Round
from runs.what_is import what_is

if TYPE_CHECKING:
    from compliance.signoff.signoff_verdict import SignOff

# Modules with rules on the whole tree. These rules count for each of its results.
_TREE_WIDE = (layout, descriptions, system_names, readers, copies)
BY_RUNS = frozenset({"log-not-in-runs", "runs-differ", "runs-unread"})  # rules of rebuild.py; they need --runs


@cache
def catalog() -> tuple[str, ...]:
    """Return the IDs of the rules on trees and their results, in order."""
    rules = {rule for one in (*RESULT, *ON_RUNS) for rule in one.rules}
    return tuple(sorted(rules | rules_of(*_TREE_WIDE, tree_evidence, scenario) | BY_RUNS))


def not_judged(place: Place, judged: Judgement, violated: frozenset[str], *, with_runs: bool) -> tuple[NotJudged, ...]:
    """Return the rules that were not applied to a result, by reason."""
    reasons: dict[str, tuple[str, str]] = {}
    nothing = "a log is damaged" if "log-damaged" in violated else f"the rules do not apply to {place.scenario}"
    for rule in catalog():
        if rule in violated:
            continue
        if place.division == "open" and rule in FREE_IN_OPEN:
            reasons[rule] = NOT_APPLICABLE, OPEN_IS_FREE
        elif rule in BY_RUNS:
            if not with_runs:
                reasons[rule] = WITHOUT_INPUT, "the runs that the tree was built from (--runs)"
        elif rule not in judged.applied:
            what, why = judged.reasons.get(rule, (NOT_APPLICABLE, ""))
            reasons[rule] = what, why if what == WITHOUT_INPUT else nothing
    return tuple(grouped(reasons))


def alike(of_results: Mapping[str, Iterable[NotJudged]]) -> list[NotJudged]:
    """Merge equal entries of multiple results, most frequent entries first."""
    results: defaultdict[NotJudged, list[str]] = defaultdict(list)
    for place, entries in of_results.items():
        for entry in entries:
            results[entry].append(place)
    merged = [replace(one, results=tuple(places)) for one, places in results.items()]
    return sorted(merged, key=lambda one: (-len(one.results), one.what, one.why))


PARALLEL_FROM = 24  # minimum number of scenarios for parallel checks; fewer are checked faster in one process
PLACES_AT_A_TIME = 8  # number of scenarios in one task of a process


@dataclass(frozen=True)
class SystemSignOff:
    """The sign-off of one system. It has no verdict if some runs of the system are missing in --runs."""

    system: str  # division/organization/system
    runs: int
    legs_found: int
    verdict: "SignOff | None" = None

    @property
    def blocks(self) -> bool:
        return self.verdict is None or self.verdict.blocks

    @property
    def headline(self) -> str:
        if self.verdict is not None:
            return self.verdict.headline
        if self.legs_found == self.runs:
            return "not possible, because runs cannot be read (findings of rule runs-unread)"
        return f"not possible: --runs has {self.legs_found} of {self.runs} runs"

    def as_json(self) -> dict[str, Any]:
        return {
            "system": self.system,
            "legs": self.runs,
            "legs_found": self.legs_found,
            "verdict": None if self.verdict is None else self.verdict.record(),
        }


@dataclass
class Checked(Verdict):
    """The outcome of checking a tree."""

    tree: Tree
    places: list[Place]  # scenario directories
    judgements: dict[Place, Judgement] = field(default_factory=dict)  # applied rules of each result
    # Numbers in the performance log of each result.
    numbers: dict[Place, dict[str, float]] = field(default_factory=dict)
    official: OfficialResult | None = None  # None: the official checker was not run
    signed: list[SystemSignOff] | None = None  # None: --runs was not given

    @property
    def outcome(self) -> Outcome:
        """The verdict. An official checker that refuses the tree and a sign-off that blocks it count as errors."""
        refused = self.official is not None and not self.official.ok
        return "FAIL" if refused or any(one.blocks for one in self.signed or ()) else super().outcome

    @cached_property
    def caused(self) -> list[CausedFinding]:
        """The findings with their subjects and causes."""
        return with_causes(self.tree, self.places, self.findings)

    @cached_property
    def causes(self) -> list[Cause]:
        """The causes of the findings, most severe first."""
        return causes(self.caused)

    @cached_property
    def rules_not_applied(self) -> dict[str, tuple[NotJudged, ...]]:
        """The rules that were not applied to each result."""
        violated: dict[tuple[str, ...], set[str]] = {}
        for caused_finding in self.caused:
            violated.setdefault(caused_finding.subject, set()).add(caused_finding.finding.rule)
        return {
            str(place): not_judged(
                place, judged, frozenset(violated.get(astuple(place), ())), with_runs=self.signed is not None
            )
            for place, judged in self.judgements.items()
        }

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The rank of each cause, by its name."""
        return {one.name: one.rank for one in self.causes}

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        official, signed = self.official, self.signed
        return super().record(strict=strict) | {
            "findings": [
                {
                    **dict.fromkeys(SUBJECT),
                    **dict(zip(SUBJECT, caused_finding.subject, strict=False)),
                    "cause": caused_finding.cause,
                    **caused_finding.finding.as_json(),
                }
                for caused_finding in self.caused
            ],
            "causes": [
                {
                    "cause": caused_finding.name,
                    "weight": RANKS[caused_finding.rank],
                    "summary": caused_finding.summary,
                    "rules": dict(caused_finding.rules),
                    "findings": len(caused_finding.caused),
                    "results": caused_finding.results,
                    "submitters": caused_finding.submitters,
                }
                for caused_finding in self.causes
            ],
            "rules": [*catalog()],
            "not_judged": [asdict(one) for one in alike(self.rules_not_applied)],
            "tree": str(self.tree.root),
            "round": self.tree.round.name,
            "strict": strict,
            "scenarios": [str(place) for place in self.places],
            "errors": len(self.of("error")),
            "warnings": len(self.of("warning")),
            "signoff": None if signed is None else [one.as_json() for one in signed],
            "official": {"run": False} if official is None else {"run": True, **asdict(official)},
        }


def check_submission_tree(
    root: Path, in_round: Round, parallel_from: int = PARALLEL_FROM, against: Sequence[Path] = ()
) -> Checked:
    """Check a tree with the rules of a round.

    Args:
        parallel_from: number of scenarios from which processes are used.
        against: other trees, whose runs may not be in this tree.

    Raises:
        InputError: If the tree does not exist or is empty.
    """
    if not any((root / division).is_dir() for division in DIVISIONS):
        raise what_is(root).refused("a submission tree: the directory with closed/ or open/ in it")
    tree = Tree(root.resolve(), in_round)
    outcomes: list[ScenarioOutcome] = []
    findings = presented(tree.root, _findings(tree, outcomes, parallel_from, against))
    findings += (finding for outcome in outcomes for finding in outcome.findings)
    for outcome in outcomes:
        outcome.judged.applied |= rules_of(*_TREE_WIDE)
    judged = {outcome.place: outcome.judged for outcome in outcomes}
    numbers = {outcome.place: run.numbers for outcome in outcomes for run in outcome.runs if run.name == "performance"}
    return Checked(
        tree, [outcome.place for outcome in outcomes], findings=in_order(findings), judgements=judged, numbers=numbers
    )


def _findings(
    tree: Tree, outcomes: list[ScenarioOutcome], parallel_from: int, against: Sequence[Path]
) -> Iterator[Finding]:
    """Yield the findings on the whole tree, and add the outcome of each scenario to `outcomes`."""
    contents = yield from layout.scan(tree.root)
    if not contents.files:
        raise InputError(
            f"{tree.root}: no files in {', '.join(f'{name}/' for name in DIVISIONS)}",
            f"build a tree with `{PROGRAM} submit`",
        )
    places = list(tree.places())
    yield from layout.check_file_names(contents)
    yield from layout.check_layout(tree, contents)
    yield from layout.check_rehearsal(tree, contents)
    yield from descriptions.check_systems(tree, contents)
    yield from descriptions.check_sources(tree, contents)
    yield from descriptions.check_models(tree, places)
    outcomes += _check_all(tree, places, parallel_from)
    yield from copies.check_duplicates(tree.root, outcomes, against)


def _check_all(tree: Tree, places: list[Place], parallel_from: int) -> list[ScenarioOutcome]:
    """Check every scenario and return the outcomes in order. Many scenarios are checked with one process per core.

    Raises:
        ExecutionError: If a process died.
    """
    cores = len(usable_cores())
    if len(places) < parallel_from or cores == 1:
        return _check_each(tree, places)
    pool = ProcessPoolExecutor(cores, get_context("forkserver"), leave_signals)  # processes start with the first task
    chunks = [places[first : first + PLACES_AT_A_TIME] for first in range(0, len(places), PLACES_AT_A_TIME)]
    try:
        with workers(pool):
            with signals_later():
                futures = [pool.submit(_check_each, tree, chunk) for chunk in chunks]
            return [outcome for future in futures for outcome in wait_for_result(future)]
    except BrokenProcessPool as error:
        raise ExecutionError(
            "a process that checks scenarios died, most likely because memory ran out", "free memory, and check again"
        ) from error


def _check_each(tree: Tree, places: list[Place]) -> list[ScenarioOutcome]:
    return [check_scenario(tree, place) for place in places]
