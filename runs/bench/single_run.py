"""A single run in the form of a bench with one run, for comparisons."""

from pathlib import Path

from runs.bench.bench_record import MET, BenchRecord, Best, Conditions, Limits, LoadKind
from runs.bench.measure import measure_run, supported_percentile
from runs.errors import InputError
from runs.numbers.derive_result import derive_result
from runs.numbers.result import EffectiveSettings
from runs.record.fingerprint import conditions_of, run_fingerprint
from runs.record.finished_run import FinishedRun, finished_run
from runs.record.layout import RunDir
from runs.wording import NO_LIMIT_MS


def bench_of_run(run_dir: Path, label: str | None = None) -> BenchRecord:
    """Return a finished performance run as a bench.

    Args:
        run_dir: directory of the run.
        label: name for the comparison; default: name of the directory.

    Raises:
        HarnessError: If the run is not finished, is an accuracy run, or a file is missing or damaged.
    """
    run = finished_run(RunDir(run_dir))
    if not run.is_performance or run.manifest is None:
        problem = "has no manifest.json" if run.manifest is None else "is an accuracy run"
        raise InputError(f"{run_dir} {problem}", "give the directory of a performance run of this harness")
    manifest, plan = run.manifest, run.manifest.plan
    settings = derive_result(run).in_force
    percentile = supported_percentile(0 if run.requests is None else len(run.requests))
    kind, concurrency = kind_of_run(run)
    limits = _limits(settings)
    sampling = plan.sampling
    exact = sampling.max_tokens if sampling.min_tokens == sampling.max_tokens else None
    measured = measure_run(
        run_dir,
        run=run,
        number=1,
        kind=kind,
        limits=limits,
        percentile=percentile,
        output_tokens=exact,
        folder=run_dir,
        asked_qps=settings.target_qps if kind == "server" else None,
        concurrency=concurrency,
    )
    equal, system = conditions_of(run_fingerprint(run))
    best = None
    if measured.verdict in MET and kind == "server":
        best = Best(low=measured.asked_qps, high=None, tokens_per_s=measured.output_tokens_per_s, run=1)
    return BenchRecord(
        status="complete",
        label=label or run_dir.resolve().name,
        command=[],
        target=manifest.model.name,
        conditions=Conditions(equal=equal, system=system),
        limits=limits,
        percentile=percentile,
        percentile_reason=f"the run has {measured.queries:,} queries",
        accelerators=len(manifest.observed.accelerators),
        runs=[measured],
        best=best,
    )


def kind_of_run(run: FinishedRun) -> tuple[LoadKind, int | None]:
    """Return the kind of a run, and its bound on open queries."""
    bound = None if run.manifest is None else run.manifest.plan.concurrency
    if run.detail.scenario == "Server":
        return "server", None
    if run.detail.scenario == "SingleStream":
        return "concurrency", 1
    return ("concurrency", bound) if bound else ("offline", None)


def _limits(settings: EffectiveSettings) -> Limits | None:
    limits = (settings.ttft_limit_ns, settings.tpot_limit_ns)
    ttft, tpot = (ns / 1e6 if ns and ns < NO_LIMIT_MS * 1_000_000 else None for ns in limits)
    return Limits(ttft=ttft, tpot=tpot) if ttft or tpot else None
