"""The comparison of bench.json with the run directories that it was made from.

Nobody signs bench.json. Each of its numbers is therefore computed again from the files of the run, whose attestation
the entry names.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from runs.attestation.attestation import broken_files, read_attestation
from runs.bench.bench_record import RUNS, WARM_UP, BenchRecord, BenchRun, Best, Fact, numbered
from runs.bench.best_rate import best_rate, rounded_rate, steady_rate
from runs.bench.measure import measure_run
from runs.bench.points import POINTS, points_csv
from runs.bench.single_run import kind_of_run
from runs.errors import HarnessError
from runs.files.writing import sha256_of
from runs.harness import harness_facts
from runs.record.fingerprint import Facts, conditions_of, differences, flat_facts, run_fingerprint, value_text
from runs.record.finished_run import FinishedRun, finished_run
from runs.record.layout import BENCH_FILE, RunDir
from runs.wording import NO_LIMIT_MS, counted

ROUNDING = 1e-9  # relative difference of two equal numbers
MAX_SHOWN = 3  # differences of one entry in a message
# Fields that earlier versions do not write.
_LATER = frozenset({"std", "rank_p99", "itl", "tokens_per_part", "estimated"})
# Fields that the bench decides. `reasons` is text, which differs between versions.
_OF_THE_BENCH = frozenset({"number", "repetition", "again", "share", "reasons", "run_dir"})
# Facts that a command line sets, so that each of them must be in bench.json.
_OPTIONS = ("engine_options.", "sampling.")
# Limits on a command line: `--limits ttft=500,tpot=50`, `--goodput ttft:500 tpot:50`, and their other forms.
_LIMIT = re.compile(r"(ttft|tpot|e2el)[=:](\d+(?:\.\d+)?)")
_SLA = {"--ttft-sla-ms": "ttft", "--tpot-sla-ms": "tpot"}


# attested: files of a run and its attestation. numbers: an entry and its run. load: an entry and LoadGen's settings.
# conditions: bench.json and the manifests. runs: one run for each entry, and one entry for each run. summary: parts of
# bench.json, the recorded command, and points.csv.
BenchAspect = Literal["attested", "numbers", "load", "conditions", "runs", "summary"]


@dataclass(frozen=True)
class BenchContradiction:
    """A statement of bench.json that the files of the bench exclude."""

    aspect: BenchAspect
    text: str
    path: Path  # run directory or file that excludes the statement
    number: int | None = None  # number of the entry; None if the statement is about the whole bench

    def __str__(self) -> str:
        return self.text if self.number is None else f"run {self.number}: {self.text}"


@dataclass
class RecomputedBench:
    """A bench with the numbers of its run directories."""

    record: BenchRecord  # entries without a run directory are unchanged
    contradictions: list[BenchContradiction] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # entries with numbers, but without a run directory

    @property
    def unverified(self) -> str:
        """Why the numbers are not verified; empty if they are."""
        if not self.missing:
            return ""
        without = f"{counted(len(self.missing), 'run')} without a run directory ({self.missing[0]})"
        return f"{self.record.label}: not verified: {without}"


def recompute_bench(
    folder: Path, record: BenchRecord, read: Callable[[RunDir], FinishedRun] = finished_run
) -> RecomputedBench:
    """Compare a bench with its run directories, and return it with the numbers of these directories.

    Args:
        folder: Directory of the bench.
        read: Reader of a run directory, for a caller that keeps the runs.
    """
    bench = RecomputedBench(record)
    entries = [_recomputed(bench, folder, entry, read) for entry in record.runs]
    bench.record = record.model_copy(update={"runs": entries})
    groups: tuple[tuple[BenchAspect, Iterable[str]], ...] = (
        ("runs", _repeated(folder, record)),
        ("runs", _unlisted(folder, record)),
        ("summary", _rates(bench.record)),
        ("summary", _whole(folder, record, entries)),
    )
    bench.contradictions += [
        BenchContradiction(aspect, text, folder / BENCH_FILE) for aspect, texts in groups for text in texts
    ]
    return bench


def check_single_run(folder: Path, record: BenchRecord) -> RecomputedBench:
    """Compare a single run, of which the record was just computed, with its attestation."""
    (entry,) = record.runs
    texts = _attestation(RunDir(folder), entry)
    return RecomputedBench(record, [BenchContradiction("attested", text, folder) for text in texts])


def has_numbers(entry: BenchRun) -> bool:
    """Return True for the entry of a run that ended with numbers."""
    return entry.duration_s is not None or entry.seal_sha256 is not None


def _recomputed(
    bench: RecomputedBench, folder: Path, entry: BenchRun, read: Callable[[RunDir], FinishedRun]
) -> BenchRun:
    """Return an entry with the numbers of its run directory; add its contradictions to the bench."""
    record, directory = bench.record, RunDir(folder / entry.run_dir)

    def contradicted(aspect: BenchAspect, texts: Iterable[str]) -> Iterator[BenchContradiction]:
        return (BenchContradiction(aspect, text, directory.root, entry.number) for text in texts)

    if not has_numbers(entry):
        if entry.verdict not in ("failed", "saturated"):  # a run that failed, or was stopped because it was saturated
            bench.contradictions += contradicted("runs", [f"{entry.verdict} without numbers"])
        elif entry.verdict == "failed" and _has_result(directory):
            bench.contradictions += contradicted("runs", [f"failed in {BENCH_FILE}, complete in {directory.root}"])
        return entry
    if not entry.run_dir or not directory.root.is_dir():
        bench.missing.append(entry.run_dir or f"run {entry.number}")
        return entry
    try:
        run = read(directory)
        measured = measure_run(
            directory.root,
            kind=entry.kind,
            limits=record.limits,
            percentile=record.percentile,
            output_tokens=_requested_tokens(record, run),
            folder=folder,
            run=run,
            **{
                name: getattr(entry, name)
                for name in ("number", "repetition", "again", "share", "asked_qps", "concurrency")
            },
        )
        conditions = conditions_of(run_fingerprint(run), of_bench=True)
        is_described = entry.number == _first_load(record.runs)
        contradictions = [
            *contradicted("attested", _attestation(directory, entry)),
            *contradicted("numbers", _numbers(entry, measured, is_of_this_version=_is_of_this_version(run))),
            *contradicted("load", _load(record, entry, run)),
            *contradicted("conditions", _conditions(record, run, *conditions) if is_described else ()),
            *contradicted("conditions", _options(record, run, *conditions)),
        ]
    except HarnessError as error:
        bench.contradictions += contradicted("numbers", [error.message])
        return entry
    bench.contradictions += contradictions
    return measured


def _has_result(directory: RunDir) -> bool:
    try:
        return directory.seal.is_file() and not finished_run(directory).detail.error_count
    except HarnessError:
        return False


def _is_of_this_version(run: FinishedRun) -> bool:
    assert run.manifest is not None
    measured = run.manifest.observed.harness
    return (measured.version, measured.git_commit) == _this_version()


@cache
def _this_version() -> tuple[str | None, str | None]:
    facts = harness_facts()
    return facts["version"], facts["git_commit"]


def _requested_tokens(record: BenchRecord, run: FinishedRun) -> int | None:
    """Return the number of output tokens that each request asks for; None if responses may end before."""
    assert run.manifest is not None
    sampling = run.manifest.plan.sampling
    is_exact = record.conditions.equal.get("exact_output", sampling.min_tokens == sampling.max_tokens)
    return sampling.min_tokens if is_exact else None


def _attestation(directory: RunDir, entry: BenchRun) -> Iterator[str]:
    """Yield the files of a run that differ from its attestation, and an attestation that the entry does not name."""
    if entry.seal_sha256 is None:
        yield f"{BENCH_FILE} names no attestation"
        return
    attestation = read_attestation(directory)
    if attestation.digest != entry.seal_sha256:
        yield f"{directory.seal}: not the attestation that {BENCH_FILE} names"
    for file in broken_files(directory, attestation):
        yield f"{directory.root / file.name}: {file.state} since its attestation"


# Numbers of an entry -------------------------------------------------------------------------------------------------


def _numbers(entry: BenchRun, measured: BenchRun, *, is_of_this_version: bool) -> Iterator[str]:
    """Yield the numbers of an entry that differ from the numbers of its files.

    Args:
        is_of_this_version: This version has measured the run, so that the verdict must be equal, too.
    """
    omitted = _OF_THE_BENCH if is_of_this_version else _OF_THE_BENCH | {"verdict"}
    stated, computed = (
        {
            name: value
            for name, value in flat_facts("", fields).items()
            # The percentile of the bound was unknown when the bench measured its Offline run.
            if value is not None and not (entry.kind == "offline" and name.endswith(".bound"))
        }
        for fields in (entry.model_dump(exclude_unset=True), measured.model_dump())
    )
    unequal = []
    for name in dict.fromkeys((*stated, *computed)):
        place, _, statistic = name.rpartition(".")
        if name in omitted or (name not in stated and {place, statistic} & _LATER):
            continue
        if not _agree(stated.get(name), computed.get(name)):
            unequal.append(
                f"{name} is {_shown(stated.get(name))}, and {_shown(computed.get(name))} by the files of the run"
            )
    if unequal:
        more = len(unequal) - MAX_SHOWN
        yield "; ".join(unequal[:MAX_SHOWN]) + (f"; and {counted(more, 'more number')}" if more > 0 else "")


def _agree(stated: Any, computed: Any) -> bool:
    if isinstance(stated, float) and isinstance(computed, int | float):
        return math.isclose(stated, computed, rel_tol=ROUNDING)
    return bool(stated == computed)


def _shown(value: Any) -> str:
    return "not stated" if value is None else f"{value:,.6g}" if isinstance(value, float) else str(value)


# Load, limits and options of an entry --------------------------------------------------------------------------------


def _load(record: BenchRecord, entry: BenchRun, run: FinishedRun) -> Iterator[str]:
    """Compare the load and the limits of an entry with LoadGen's settings."""
    kind, concurrency = kind_of_run(run)
    if (entry.kind, entry.concurrency) != (kind, concurrency):
        yield f"kind {entry.kind} with concurrency {entry.concurrency}, but the run is {kind} with {concurrency}"
    if kind != "server":
        return
    detail = run.detail
    target = detail.number("effective_target_qps")
    if entry.asked_qps is None or not math.isclose(entry.asked_qps, target, rel_tol=1e-6):
        yield f"rate {entry.asked_qps} queries/s, but LoadGen's target was {target:g}"
    if record.percentile is None:
        return
    share = detail.number("effective_target_latency_percentile")
    if not math.isclose(100 * share, float(record.percentile.removeprefix("p")), rel_tol=1e-6):
        yield f"percentile {record.percentile}, but LoadGen's was p{100 * share:g}"
    for name in ("ttft", "tpot"):
        limit_ms = (getattr(record.limits, name) if record.limits else None) or NO_LIMIT_MS
        logged_ms = detail.integer(f"requested_server_{name}_latency") / 1e6
        if detail.uses_token_latencies and round(limit_ms) != logged_ms:
            yield f"{name.upper()} limit {limit_ms:g} ms, but LoadGen's was {logged_ms:g} ms"


def _first_load(runs: Sequence[BenchRun]) -> int | None:
    """Return the number of the run whose facts the bench records."""
    return next((run.number for run in runs if run.kind != "offline" and run.seal_sha256), None)


def _conditions(record: BenchRecord, run: FinishedRun, equal: Facts, system: Facts) -> Iterator[str]:
    """Compare the conditions of a bench with those of a run, in the facts that both have."""
    for stated, logged in ((record.conditions.equal, equal), (record.conditions.system, system)):
        both = {name: value for name, value in logged.items() if name in stated}
        for name, (before, after) in differences({name: stated[name] for name in both}, both).items():
            yield f"{name} is {value_text(before, 60)} in {BENCH_FILE}, and {value_text(after, 60)} in the run"
    count = len(run.manifest.observed.accelerators) if run.manifest else 0
    if count and record.accelerators not in (None, count):
        yield f"accelerators are {record.accelerators} in {BENCH_FILE}, and {count} in the run"


def _options(record: BenchRecord, run: FinishedRun, equal: Facts, system: Facts) -> Iterator[str]:
    """Yield the options of a run that bench.json does not state, and a label of another bench."""
    assert run.manifest is not None
    stated: dict[str, Fact] = record.conditions.equal | record.conditions.system
    for name, value in (equal | system).items():
        if name.startswith(_OPTIONS) and value is not None and name not in stated:
            yield f"{name} = {value_text(value, 60)} is missing in {BENCH_FILE}"
    label = run.manifest.asked.get("label")
    if label is not None and label != record.label:
        yield f"a run of bench {label}, not of {record.label}"


# The whole bench -----------------------------------------------------------------------------------------------------


def _repeated(folder: Path, record: BenchRecord) -> Iterator[str]:
    """Yield entries that are one run: each entry has its own directory, attestation, log and time."""
    identities: dict[str, list[Any]] = {"directory": [], "attestation": [], "start time": [], "log": []}
    for run in record.runs:
        detail = RunDir(folder / run.run_dir).detail
        digest = sha256_of(detail) if detail.is_file() else None
        identity = (run.run_dir, run.seal_sha256, run.start_time_ns, digest)
        for column, value in zip(identities.values(), identity, strict=True):
            column.append(value)
    numbers = [run.number for run in record.runs]
    seen: set[tuple[int, ...]] = set()
    for name, values in identities.items():
        for value, count in Counter(values).items():
            same = tuple(number for number, entry in zip(numbers, values, strict=True) if entry == value)
            if value and count > 1 and same not in seen:
                seen.add(same)
                yield f"runs {' and '.join(map(str, same))} have one {name}: they are one run"


def _unlisted(folder: Path, record: BenchRecord) -> Iterator[str]:
    """Yield complete runs in the directory of the bench without an entry. A bench in progress may have one."""
    listed = {Path(run.run_dir).name for run in record.runs}
    paths = [path for path in sorted((folder / RUNS).glob("*")) if path.name not in listed]
    complete = [path for path in paths if not path.name.startswith(numbered(WARM_UP)) and RunDir(path).seal.is_file()]
    following = numbered(max((run.number for run in record.runs), default=WARM_UP) + 1)
    for path in complete:
        if record.status == "complete" or not path.name.startswith(following):
            yield f"{path}: a complete run without an entry in {BENCH_FILE}"


def _rates(record: BenchRecord) -> Iterator[str]:
    """Compare the rates of Server runs with their shares of the Offline rate."""
    offline_qps = steady_rate(record.runs)
    for run in record.runs:
        if run.share is not None and offline_qps and run.asked_qps is not None:
            expected = rounded_rate(run.share * offline_qps)
            if not math.isclose(run.asked_qps, expected, rel_tol=1e-3):
                is_rate = f"{run.share:.4g} of the Offline rate is {expected:g} queries/s"
                yield f"run {run.number}: {is_rate}, not {run.asked_qps:g}"


def _whole(folder: Path, record: BenchRecord, entries: Sequence[BenchRun]) -> Iterator[str]:
    """Compare the best rate, the limits of the command, and points.csv with the entries."""
    best = best_rate(entries)
    has_verdicts = all(
        stated.verdict == computed.verdict for stated, computed in zip(record.runs, entries, strict=True)
    )
    if record.status == "complete" and has_verdicts and not _is_same_best(record.best, best):
        low, computed_low = (rate.low if rate else None for rate in (record.best, best))
        yield f"the best rate is {_shown(low)} queries/s in {BENCH_FILE}, and {_shown(computed_low)} by its runs"
    if (labels := _values_of(record.command, "--label")) and labels[0] != record.label:
        yield f"the label is {record.label}, and {labels[0]} in the recorded command"
    in_command = _limits_in(record.command)
    limits = record.limits.model_dump(exclude_none=True) if record.limits else {}
    if in_command is not None and in_command != limits:
        stated, typed = (
            ", ".join(f"{name} {ms:g} ms" for name, ms in part.items()) or "none" for part in (limits, in_command)
        )
        yield f"the limits are {stated}, and {typed} in the recorded command"
    points, expected = folder / POINTS, points_csv(record).splitlines()
    if points.is_file():
        lines = points.read_bytes().decode("utf-8", "replace").splitlines()
        if lines[:1] == expected[:1] and lines != expected:  # another version may write other columns
            yield f"{points} differs from {BENCH_FILE}"


def _values_of(command: Sequence[str], *options: str) -> list[str] | None:
    """Return the values of options on a command line; None if it has none of the options."""
    values: list[str] | None = None
    for place, word in enumerate(command):
        name, _, value = word.partition("=")
        if name in options:
            following = takewhile(lambda text: not text.startswith("--"), command[place + 1 :])
            values = [*(values or ()), *([value] if value else following)]
    return values


def _limits_in(command: Sequence[str]) -> dict[str, float] | None:
    """Return the limits in ms that a command line sets; None if it sets none."""
    limits: dict[str, float] | None = None
    if (texts := _values_of(command, "--limits", "--goodput")) is not None:
        limits = {name: float(ms) for name, ms in _LIMIT.findall(" ".join(texts))}
    for option, name in _SLA.items():
        if texts := _values_of(command, option):
            limits = (limits or {}) | {name: float(texts[0])}
    return limits


def _is_same_best(stated: Best | None, computed: Best | None) -> bool:
    if stated is None or computed is None:
        return stated is computed
    return all(_agree(getattr(stated, name), getattr(computed, name)) for name in ("low", "high", "run", "again"))
