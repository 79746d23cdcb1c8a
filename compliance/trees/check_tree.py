"""The check of a whole tree: its subject, its policy, and its report.

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
from typing import Any

from compliance.judge.record import finding_record, not_applied_record
from compliance.judge.rule import Check, check_of
from compliance.judge.verdict import Each, Finding, NotApplied, Policy, Subject, Verdict, in_turn, not_applied
from compliance.trees import copies, descriptions, layout, scenario, system_names
from compliance.trees import findings as readers
from compliance.trees.causes import RANKS, SUBJECT, Cause, CausedFinding, causes, with_causes
from compliance.trees.findings import in_order, presented
from compliance.trees.layout import Contents
from compliance.trees.official_checker import OfficialResult
from compliance.trees.result_rows import result_records
from compliance.trees.scenario import PlaceDetails
from compliance.trees.scenario_directory import ScenarioDirectory, TreeRun
from compliance.trees.tree import DIVISIONS, FREE_IN_OPEN, OPEN_IS_FREE, Place, Tree
from runs.errors import ExecutionError, InputError
from runs.harness import PROGRAM
from runs.machine.environment import usable_cores
from runs.processes.interrupts import wait_for_result
from runs.processes.workers import leave_signals, signals_later, workers
from runs.rounds import Round
from runs.what_is import what_is

BY_RUNS = frozenset({"log-not-in-runs", "runs-differ", "runs-unread"})  # rules of rebuild.py; they need --runs
PARALLEL_FROM = 24  # minimum number of scenarios for parallel checks; fewer are checked faster in one process
PLACES_AT_A_TIME = 8  # number of scenarios in one task of a process


@dataclass(eq=False)
class WholeTree(Subject):
    """A tree. Its parts are its results.

    Attributes:
        contents: All entries, and the findings on links and unreadable directories.
        against: Other trees, whose runs may not be in this tree.
    """

    tree: Tree
    contents: tuple[list[Finding], Contents]
    against: Sequence[Path] = ()

    kind = "tree"

    @cached_property
    def places(self) -> list[Place]:
        """The directories of scenarios."""
        return list(self.tree.places())

    @property
    def parts(self) -> Sequence[ScenarioDirectory]:
        return [ScenarioDirectory(self.tree, place) for place in self.places]


@dataclass(frozen=True)
class SystemSignOff:
    """The sign-off of one system. It has no verdict if some runs of the system are missing in --runs."""

    system: str  # division/organization/system
    runs: int
    legs_found: int
    verdict: dict[str, Any] | None = None  # JSON of the sign-off

    @property
    def blocks(self) -> bool:
        return self.verdict is None or bool(self.verdict["blocks"])

    @property
    def headline(self) -> str:
        if self.verdict is not None:
            return str(self.verdict["note"])
        if self.legs_found == self.runs:
            return "not possible, because runs cannot be read (findings of rule runs-unread)"
        return f"not possible: --runs has {self.legs_found} of {self.runs} runs"

    def as_json(self) -> dict[str, Any]:
        return {"system": self.system, "legs": self.runs, "legs_found": self.legs_found, "verdict": self.verdict}


@dataclass
class TreeDetails:
    """What `check` states of a tree besides the findings."""

    tree: Tree
    places: list[Place]  # scenario directories
    official: OfficialResult | None = None  # None: the official checker was not run
    signed: list[SystemSignOff] | None = None  # None: --runs was not given
    strict: bool = False  # whether warnings count as failures
    report: "TreeReport | None" = field(default=None, repr=False, compare=False)  # made when first shown

    def as_json(self, verdict: "TreeVerdict", common: dict[str, Any]) -> dict[str, Any]:
        report, official, signed = tree_report(verdict), self.official, self.signed
        place_of = {id(caused_finding.finding): place for place, caused_finding in enumerate(report.caused)}
        return common | {
            "exit_code": int(verdict.exit_code(strict=self.strict)),
            "findings": [
                {
                    **dict.fromkeys(SUBJECT),
                    **dict(zip(SUBJECT, caused_finding.subject, strict=False)),
                    "cause": caused_finding.cause,
                    **finding_record(caused_finding.finding),
                }
                for caused_finding in report.caused
            ],
            "causes": [
                {
                    "cause": cause.name,
                    "weight": RANKS[cause.rank],
                    "severity": "error" if cause.is_error else "warning",
                    "summary": cause.summary,
                    "example": place_of[id(cause.example)],
                    "rules": dict(cause.rules),
                    "findings": len(cause.caused),
                    "results": cause.results,
                    "submitters": cause.submitters,
                }
                for cause in report.causes
            ],
            "rules": [*catalog()],
            "not_judged": [not_applied_record(entry, *places) for entry, places in alike(report.rules_not_applied)],
            "tree": str(self.tree.root),
            "round": self.tree.round.name,
            "strict": self.strict,
            "scenarios": [str(place) for place in self.places],
            "results": result_records(self.tree, report.numbers),
            "errors": report.count("error"),
            "warnings": report.count("warning"),
            "signoff": None if signed is None else [sign_off.as_json() for sign_off in signed],
            "official": {"run": False} if official is None else {"run": True, **asdict(official)},
        }


TreeVerdict = Verdict[TreeDetails]


@dataclass(eq=False)
class TreeReport:
    """The verdict on a tree as its report shows it: findings in order, with causes, and rules by result."""

    verdict: TreeVerdict

    @property
    def tree(self) -> Tree:
        return self.verdict.details.tree

    @property
    def places(self) -> list[Place]:
        return self.verdict.details.places

    @cached_property
    def findings(self) -> list[Finding]:
        """Each finding once, ordered by file."""
        return in_order(self.verdict.all_findings)

    def count(self, severity: str) -> int:
        """Return the number of findings of a severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @cached_property
    def caused(self) -> list[CausedFinding]:
        """The findings with their subjects and causes."""
        return with_causes(self.tree, self.places, self.findings)

    @cached_property
    def causes(self) -> list[Cause]:
        """The causes of the findings, most severe first."""
        return causes(self.caused)

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The rank of each cause, by its name."""
        return {cause.name: cause.rank for cause in self.causes}

    @cached_property
    def numbers(self) -> dict[Place, dict[str, float]]:
        """Numbers in the performance log of each result."""
        results = [part.details for part in self.verdict.parts]
        return {result.place: run.numbers for result in results for run in result.runs if run.name == "performance"}

    @cached_property
    def rules_not_applied(self) -> dict[str, list[NotApplied]]:
        """The rules that were not applied to each result."""
        violated: dict[tuple[str, ...], set[str]] = {}
        for caused_finding in self.caused:
            violated.setdefault(caused_finding.subject, set()).add(caused_finding.finding.rule)
        return {
            part.name: list(self._not_applied(part, violated.get(astuple(part.details.place), set())))
            for part in self.verdict.parts
        }

    def _not_applied(self, result: Verdict[PlaceDetails], violated: set[str]) -> Iterator[NotApplied]:
        """Yield the rules that were not applied to a result, by reason."""
        place, reasons = result.details.place, dict[str, NotApplied]()
        nothing = "a log is damaged" if "log-damaged" in violated else f"the rules do not apply to {place.scenario}"
        of_parts = {rule: entry for entry in not_applied(*result.all_verdicts) for rule in entry.rules}
        applied = violated.union(self.verdict.applied, *(part.applied for part in result.all_verdicts))
        for rule in catalog():
            if rule in violated:
                continue
            if place.division == "open" and rule in FREE_IN_OPEN:
                reasons[rule] = NotApplied(OPEN_IS_FREE)
            elif rule in BY_RUNS:
                if self.verdict.details.signed is None:
                    why = "the runs that the tree was built from (--runs)"
                    reasons[rule] = NotApplied(why, lacks_input=True)
            elif rule not in applied:
                entry = of_parts.get(rule)
                reasons[rule] = replace(entry, rules=()) if entry and entry.lacks_input else NotApplied(nothing)
        rules: dict[NotApplied, list[str]] = {}
        for rule, reason in reasons.items():
            rules.setdefault(reason, []).append(rule)
        return (replace(reason, rules=tuple(ids)) for reason, ids in rules.items())


def tree_report(verdict: TreeVerdict) -> TreeReport:
    """Return the report on a complete verdict. Its causes are computed once, for the text, the record and the page."""
    if verdict.details.report is None:
        verdict.details.report = TreeReport(verdict)
    return verdict.details.report


@cache
def catalog() -> tuple[str, ...]:
    """Return the IDs of the rules on trees and their results, in order."""
    return tuple(sorted(CHECK.rules | BY_RUNS))


def alike(of_results: Mapping[str, Iterable[NotApplied]]) -> list[tuple[NotApplied, list[str]]]:
    """Merge equal entries of multiple results, most frequent entries first."""
    results: defaultdict[NotApplied, list[str]] = defaultdict(list)
    for place, entries in of_results.items():
        for entry in entries:
            results[entry].append(place)
    return sorted(results.items(), key=lambda item: (-len(item[1]), item[0].lacks_input, item[0].why))


def whole_tree(root: Path, in_round: Round, against: Sequence[Path] = ()) -> WholeTree:
    """Return a tree as a subject.

    Args:
        against: other trees, whose runs may not be in this tree.

    Raises:
        InputError: If the tree does not exist or is empty.
    """
    if not any((root / division).is_dir() for division in DIVISIONS):
        raise what_is(root).refused("a submission tree: the directory with closed/ or open/ in it")
    tree = Tree(root.resolve(), in_round)
    contents = readers.read_all(layout.scan(tree.root))
    if not contents[1].files:
        raise InputError(
            f"{tree.root}: no files in {', '.join(f'{name}/' for name in DIVISIONS)}",
            f"build a tree with `{PROGRAM} submit`",
        )
    return WholeTree(tree, contents, against)


def in_processes(parallel_from: int = PARALLEL_FROM) -> Each:
    """Return the function that checks many results with one process per core.

    Raises:
        ExecutionError: If a process died.
    """

    def each(results: Sequence[Subject], policy: Policy) -> Iterable[Verdict[Any]]:
        cores = len(usable_cores())
        if len(results) < parallel_from or cores == 1:
            return in_turn(results, policy)
        pool = ProcessPoolExecutor(cores, get_context("forkserver"), leave_signals)  # starts with the first task
        chunks = [results[first : first + PLACES_AT_A_TIME] for first in range(0, len(results), PLACES_AT_A_TIME)]
        try:
            with workers(pool):
                with signals_later():
                    futures = [pool.submit(_check_each, chunk) for chunk in chunks]
                return [verdict for future in futures for verdict in wait_for_result(future)]
        except BrokenProcessPool as error:
            raise ExecutionError(
                "a process that checks scenarios died, most likely because memory ran out",
                "free memory, and check again",
            ) from error

    return each


def _check_each(results: Sequence[Subject]) -> list[Verdict[Any]]:
    """Return the verdicts on results. Policies have functions that no process can receive."""
    return list(in_turn(results, CHECK))


def _layout(subject: WholeTree) -> Iterator[Finding]:
    findings, contents = subject.contents
    yield from findings
    yield from layout.check_file_names(contents)
    yield from layout.check_layout(subject.tree, contents)
    yield from layout.check_rehearsal(subject.tree, contents)


def _descriptions(subject: WholeTree) -> Iterator[Finding]:
    yield from descriptions.check_systems(subject.tree, subject.contents[1])
    yield from descriptions.check_sources(subject.tree, subject.contents[1])
    yield from descriptions.check_models(subject.tree, subject.places)


def _copies(subject: WholeTree, results: Sequence[Verdict[PlaceDetails]]) -> Iterator[Finding]:
    yield from copies.check_duplicates(subject.tree.root, [part.details for part in results], subject.against)


def _damage(subject: WholeTree | ScenarioDirectory | TreeRun, check: Check, error: Exception) -> Finding:
    if isinstance(subject, WholeTree):
        raise error
    return scenario.damage(subject, check, error)


def _presented(subject: WholeTree | ScenarioDirectory | TreeRun, findings: list[Finding]) -> list[Finding]:
    if isinstance(subject, WholeTree):
        return presented(subject.tree.root, findings)
    return scenario.presented_on_result(subject, findings)


CHECK = replace(
    scenario.CHECK,
    checks={
        **scenario.CHECK.checks,
        "tree": (
            check_of(_layout, layout, readers),
            check_of(_descriptions, descriptions, system_names),
            check_of(_copies, copies, over_parts=True),
        ),
    },
    damage=_damage,
    present=_presented,
    details={**scenario.CHECK.details, "tree": lambda subject, _: TreeDetails(subject.tree, subject.places)},
)
