"""One run counts once. A log is known by its bytes, by when its run was, and by its latencies: no other run has them to
the nanosecond, whatever else was changed in it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compliance.finding import OURS, decides
from compliance.submission.check.findings import Findings, is_regular
from compliance.submission.check.legs import INFERRED, ComparedLeg
from compliance.submission.check.scenario import ScenarioOutcome
from compliance.submission.tree import MOST_FILE_BYTES, Place
from runs.benchmark import LOADGEN_SCENARIO
from runs.benchmarks import DIRECTORIES
from runs.errors import InputError
from runs.round_table import model_of

LOG = "mlperf_log_detail.txt"
_KNOWN_BY = re.compile(rb'"key": "(power_begin|power_end|result_(?:min|mean|max)_latency_ns)", "value": "?([^",]+)')


@dataclass
class Known:
    """Where each run was first seen, by what it is known by."""

    by_hash: dict[str, tuple[Path, str, Place]] = field(default_factory=dict)
    by_run: dict[tuple[object, ...], tuple[Path, str, Place | None]] = field(default_factory=dict)


@decides(
    "tree",
    ("log-duplicate", "error", OURS, "each log is in one place only", "submit the leg's own logs"),
    ("log-same-answers", "warning", OURS, "the same answers come in the same order of issue only",
     "submit the leg's own answers"),
)  # fmt: skip
def check_duplicates(outcomes: list[ScenarioOutcome], findings: Findings, others: Sequence[Path] = ()) -> None:
    """Logs of the same bytes, logs of the same run with other figures, and the same answers twice.

    Args:
        others: trees, of other rounds maybe, whose runs no run of this one may be.
    """
    known = Known(by_run=dict(_runs_of(others)))
    first_by_answers: dict[str, tuple[Path, tuple[str, ...]]] = {}
    for outcome in outcomes:
        source = _source_of_order(outcome)
        for leg in outcome.legs:
            _check_leg(leg, outcome.place, known, findings)
            if leg.answers and leg.answers_file:
                first, first_source = first_by_answers.setdefault(leg.answers, (leg.answers_file, source))
                if first_source != source:
                    said = f"the same accuracy log as that of {findings.name(first)}: SHA-256 {leg.answers}"
                    findings.add("log-same-answers", leg.answers_file, said, "answers in an order of their own")


def _check_leg(leg: ComparedLeg, place: Place, known: Known, findings: Findings) -> None:
    """One run is told of once: by its bytes (the detail log first), else by its latencies or its time."""
    copied = False
    for path, digest in leg.hashes.items():
        first, name, other = known.by_hash.setdefault(digest, (path, leg.name, place))
        if first != path and not copied:
            copied = True
            if not _may_share(other, name, place, leg.name):
                findings.add("log-duplicate", path, f"the same bytes as {findings.name(first)}", "another run's")
    for said, key in _marks(leg):
        first, name, where = known.by_run.setdefault(key, (leg.detail, leg.name, place))
        if first == leg.detail or copied or (where is not None and _may_share(where, name, place, leg.name)):
            continue
        copied = True
        named = str(first) if where is None else findings.name(first)
        findings.add("log-duplicate", leg.detail, said.format(named), "a run of its own")


def _marks(leg: ComparedLeg) -> Iterable[tuple[str, tuple[object, ...]]]:
    if leg.latencies is not None:
        yield f"the latencies of {{}}, to the nanosecond: {', '.join(map(str, leg.latencies))}", leg.latencies
    if leg.window is not None:
        yield f"began and ended in the same milliseconds as {{}}: {' to '.join(leg.window)}", leg.window


def _runs_of(trees: Iterable[Path]) -> Iterable[tuple[tuple[object, ...], tuple[Path, str, None]]]:
    """What the runs in trees of any round and layout are known by.

    Raises:
        InputError: a tree is not there, or holds no log.
    """
    for tree in trees:
        logs = [path for path in sorted(tree.rglob(LOG)) if is_regular(path) and path.stat().st_size <= MOST_FILE_BYTES]
        if not logs:
            raise InputError(f"{tree} holds no {LOG}", "name the directory that holds closed/ or open/")
        for path in logs:
            found = {key: value.decode(errors="replace") for key, value in _KNOWN_BY.findall(path.read_bytes())}
            latencies = [found.get(b"result_%s_latency_ns" % name, "") for name in (b"min", b"mean", b"max")]
            if all(value.isdecimal() for value in latencies):
                yield tuple(map(int, latencies)), (path, "", None)
            if {b"power_begin", b"power_end"} <= found.keys():
                yield (found[b"power_begin"], found[b"power_end"]), (path, "", None)


def _may_share(first: Place, one: str, other: Place, another: str) -> bool:
    """May two legs of one system be one run? Those of one name of one model at 99 and 99.9 % of the reference accuracy,
    and those that one scenario's run may be taken for."""
    if (first.division, first.organisation, first.system) != (other.division, other.organisation, other.system):
        return False
    scenarios = {first.scenario.lower(), other.scenario.lower()}
    if one != another:
        return False
    if first.benchmark != other.benchmark:
        return model_of(first.benchmark) == model_of(other.benchmark) and len(scenarios) == 1
    return first.benchmark not in DIRECTORIES and any(scenarios == {one.lower() for one in pair} for pair in INFERRED)


def _source_of_order(outcome: ScenarioOutcome) -> tuple[str, ...]:
    """What decides the order of a leg's answers: of one system the same answers in the same order may be honest.

    Server and Interactive are one LoadGen scenario with one order of issue; a deterministic engine answers both alike.
    That a run was handed in twice is then told by its other logs.
    """
    place = outcome.place
    scenario = LOADGEN_SCENARIO[outcome.scenario] if outcome.scenario else place.scenario
    return place.division, place.organisation, place.system, model_of(place.benchmark), scenario
