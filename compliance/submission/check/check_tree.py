"""All checks of a tree, and their outcome.

A rule of the catalogue is broken in a result (it has findings), kept (it was applied and has none), not applicable, or
without input. Applied rules are those that deciders noted (`compliance.finding.note_applied`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, astuple, dataclass, field
from functools import cache, cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from compliance.finding import ON_LEGS, Outcome, Rule, Verdict, all_rules, applied_rules
from compliance.signoff.signoff_verdict import SignOff
from compliance.submission.check.causes import SUBJECT, WEIGHTS, Cause, CausedFinding, causes, with_causes
from compliance.submission.check.copies import check_duplicates
from compliance.submission.check.descriptions import check_models, check_sources, check_systems
from compliance.submission.check.findings import Findings, in_order, located
from compliance.submission.check.layout import AUDIT_FOLDERS, check_layout, check_names, check_rehearsal, walk
from compliance.submission.check.leg_files import POWER_LOG
from compliance.submission.check.official_checker import OfficialResult
from compliance.submission.check.scenario import ScenarioOutcome, check_scenario
from compliance.submission.tree import DIVISIONS, NOT_IN_OPEN, Place, Tree
from runs.environment import usable_cores
from runs.errors import ExecutionError, InputError
from runs.interrupts import result_of
from runs.record.layout import LOADGEN_LOGS
from runs.rounds import Round
from runs.what_is import what_is
from runs.workers import leave_signals, signals_later, workers

SUMMARY, DETAIL, ANSWERS, _ = LOADGEN_LOGS
_RUN = f"performance/run_1/{DETAIL}"
_WHOLE = f"the whole accuracy/{ANSWERS}, which a tree has cut"
_RECORD = "requests.jsonl and manifest.json of a leg of ours, which no tree has"
_ENDPOINTS = "a run folder of the MLPerf Endpoints client, which no tree has"
_RUNS = "the runs that the tree was built from (--runs)"
# The files that rules need, by the longest prefix of their ids that is here; of several files one is enough. Paths that
# begin with "TEST" are in the directory of an audit; what is no path is never in a tree.
_INPUTS: dict[str, tuple[str, ...]] = {
    "": (),
    "perf-": (_RUN,),
    "log-": (_RUN, f"accuracy/{DETAIL}"), "log-missing": (), "log-records": (_RECORD,), "log-not-in-runs": (_RUNS,),
    "power-": ("performance/power", "performance/ranging", f"performance/run_1/{POWER_LOG}"),
    "user-conf-": ("user.conf",),
    "accuracy-": (f"accuracy/{DETAIL}",),
    "accuracy-text": ("accuracy/accuracy.txt",), "accuracy-hash": ("accuracy/accuracy.txt",),
    "accuracy-target": ("accuracy/accuracy.txt",), "accuracy-size": (), "accuracy-shape": (f"accuracy/{ANSWERS}",),
    "accuracy-text-differs": (_WHOLE,), "accuracy-answers": (_WHOLE,), "accuracy-longest": (_WHOLE,),
    "accuracy-count": (_WHOLE,), "accuracy-token-counts": (_WHOLE,), "accuracy-scored-again": (_WHOLE,),
    "accuracy-no-target": (_WHOLE,),
    "audit-verdict": ("TEST/verify_performance.txt",), "audit-numbers": ("TEST/verify_performance.txt",),
    "audit-fallback": ("TEST/verify_accuracy.txt",),
    "audit-": ("TEST",), "audit-missing": (), "audit-settings": (f"TEST/performance/run_1/{DETAIL}",),
    "audit-errors": (f"TEST/performance/run_1/{DETAIL}",), "audit-order": (f"TEST/performance/run_1/{DETAIL}",),
    "endpoints-": (_ENDPOINTS,),
    "test0": (f"TEST/accuracy/{ANSWERS}",),
    "plausible-": (_RECORD,), "record-": (_RECORD,), "attested": (_RECORD,), "one-system": (_RECORD,),
    "runs-": (_RUNS,),
}  # fmt: skip
NOT_APPLICABLE, WITHOUT_INPUT = "not applicable", "without input"


@dataclass(frozen=True)
class NotJudged:
    """Rules that were not applied to a result, and why."""

    what: str  # NOT_APPLICABLE or WITHOUT_INPUT
    why: str  # for which reason, or without which file
    rules: tuple[str, ...]


@cache
def catalogue() -> tuple[Rule, ...]:
    """The rules on trees and their results, in order of their ids."""
    rules = all_rules().values()
    asked = (one for one in rules if one.kind in ON_LEGS or one.kind == "tree" or one.id.startswith("test06-"))
    return tuple(sorted(asked, key=lambda rule: rule.id))


def not_judged(
    tree: Tree, place: Place, applied: frozenset[str], broken: frozenset[str], *, with_runs: bool
) -> tuple[NotJudged, ...]:
    """The rules that were not applied to a result, by reason."""
    silent: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    missing = _missing(tree, place, with_runs)
    for rule in catalogue():
        if rule.id in broken:
            continue
        if place.division == "open" and rule.id in NOT_IN_OPEN:
            silent[NOT_APPLICABLE, "the open division is free there"].append(rule.id)
        elif why := missing[_subject(rule.id)]:
            silent[WITHOUT_INPUT, why].append(rule.id)
        elif rule.id not in applied and not (with_runs and _INPUTS[_subject(rule.id)] == (_RUNS,)):
            why = f"{place.scenario} has nothing of the kind"
            why = "a log of it is damaged" if "log-damaged" in broken else why
            silent[NOT_APPLICABLE, why].append(rule.id)
    found = [NotJudged(*key, tuple(rules)) for key, rules in silent.items()]
    return tuple(found)


@cache
def _subject(rule_id: str) -> str:
    return max((start for start in _INPUTS if rule_id.startswith(start)), key=len)


def _missing(tree: Tree, place: Place, with_runs: bool) -> dict[str, str]:
    """What the rules of each prefix lack; empty where they lack nothing."""
    audits = [folder for test in sorted(AUDIT_FOLDERS) if (folder := tree.audit(place, test)).is_dir()]

    @cache
    def there(name: str) -> bool:
        if name == _RUNS:
            return with_runs
        if name == "user.conf":
            return tree.user_conf(place).is_file()
        if name.startswith("TEST"):
            return any((folder / name.removeprefix("TEST").lstrip("/")).exists() for folder in audits)
        return (tree.scenario(place) / name).exists()

    return {
        subject: "" if not names or any(map(there, names)) else " or ".join(names) for subject, names in _INPUTS.items()
    }


def alike(judged: Mapping[str, Iterable[NotJudged]]) -> dict[NotJudged, list[str]]:
    """Results by what was not applied to them, the most frequent first."""
    results: defaultdict[NotJudged, list[str]] = defaultdict(list)
    for place, several in judged.items():
        for one in several:
            results[one].append(place)
    return dict(sorted(results.items(), key=lambda item: (-len(item[1]), item[0].what, item[0].why)))


PARALLEL_FROM = 24  # scenarios; fewer are checked faster than processes start
PLACES_AT_A_TIME = 8


@dataclass(frozen=True)
class SignedOff:
    """The sign-off of one system; without a verdict where some of its legs are not among the runs."""

    system: str  # division/organisation/system
    legs: int
    legs_found: int
    verdict: SignOff | None = None

    @property
    def blocks(self) -> bool:
        return self.verdict is None or self.verdict.blocks

    @property
    def headline(self) -> str:
        if self.verdict is not None:
            return self.verdict.headline
        if self.legs_found == self.legs:
            return "not possible: see runs-unread"
        return f"not possible: {self.legs_found} of {self.legs} legs are among the runs of --runs"

    def as_json(self) -> dict[str, Any]:
        return {
            "system": self.system,
            "legs": self.legs,
            "legs_found": self.legs_found,
            "verdict": None if self.verdict is None else self.verdict.record(),
        }


@dataclass
class Checked(Verdict):
    """The outcome of a tree; `places` are its scenarios.

    `official` is the official checker's outcome, if it was run; `signed` is None without --runs.
    """

    tree: Tree
    places: list[Place]
    applied: dict[Place, frozenset[str]] = field(default_factory=dict)  # rules, to each result
    numbers: dict[Place, dict[str, float]] = field(default_factory=dict)  # of each performance log
    official: OfficialResult | None = None
    signed: list[SignedOff] | None = None

    @property
    def outcome(self) -> Outcome:
        """A refusal of the official checker, and a sign-off that is none, count as an error does."""
        refused = self.official is not None and not self.official.ok
        return "FAIL" if refused or any(one.blocks for one in self.signed or ()) else super().outcome

    @cached_property
    def caused(self) -> list[CausedFinding]:
        """Each finding with its subject and its cause."""
        return with_causes(self.tree, self.places, self.findings)

    @cached_property
    def causes(self) -> list[Cause]:
        """What is behind the findings, the gravest first."""
        return causes(self.caused)

    @cached_property
    def judged(self) -> dict[str, tuple[NotJudged, ...]]:
        """The rules of the catalogue that were not applied to each result."""
        broken: dict[tuple[str, ...], set[str]] = {}
        for one in self.caused:
            broken.setdefault(one.subject, set()).add(one.finding.rule)
        return {
            str(place): not_judged(
                self.tree,
                place,
                applied,
                frozenset(broken.get(astuple(place), ())),
                with_runs=self.signed is not None,
            )
            for place, applied in self.applied.items()
        }

    @cached_property
    def weights(self) -> dict[str, int]:
        """The weight of each cause, by its name."""
        return {one.name: one.weight for one in self.causes}

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        official, signed = self.official, self.signed
        return super().record(strict=strict) | {
            "findings": [
                {
                    **dict.fromkeys(SUBJECT),
                    **dict(zip(SUBJECT, one.subject, strict=False)),
                    "cause": one.cause,
                    **one.finding.as_json(),
                }
                for one in self.caused
            ],
            "causes": [
                {
                    "cause": one.name,
                    "weight": WEIGHTS[one.weight],
                    "summary": one.summary,
                    "rules": dict(one.rules),
                    "findings": len(one.caused),
                    "results": one.results,
                    "submitters": one.submitters,
                }
                for one in self.causes
            ],
            "rules": [rule.id for rule in catalogue()],
            "not_judged": [{**asdict(one), "results": results} for one, results in alike(self.judged).items()],
            "tree": str(self.tree.root),
            "round": self.tree.round.name,
            "strict": strict,
            "scenarios": [str(place) for place in self.places],
            "errors": len(self.of("error")),
            "warnings": len(self.of("warning")),
            "signoff": None if signed is None else [one.as_json() for one in signed],
            "official": {"run": False} if official is None else {"run": True, **asdict(official)},
        }


def check_tree(
    root: Path, in_round: Round, parallel_from: int = PARALLEL_FROM, against: Sequence[Path] = ()
) -> Checked:
    """Check everything in a tree against the rules of a round.

    Args:
        parallel_from: scenarios from which on processes are used.
        against: other trees; none of their runs may be in this one.

    Raises:
        InputError: there is no such tree, or nothing in it.
    """
    if not any((root / division).is_dir() for division in DIVISIONS):
        raise what_is(root).refused("a submission tree: the directory with closed/ or open/ in it")
    root = root.resolve()
    tree, findings = Tree(root, in_round), Findings(root)
    with applied_rules() as to_all:
        contents = walk(root, findings)
        if not contents.files:
            raise InputError(
                f"{root} is no submission: no file in any of {', '.join(f'{name}/' for name in DIVISIONS)}",
                "build a tree with `main.py submit`",
            )
        places = list(tree.places())
        check_names(contents, findings)
        check_layout(tree, contents, findings)
        check_rehearsal(tree, contents, findings)
        check_systems(tree, contents, findings)
        check_sources(tree, contents, findings)
        check_models(tree, places, findings)
        outcomes = _check_all(tree, places, parallel_from)
        check_duplicates(outcomes, findings, against)
    every = located(root, findings.items) + [finding for outcome in outcomes for finding in outcome.findings]
    applied = {outcome.place: outcome.applied | to_all for outcome in outcomes}
    numbers = {outcome.place: leg.numbers for outcome in outcomes for leg in outcome.legs if leg.name == "performance"}
    return Checked(tree, places, findings=in_order(every), applied=applied, numbers=numbers)


def _check_all(tree: Tree, places: list[Place], parallel_from: int) -> list[ScenarioOutcome]:
    """Every scenario, a process a core where there are many; in the order of the places.

    Raises:
        ExecutionError: a process died.
    """
    cores = len(usable_cores())
    if len(places) < parallel_from or cores == 1:
        return _check_each(tree, places)
    pool = ProcessPoolExecutor(cores, get_context("forkserver"), leave_signals)  # starts none yet
    chunks = [places[first : first + PLACES_AT_A_TIME] for first in range(0, len(places), PLACES_AT_A_TIME)]
    try:
        with workers(pool):
            with signals_later():
                futures = [pool.submit(_check_each, tree, chunk) for chunk in chunks]
            return [outcome for future in futures for outcome in result_of(future)]
    except BrokenProcessPool as error:
        raise ExecutionError(
            "a process that checks scenarios died before it was done", "free memory, which most likely ran out"
        ) from error


def _check_each(tree: Tree, places: list[Place]) -> list[ScenarioOutcome]:
    return [check_scenario(tree, place) for place in places]
