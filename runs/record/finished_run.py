"""One finished run: its files, each parsed once and on demand, and its scenario, benchmark and round.

Rules take a `FinishedRun`, so a command that applies multiple rules reads each file once.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from runs.benchmark import LOADGEN_SCENARIO, Benchmark, Scenario
from runs.benchmarks import BENCHMARKS, default_benchmark
from runs.errors import ExecutionError, InputError
from runs.files.writing import sha256_of
from runs.loadgen.accuracy_log import AccuracyEntry, read_accuracy_log
from runs.loadgen.detail_log import DetailLog, read_detail
from runs.loadgen.summary_log import SummaryLog, read_summary
from runs.loadgen.trace_log import Trace, read_trace
from runs.record.engines.engine_log import EngineLog, read_engine_log
from runs.record.layout import LOADGEN_LOGS, RunDir
from runs.record.liveness import unfinished
from runs.record.manifest import Manifest, read_manifest
from runs.record.requests_log import RequestTable, read_request_table
from runs.record.unattested import NotAttestedError

PERFORMANCE, ACCURACY = "PerformanceOnly", "AccuracyOnly"


@dataclass(eq=False)
class FinishedRun:
    """A run's directory.

    Every property reads its file on first use; an InputError means that it is damaged. `requests`, `trace` and
    `manifest` are None if they do not exist.
    """

    dir: RunDir
    scenario_override: Scenario | None = None  # overrides the scenario of the manifest or the log
    benchmark_override: Benchmark | None = None  # overrides the benchmark of the manifest or the log
    foreign: bool = False  # True if only the files of LoadGen are read
    directory_mode: str | None = None  # mode in the name of its directory in a submission

    @classmethod
    def of(cls, run: "FinishedRun", **fields: Any) -> Self:
        """Create a run of this class from another run, with the files that were parsed already.

        Args:
            fields: Values of the fields that this class adds.
        """
        copied = cls(run.dir, **fields)
        vars(copied).update({name: value for name, value in vars(run).items() if hasattr(FinishedRun, name)})
        return copied

    @cached_property
    def detail(self) -> DetailLog:
        return read_detail(self.dir.detail)

    @cached_property
    def summary(self) -> SummaryLog:
        return read_summary(self.dir.summary)

    @cached_property
    def entries(self) -> list[AccuracyEntry]:
        """The responses in the accuracy log, in the order of the log."""
        return read_accuracy_log(self.dir.accuracy_log, self.benchmark.accuracy_log_bytes)

    @cached_property
    def trace(self) -> Trace | None:
        """LoadGen's trace; None if the file is missing, or empty because the trace was off."""
        trace = read_trace(self.dir.trace) if _exists(self.dir.trace) else None
        return trace if trace is not None and len(trace) else None

    @cached_property
    def requests(self) -> RequestTable | None:
        """The request log."""
        return read_request_table(self.dir.requests) if _exists(self.dir.requests) else None

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest of this harness."""
        return read_manifest(self.dir.manifest) if _exists(self.dir.manifest) and not self.foreign else None

    @cached_property
    def engine_log(self) -> EngineLog:
        return read_engine_log(self.dir.engine_log) if self.dir.engine_log.is_file() else EngineLog()

    @cached_property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of LoadGen's logs and of requests.jsonl, by file name."""
        return log_hashes(self.dir)

    @property
    def mode(self) -> str:
        """LoadGen's mode; a run that can be verified has PERFORMANCE or ACCURACY."""
        return self.detail.mode

    @property
    def claimed_mode(self) -> str:
        """The mode that its directory claims, or else the mode of its log."""
        return self.directory_mode or self.mode

    @property
    def is_performance(self) -> bool:
        return self.mode == PERFORMANCE

    @property
    def claims_official(self) -> bool:
        """False only if the manifest marks the run as not eligible for submission."""
        return self.manifest is None or self.manifest.official

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario; Interactive if LoadGen ran Server with stricter limits."""
        return _scenario(self.detail, self.manifest, self.scenario_override)

    @cached_property
    def benchmark(self) -> Benchmark:
        return self.benchmark_override or _benchmark(self.detail, self.manifest, self.scenario)


def _exists(path: Path) -> bool:
    """Return whether a path exists; a broken link counts, because its reader reports it."""
    return path.exists() or path.is_symlink()


def finished_run(run_dir: RunDir, scenario_override: Scenario | None = None) -> FinishedRun:
    """Return the run in a directory, if it can be verified: see `require_finished`."""
    run = FinishedRun(run_dir, scenario_override)
    require_finished(run)
    return run


def require_finished(run: FinishedRun) -> None:
    """Check that a run can be verified.

    Raises:
        ExecutionError, InputError: If `require_complete` raises it.
        NotAttestedError: If the run is of this harness, and has no attestation.
    """
    require_complete(run)
    if run.manifest is not None and not run.dir.seal.exists():
        raise NotAttestedError(run.dir)


def require_complete(run: FinishedRun) -> None:
    """Check that a run has the logs of a finished run, with or without an attestation.

    Raises:
        ExecutionError: If the run did not finish, or a log of LoadGen is missing.
        InputError: If its manifest or detail log is damaged, or of an unsupported mode or scenario.
    """
    if run.manifest is not None and run.manifest.status != "finished":
        raise ExecutionError(f"{run.dir.root}: {unfinished(run.manifest)}", "rerun")
    for path in (run.dir.detail, run.dir.summary):
        if not path.is_file():
            text = f"{path} is missing: LoadGen did not finish, or the copy is incomplete"
            raise ExecutionError(text, path=path, missing=True)
    if run.mode not in (PERFORMANCE, ACCURACY):
        raise InputError(f"{run.dir.detail}: the mode was {run.mode[:40]!r}", f"use a {PERFORMANCE} or {ACCURACY} run")
    _ = run.scenario, run.benchmark


def log_hashes(run: RunDir) -> dict[str, str]:
    """SHA-256 of LoadGen's logs and of requests.jsonl, by file name."""
    names = (*LOADGEN_LOGS, run.requests.name)
    return {name: sha256_of(run.root / name) for name in names if (run.root / name).is_file()}


def _scenario(detail: DetailLog, manifest: Manifest | None, scenario_override: Scenario | None) -> Scenario:
    scenario_of: dict[str, Scenario] = {"Offline": "Offline", "Server": "Server", "SingleStream": "SingleStream"}
    if detail.scenario not in scenario_of:
        raise InputError(
            f"{detail.path}: the scenario was {detail.scenario[:40]!r}",
            f"this benchmark has {', '.join(scenario_of)} (and Interactive, which LoadGen calls Server)",
        )
    if scenario_override is not None and LOADGEN_SCENARIO[scenario_override] == detail.scenario:
        return scenario_override
    if manifest is not None and manifest.plan.loadgen_scenario == detail.scenario:
        return manifest.plan.scenario
    if detail.scenario == "Server":
        tight = [benchmark for benchmark in BENCHMARKS.values() if "Interactive" in benchmark.scenarios]
        if any(_has_limits_of(detail, benchmark) for benchmark in tight):
            return "Interactive"
    return scenario_of[detail.scenario]


def _benchmark(detail: DetailLog, manifest: Manifest | None, scenario: Scenario) -> Benchmark:
    if manifest is not None and manifest.plan.loadgen_key in BENCHMARKS:
        key = manifest.plan.loadgen_key
        if (scenario == "Interactive") == ("Interactive" in BENCHMARKS[key].scenarios):
            return BENCHMARKS[key]
    # LoadGen's logs do not name the benchmark: the size of the dataset or the limits decide.
    candidates = [
        candidate
        for candidate in BENCHMARKS.values()
        if (scenario == "Interactive") == ("Interactive" in candidate.scenarios)
    ]
    for size in ("qsl_reported_total_count", "effective_performance_sample_count"):
        for benchmark in candidates:
            if detail.get(size) in (benchmark.performance_samples, benchmark.accuracy_samples):
                return benchmark
    if detail.scenario == "Server":
        for benchmark in candidates:
            if _has_limits_of(detail, benchmark):
                return benchmark
    return default_benchmark(scenario)


def _has_limits_of(detail: DetailLog, benchmark: Benchmark) -> bool:
    limits = benchmark.limits
    in_force = [detail.get(f"requested_server_{name}_latency") for name in ("ttft", "tpot")]
    return limits is not None and in_force == [limits.ttft_ms * 1_000_000, limits.tpot_ms * 1_000_000]
