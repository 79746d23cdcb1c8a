"""The comparison of bench.json with the run directories that it was made from.

Nobody signs bench.json. Each of its numbers is therefore computed again from the files of the run, whose attestation
the entry names.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from runs.attestation.attestation import broken_files, read_attestation
from runs.bench.agreement import agree, shown
from runs.bench.bench_record import BenchRecord, BenchRun
from runs.bench.measure import measure_run
from runs.bench.recorded_conditions import (
    compare_conditions,
    compare_load,
    compare_options,
    first_load,
    stated_alone,
)
from runs.bench.whole_bench import compare_rates, compare_summary, repeated_runs, unlisted_runs
from runs.errors import HarnessError
from runs.harness import harness_facts
from runs.record.fingerprint import conditions_of, flat_facts, run_fingerprint
from runs.record.finished_run import FinishedRun, finished_run
from runs.record.layout import BENCH_FILE, RunDir
from runs.wording import counted

MAX_SHOWN = 3  # differences of one entry in a message
# Fields that earlier versions do not write.
_LATER = frozenset({"std", "rank_p99", "itl", "tokens_per_part", "estimated"})
# Fields that the bench decides. `reasons` is text, which differs between versions.
_OF_THE_BENCH = frozenset({"number", "repetition", "again", "share", "reasons", "run_dir"})


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
    recorded: set[str] = field(default_factory=set)  # names of the conditions that a run records

    @property
    def unverified(self) -> str:
        """Why the numbers are not verified; empty if they are."""
        if not self.missing:
            return ""
        without = f"{counted(len(self.missing), 'run')} without a run directory ({self.missing[0]})"
        return f"{self.record.label}: not verified: {without}"

    @property
    def stated(self) -> list[str]:
        """The parts of bench.json that no run records."""
        return stated_alone(self.record, self.recorded)


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
        ("runs", repeated_runs(folder, record)),
        ("runs", unlisted_runs(folder, record)),
        ("summary", compare_rates(bench.record)),
        ("summary", compare_summary(folder, record, entries)),
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
        is_described = entry.number == first_load(record.runs)
        contradictions = [
            *contradicted("attested", _attestation(directory, entry)),
            *contradicted("numbers", _numbers(entry, measured, is_of_this_version=_is_of_this_version(run))),
            *contradicted("load", compare_load(record, entry, run)),
            *contradicted("conditions", compare_conditions(record, run, *conditions, is_described=is_described)),
            *contradicted("conditions", compare_options(record, run, *conditions)),
        ]
    except HarnessError as error:
        bench.contradictions += contradicted("numbers", [error.message])
        return entry
    bench.contradictions += contradictions
    bench.recorded |= set[str]().union(*conditions) if is_described else set()
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
        if not agree(stated.get(name), computed.get(name)):
            unequal.append(
                f"{name} is {shown(stated.get(name))}, and {shown(computed.get(name))} by the files of the run"
            )
    if unequal:
        more = len(unequal) - MAX_SHOWN
        yield "; ".join(unequal[:MAX_SHOWN]) + (f"; and {counted(more, 'more number')}" if more > 0 else "")
