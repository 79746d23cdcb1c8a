"""Rules on copies: each run may be submitted only once.

A log is recognized by its bytes, by the begin and end of its run, and by its latencies in nanoseconds.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from compliance.judge.rule import OURS, Rank, decides
from compliance.judge.verdict import Finding, compared
from compliance.results.run_claim import loadgen_scenario
from compliance.trees.findings import is_regular, name_in
from compliance.trees.scenario import PlaceDetails
from compliance.trees.scenario_directory import INFERRED, RunIdentity, fingerprints
from compliance.trees.tree import MAX_FILE_BYTES, Place
from runs.benchmarks import DIRECTORIES
from runs.errors import InputError
from runs.rounds import model_of

LOG = "mlperf_log_detail.txt"
_KNOWN_BY = re.compile(rb'"key": "(power_begin|power_end|result_[\w.]+_latency_ns)", "value": "?([^",]+)')


_OURS = frozenset(map(model_of, DIRECTORIES))
MAX_SINGLE = 4  # maximum number of copies between two systems with one finding each; more copies get a single finding


@dataclass
class SeenRuns:
    """Hashes, time spans and latencies that identify runs, each with the first file, run and place that has it."""

    root: Path
    first: dict[object, tuple[Path, str, Place | None]]


@dataclass(frozen=True)
class _Copy:
    """A run that copies a run of the tree or of another tree."""

    place: Place
    run: Path
    sign: str  # name of the value that both runs share
    other: Place | None  # place of the other run; None: it is in another tree
    first: Path
    keys: tuple[str, ...]  # keys of the shared log records


@decides(
    "tree",
    ("log-duplicate", "error", OURS, "duplicate log", "submit the run's own logs"),
    ("log-same-answers", "warning", OURS, "accuracy log, compared with other systems",
     "submit the run's own accuracy log"),
    ("accuracy-hash-differs", "error", OURS, "hash in accuracy.txt, compared with other results",
     "write accuracy.txt from the run's own accuracy log"),
    ("accuracy-hash-scores", "error", OURS, "scores of results whose accuracy logs have one hash",
     "write accuracy.txt from the run's own accuracy log"),
    rank=Rank.COPIES,
)  # fmt: skip
def check_duplicates(root: Path, results: list[PlaceDetails], trees: Sequence[Path] = ()) -> Iterator[Finding]:
    """Find logs with identical bytes, different logs of one run, and identical responses of two systems.

    Args:
        others: trees of any round; none of their runs may be in this one.
    """
    seen = SeenRuns(root, dict(_runs_of(trees)))
    copies = [copy for result in results for run in result.runs for copy in _copies(run, result.place, seen)]
    between: defaultdict[tuple[str, ...], list[_Copy]] = defaultdict(list)
    for copy in copies:
        pair = tuple(_system(named_place) for named_place in (copy.place, copy.other) if named_place is not None)
        between[pair if len(set(pair)) > 1 else (str(copy.run),)].append(copy)
    for copies_of_pair in between.values():
        if len(copies_of_pair) <= MAX_SINGLE:
            for copy in copies_of_pair:
                yield compared(
                    "log-duplicate", False, copy.sign, "a log from a separate run", copy.run, decided_by=copy.keys
                )
        else:
            yield _copied_system(root, copies_of_pair)
    yield from _check_responses(root, results, {copy.run for copy in copies})


def _system(place: Place) -> str:
    return "/".join((place.division, place.organization, place.system))


def _copied_system(root: Path, copies: list[_Copy]) -> Finding:
    """Return a single finding for all logs that two systems have in common."""
    example, names = copies[0], [name_in(root, copy.run) for copy in copies]
    assert example.other is not None
    text = f"{len(copies)} logs are copies of logs of {_system(example.other)}, for example {names[0]}"
    folder = next(path for path in example.run.parents if path.name == example.place.system)
    results = sorted({str(copy.place) for copy in copies})
    return compared(
        "log-duplicate", False, text, "logs from separate runs", folder, example.run, example.first,
        results=results, logs=names,
    )  # fmt: skip


def _check_responses(root: Path, results: list[PlaceDetails], copied: set[Path]) -> Iterator[Finding]:
    """Find identical responses of two systems, and different logs with one hash."""
    first_of: dict[str, tuple[RunIdentity, Place, tuple[str, ...]]] = {}
    for result in results:
        source = _source_of_order(result)
        for run in result.runs:
            if not run.responses or run.responses_file is None:
                continue
            first, place, first_source = first_of.setdefault(run.responses, (run, result.place, source))
            if first.responses_file is None or first is run:
                continue
            names = sorted(name for name in run.scores if run.scores[name] != first.scores.get(name, run.scores[name]))
            if names:
                value, wanted = (
                    ", ".join(f"{name} {scores[name]:.10g}" for name in names) for scores in (run.scores, first.scores)
                )
                where = name_in(root, first.responses_file)
                wanted = f"{wanted}, the value in {where} with the same hash"
                yield compared(
                    "accuracy-hash-scores",
                    False,
                    value,
                    wanted,
                    run.responses_file,
                    first.responses_file,
                    decided_by=names,
                )
            named = f"{name_in(root, first.responses_file)}: SHA-256 {run.responses}"
            if run.cut and first.cut and run.cut != first.cut:
                value, wanted = f"the hash of {named}", "a different hash, because the accuracy logs differ"
                yield compared("accuracy-hash-differs", False, value, wanted, run.responses_file, first.responses_file)
            elif first_source == source or run.detail in copied:
                continue
            # Short responses, such as classes, may be equal on two systems of one submitter.
            elif run.long_responses or place.organization != result.place.organization:
                value = f"identical to the log of {named}"
                yield compared("log-same-answers", False, value, "a different accuracy log", run.responses_file)


def _copies(run: RunIdentity, place: Place, seen: SeenRuns) -> Iterator[_Copy]:
    """Yield the value that shows that a run is a copy: bytes of a log, latencies or time span."""
    copied = False
    same_bytes = [("identical to {}", digest, path, ()) for path, digest in run.hashes.items()]
    marks = ((sign, mark, run.detail, keys) for sign, mark, keys in _marks(run))
    for sign, key, path, keys in (*same_bytes, *marks):
        first, name, other_place = seen.first.setdefault(key, (path, run.name, place))
        if first == path or copied:
            continue
        shared = other_place is not None and _may_share(other_place, name, place, run.name)
        copied = not shared or key in run.hashes.values()
        if not shared:
            named = str(first if other_place is None else first.relative_to(seen.root))
            yield _Copy(place, path, sign.format(named), other_place, first, keys)


def _marks(run: RunIdentity) -> Iterable[tuple[str, tuple[object, ...], tuple[str, ...]]]:
    for latencies in run.latencies:
        yield f"the latencies of {{}} in ns: {', '.join(map(str, latencies))}", latencies, ()
    if run.window is not None:
        sign = f"the begin and end of {{}}: {' to '.join(run.window)}"
        yield sign, run.window, ("power_begin", "power_end")


def _runs_of(trees: Iterable[Path]) -> Iterable[tuple[object, tuple[Path, str, None]]]:
    """Yield the latencies and time spans of the runs in trees of any round and layout.

    Raises:
        InputError: If a tree does not exist or contains no log.
    """
    for tree in trees:
        logs = [path for path in sorted(tree.rglob(LOG)) if is_regular(path) and path.stat().st_size <= MAX_FILE_BYTES]
        if not logs:
            raise InputError(f"{tree}: {LOG} is missing", "give the directory that contains closed/ or open/")
        for path in logs:
            values = {
                key.decode(): int(value) if value.isdigit() else value.decode(errors="replace")
                for key, value in _KNOWN_BY.findall(path.read_bytes())
            }
            for latencies in fingerprints(values):
                yield latencies, (path, "", None)
            if {"power_begin", "power_end"} <= values.keys():
                yield (values["power_begin"], values["power_end"]), (path, "", None)


def _may_share(first: Place, first_run: str, second: Place, second_run: str) -> bool:
    """Return True if one run may be submitted in both places.

    This is the case for a model at 99% and 99.9% of the reference accuracy, and for a scenario inferred from another.
    """
    if (first.division, first.organization, first.system) != (second.division, second.organization, second.system):
        return False
    scenarios = {first.scenario.lower(), second.scenario.lower()}
    if first_run != second_run:
        return False
    if first.benchmark != second.benchmark:
        return model_of(first.benchmark) == model_of(second.benchmark) and len(scenarios) == 1
    return first.benchmark not in DIRECTORIES and any(
        scenarios == {scenario_name.lower() for scenario_name in pair} for pair in INFERRED
    )


def _source_of_order(result: PlaceDetails) -> tuple[str, ...]:
    """Return the values that decide the order of responses. Runs with equal values may have identical accuracy logs.

    Server and Interactive are one LoadGen scenario with one order of issue, and a deterministic engine returns equal
    responses in both. The detail logs show whether a run was submitted twice.
    """
    place = result.place
    is_supported = model_of(place.benchmark) in _OURS
    scenario = loadgen_scenario(place.scenario) if is_supported else None
    return place.division, place.organization, place.system, model_of(place.benchmark), scenario or ""
