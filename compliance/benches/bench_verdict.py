"""The verdict of `verify` on a bench: bench.json, compared with the run directories that it was made from.

Nobody signs bench.json, so it proves nothing alone. The verdict recomputes each entry from its run. A run above a limit
is INVALID for LoadGen, and an honest part of a bench. So of the rules on a run, only the contradictions apply.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from compliance.judge.record import record
from compliance.judge.rule import OURS, Need, RuleRow, check_of, decides, find_rule
from compliance.judge.text import TextLayout
from compliance.judge.verdict import Finding, Policy, Subject, Verdict, stated
from compliance.results.attestation_check import unchanged
from compliance.results.policy import CHECKS
from compliance.results.run_evidence import RunEvidence
from compliance.sources import Case, VerdictRequest
from runs.bench.bench_record import BenchRecord, BenchRun, read_bench_record
from runs.bench.recomputed import BenchAspect, RecomputedBench, has_numbers, recompute_bench
from runs.errors import HarnessError, SetupError
from runs.files.writing import sha256_of
from runs.harness import PROGRAM
from runs.record.finished_run import finished_run, log_hashes
from runs.record.layout import BENCH_FILE, RunDir
from runs.wording import counted, four_digits, shortened_list

_REPEAT = f"repeat the bench with `{PROGRAM} bench`"
_SUMMARIES: dict[BenchAspect, str] = {
    "attested": "files of a run, compared with the attestation that its entry names",
    "numbers": "numbers of an entry, compared with the files of its run",
    "load": "load and limits of an entry, compared with LoadGen's settings",
    "conditions": "conditions, options and label of the bench, compared with the manifests",
    "runs": "runs without an entry of their own, or entries without a run of their own",
    "summary": "best rate, limits and points of the bench, compared with its entries and its command",
}
_ROWS: tuple[RuleRow, ...] = tuple(
    (f"bench-{aspect}", "error", OURS, _SUMMARIES[aspect], _REPEAT) for aspect in get_args(BenchAspect)
)


@dataclass(eq=False)
class BenchRunEvidence(RunEvidence):
    """A run of a bench."""

    number: int = 0  # number of its entry

    @property
    def name(self) -> str:
        return f"run {self.number}"


@dataclass(eq=False)
class BenchEvidence(Subject):
    """The directory of a bench.

    Attributes:
        record: bench.json; None if it is damaged.
        damage: Error of bench.json or of the first unreadable run.
    """

    folder: Path
    record: BenchRecord | None = None
    runs: dict[Path, BenchRunEvidence] = field(default_factory=dict)
    damage: HarnessError | None = None

    kind = "bench"

    @classmethod
    def of(cls, folder: Path) -> "BenchEvidence":
        """Read bench.json, and find the runs of its entries."""
        bench = cls(folder)
        try:
            bench.record = read_bench_record(folder / BENCH_FILE)
        except HarnessError as error:
            bench.damage = error
            return bench
        for entry in filter(has_numbers, bench.record.runs):
            directory = RunDir(folder / entry.run_dir)
            if entry.run_dir and directory.root.is_dir():
                try:
                    run = BenchRunEvidence.of(finished_run(directory))
                except HarnessError as error:
                    bench.damage = bench.damage or error
                else:
                    run.number = entry.number
                    bench.runs[directory.root] = run
        return bench

    @property
    def parts(self) -> Sequence[BenchRunEvidence]:
        return list(self.runs.values())

    @property
    def error(self) -> HarnessError | None:
        if self.damage is not None or not self.recomputed.unverified:
            return self.damage
        return SetupError(self.recomputed.unverified, "verify the bench together with its run directories")

    def absent(self, need: Need) -> str:
        if need != "files":
            return super().absent(need)
        return f"{BENCH_FILE} is damaged" if self.record is None else ""

    @cached_property
    def recomputed(self) -> RecomputedBench:
        """The bench with the numbers of its runs."""
        assert self.record is not None  # see `needs`
        return recompute_bench(self.folder, self.record, self._run)

    def _run(self, directory: RunDir) -> RunEvidence:
        return self.runs.get(directory.root) or RunEvidence.of(finished_run(directory))


@decides("contradiction", *_ROWS, needs=("files",))
def _contradictions(bench: BenchEvidence) -> Iterator[Finding]:
    """Compare bench.json with the run directories."""
    for contradiction in bench.recomputed.contradictions:
        yield stated(f"bench-{contradiction.aspect}", str(contradiction), contradiction.path)


@dataclass
class BenchDetails:
    """What `verify` states of a bench besides the findings."""

    directory: str
    label: str = ""
    status: str = ""
    runs: list[BenchRun] = field(default_factory=list)  # with the recomputed numbers
    stated: list[str] = field(default_factory=list)  # parts of bench.json that no run records

    def as_json(self, verdict: "BenchVerdict", common: dict[str, Any]) -> dict[str, Any]:
        return common | {
            "schema_version": 2,
            "bench": self.label,
            "status": self.status,
            "reasons": verdict.reasons,
            "not_official": verdict.unofficial,
            "held_to_official_rules": [],
            "directories": [self.directory],
            "parts": [record(part) for part in verdict.parts],
            "runs": [run.model_dump(mode="json") for run in self.runs],
            "not_recorded": self.stated,
        }

    def hashes(self) -> dict[str, Any]:
        """Return the SHA-256 of bench.json and of the logs of its runs, by directory."""
        folder = Path(self.directory)
        directories = [folder / run.run_dir for run in self.runs if run.run_dir]
        hashes = {str(path): log_hashes(RunDir(path)) for path in directories if path.is_dir()}
        return {"log_sha256": {self.directory: {BENCH_FILE: sha256_of(folder / BENCH_FILE)}} | hashes}


BenchVerdict = Verdict[BenchDetails]


def _details(bench: BenchEvidence, _: BenchVerdict) -> BenchDetails:
    if bench.record is None:
        return BenchDetails(str(bench.folder))
    stated, recomputed = bench.record, bench.recomputed
    return BenchDetails(str(bench.folder), stated.label, stated.status, recomputed.record.runs, recomputed.stated)


_CHECKS = (check_of(_contradictions),)
# The rule bench-attested compares each run with its attestation.
_OF_RUNS = tuple(
    check
    for check in CHECKS["performance"]
    if check.decide is not unchanged and all(find_rule(rule).kind == "contradiction" for rule in check.rules)
)
VERIFY_BENCH = Policy(
    checks={"bench": _CHECKS, "performance": _OF_RUNS},
    on_error={"bench": _CHECKS},
    keeps_damaged_parts=True,
    details={"bench": _details},
    contradictions_end=True,
)


# Text -----------------------------------------------------------------------------------------------------------------


def _head(verdict: BenchVerdict) -> Iterator[str]:
    details, reasons = verdict.details, " ".join(shortened_list(verdict.reasons, 3).split())
    if verdict.outcome == "PASS":
        yield f"PASS: {counted(len(details.runs), 'run')} of bench {details.label} recomputed from the run directories"
    else:
        is_unverified = isinstance(verdict.error, SetupError) and not verdict.contradictions
        yield f"{'NO VERDICT' if is_unverified else 'FAIL'}: {reasons}"
    yield f"bench: {details.directory}, {details.status or BENCH_FILE + ' is damaged'}"
    for run in details.runs:
        load = run.kind if run.asked_qps is None else f"{run.kind} at {run.asked_qps:g} queries/s"
        load = f"{run.kind} {run.concurrency}" if run.concurrency is not None else load
        rate = "" if run.done_qps is None else f", {four_digits(run.done_qps)} queries/s completed"
        yield f"  run {run.number}, {load}: {run.verdict}{rate}"
    if details.stated:
        yield f"stated in {BENCH_FILE}, recorded by no run: {', '.join(details.stated)}"


def _title(verdict: BenchVerdict) -> tuple[str, ...]:
    return ("",) if verdict.all_findings else ()


BENCH = TextLayout(
    _head,
    title=_title,
    shown=lambda verdict: verdict.of("error", "warning", "note"),
)


def bench_cases(paths: Sequence[Path], _: VerdictRequest) -> list[Case]:
    """Return the benches, for `verify`."""
    return [Case(BenchEvidence.of(path), VERIFY_BENCH, BENCH, home=path, is_own=True) for path in paths]
