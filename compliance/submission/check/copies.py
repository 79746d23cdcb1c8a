"""Copies: one run may be submitted once. A log is recognised by its bytes, its run's begin and end, and its latencies,
which no other run has to the nanosecond."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from compliance.judge.check import decides
from compliance.judge.rule import OURS, Rank
from compliance.submission.check.findings import Findings, is_regular
from compliance.submission.check.scenario import ScenarioOutcome
from compliance.submission.check.tree_evidence import INFERRED, ComparedLeg, fingerprints
from compliance.submission.tree import MOST_FILE_BYTES, Place
from runs.benchmark import LOADGEN_SCENARIO
from runs.benchmarks import DIRECTORIES
from runs.errors import InputError
from runs.rounds import model_of

LOG = "mlperf_log_detail.txt"
_KNOWN_BY = re.compile(rb'"key": "(power_begin|power_end|result_[\w.]+_latency_ns)", "value": "?([^",]+)')


_OURS = frozenset(map(model_of, DIRECTORIES))
MOST_SINGLE = 4  # copies between two systems; more are one finding


@dataclass
class Known:
    """Where each run was first seen, by what identifies it."""

    root: Path
    first: dict[object, tuple[Path, str, Place | None]]


@dataclass(frozen=True)
class _Copy:
    """A leg that is a copy of another."""

    place: Place
    leg: Path
    sign: str  # what shows it
    other: Place | None  # None: of another tree
    first: Path
    keys: tuple[str, ...]  # of the records that show it


@decides(
    "tree",
    ("log-duplicate", "error", OURS, "each log is in one place only", "submit the leg's own logs"),
    ("log-same-answers", "warning", OURS, "no two systems give the same answers in the same order",
     "submit the leg's own answers"),
    ("accuracy-hash-differs", "error", OURS, "one hash is of one accuracy log",
     "write accuracy.txt from the leg's own answers"),
    rank=Rank.COPIES,
)  # fmt: skip
def check_duplicates(outcomes: list[ScenarioOutcome], findings: Findings, others: Sequence[Path] = ()) -> None:
    """Find logs of the same bytes, changed logs of the same run, and the same answers twice.

    Args:
        others: trees of any round; none of their runs may be in this one.
    """
    known = Known(findings.root, dict(_runs_of(others)))
    copies = [copy for outcome in outcomes for leg in outcome.legs for copy in _copies(leg, outcome.place, known)]
    between: defaultdict[tuple[str, ...], list[_Copy]] = defaultdict(list)
    for copy in copies:
        pair = tuple(_system(one) for one in (copy.place, copy.other) if one is not None)
        between[pair if len(set(pair)) > 1 else (str(copy.leg),)].append(copy)
    for several in between.values():
        if len(several) <= MOST_SINGLE:
            for copy in several:
                findings.add("log-duplicate", copy.leg, copy.sign, "another run's", decided_by=copy.keys)
        else:
            _add_system(several, findings)
    _check_answers(outcomes, {copy.leg for copy in copies}, findings)


def _system(place: Place) -> str:
    return "/".join((place.division, place.organisation, place.system))


def _add_system(copies: list[_Copy], findings: Findings) -> None:
    """One finding for all logs that two systems have in common."""
    example, names = copies[0], [findings.name(copy.leg) for copy in copies]
    assert example.other is not None
    found = f"{len(copies)} of its logs are those of {_system(example.other)}, first {names[0]}"
    folder = next(path for path in example.leg.parents if path.name == example.place.system)
    others = [example.leg, example.first]
    numbers = {"results": sorted({str(copy.place) for copy in copies}), "logs": names}
    findings.add("log-duplicate", folder, found, "runs of its own", others=others, numbers=numbers)


def _check_answers(outcomes: list[ScenarioOutcome], copied: set[Path], findings: Findings) -> None:
    """Find the same answers in two systems, and two logs with one hash."""
    first_of: dict[str, tuple[ComparedLeg, Place, tuple[str, ...]]] = {}
    for outcome in outcomes:
        source = _source_of_order(outcome)
        for leg in outcome.legs:
            if not leg.answers or leg.answers_file is None:
                continue
            first, place, first_source = first_of.setdefault(leg.answers, (leg, outcome.place, source))
            if first.answers_file is None or first is leg:
                continue
            named = f"{findings.name(first.answers_file)}: SHA-256 {leg.answers}"
            if leg.cut and first.cut and leg.cut != first.cut:
                found, wanted = f"the hash of {named}", "a hash of its own: the logs differ"
                findings.add("accuracy-hash-differs", leg.answers_file, found, wanted, others=[first.answers_file])
            elif first_source == source or leg.detail in copied:
                continue
            elif leg.long_answers or place.organisation != outcome.place.organisation:  # classes may be the same
                found = f"the same accuracy log as that of {named}"
                findings.add("log-same-answers", leg.answers_file, found, "answers in an order of their own")


def _copies(leg: ComparedLeg, place: Place, known: Known) -> Iterator[_Copy]:
    """The first sign that a leg is a copy: its bytes (the detail log first), else its latencies or its time."""
    copied = False
    same_bytes = [("the same bytes as {}", digest, path, ()) for path, digest in leg.hashes.items()]
    marks = ((sign, mark, leg.detail, keys) for sign, mark, keys in _marks(leg))
    for sign, key, path, keys in (*same_bytes, *marks):
        first, name, other = known.first.setdefault(key, (path, leg.name, place))
        if first == path or copied:
            continue
        shared = other is not None and _may_share(other, name, place, leg.name)
        copied = not shared or key in leg.hashes.values()
        if not shared:
            named = str(first if other is None else first.relative_to(known.root))
            yield _Copy(place, path, sign.format(named), other, first, keys)


def _marks(leg: ComparedLeg) -> Iterable[tuple[str, tuple[object, ...], tuple[str, ...]]]:
    for latencies in leg.latencies:
        yield f"the latencies of {{}}, to the nanosecond: {', '.join(map(str, latencies))}", latencies, ()
    if leg.window is not None:
        sign = f"began and ended in the same milliseconds as {{}}: {' to '.join(leg.window)}"
        yield sign, leg.window, ("power_begin", "power_end")


def _runs_of(trees: Iterable[Path]) -> Iterable[tuple[object, tuple[Path, str, None]]]:
    """What identifies the runs in trees of any round and layout.

    Raises:
        InputError: a tree is not there, or holds no log.
    """
    for tree in trees:
        logs = [path for path in sorted(tree.rglob(LOG)) if is_regular(path) and path.stat().st_size <= MOST_FILE_BYTES]
        if not logs:
            raise InputError(f"{tree} has no {LOG}", "name the directory that contains closed/ or open/")
        for path in logs:
            found = {
                key.decode(): int(value) if value.isdigit() else value.decode(errors="replace")
                for key, value in _KNOWN_BY.findall(path.read_bytes())
            }
            for latencies in fingerprints(found):
                yield latencies, (path, "", None)
            if {"power_begin", "power_end"} <= found.keys():
                yield (found["power_begin"], found["power_end"]), (path, "", None)


def _may_share(first: Place, one: str, other: Place, another: str) -> bool:
    """Whether one run may be submitted as both legs: for a model at 99 and 99.9 % of the reference accuracy, and for
    scenarios that may be inferred from another."""
    if (first.division, first.organisation, first.system) != (other.division, other.organisation, other.system):
        return False
    scenarios = {first.scenario.lower(), other.scenario.lower()}
    if one != another:
        return False
    if first.benchmark != other.benchmark:
        return model_of(first.benchmark) == model_of(other.benchmark) and len(scenarios) == 1
    return first.benchmark not in DIRECTORIES and any(scenarios == {one.lower() for one in pair} for pair in INFERRED)


def _source_of_order(outcome: ScenarioOutcome) -> tuple[str, ...]:
    """What decides the order of a leg's answers. Within one, the same answers in the same order may be honest.

    Server and Interactive are one LoadGen scenario with one order of issue; a deterministic engine answers both alike.
    A run that was submitted twice is then found by its other logs.
    """
    place = outcome.place
    ours = model_of(place.benchmark) in _OURS
    scenario = LOADGEN_SCENARIO[outcome.scenario] if ours and outcome.scenario else ""
    return place.division, place.organisation, place.system, model_of(place.benchmark), scenario
