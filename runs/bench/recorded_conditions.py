"""The load, the limits and the conditions in bench.json, compared with the runs of the bench."""

import math
from collections.abc import Collection, Iterator, Sequence

from runs.bench.bench_record import BenchRecord, BenchRun, Fact
from runs.bench.single_run import kind_of_run
from runs.record.fingerprint import ALL, RESUMED, Facts, Scope, differences, value_text
from runs.record.finished_run import FinishedRun
from runs.record.layout import BENCH_FILE
from runs.wording import NO_LIMIT_MS

# Facts that a command line sets, so that each of them must be in bench.json.
_OPTIONS = ("engine_options.", "sampling.")
# Of the conditions, the facts that all runs of a bench have. The limits and the percentile are settings of Server.
_SAMPLING = Scope(("sampling.",))
# Parts of bench.json that no run records.
_STATED = ("command", "metadata", "percentile_reason", "arrivals", "rows_used", "warnings", "error")


def compare_load(record: BenchRecord, entry: BenchRun, run: FinishedRun) -> Iterator[str]:
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


def first_load(runs: Sequence[BenchRun]) -> int | None:
    """Return the number of the run whose facts the bench records."""
    return next((run.number for run in runs if run.kind != "offline" and run.seal_sha256), None)


def compare_conditions(
    record: BenchRecord, run: FinishedRun, equal: Facts, system: Facts, *, is_described: bool
) -> Iterator[str]:
    """Compare the conditions of a bench with those of a run, in the facts that both have.

    Args:
        is_described: True for the run whose facts the bench records. Only the system of the other runs is equal.
    """
    scopes = (ALL, ALL) if is_described else (_SAMPLING, RESUMED)
    conditions = (record.conditions.equal, equal), (record.conditions.system, system)
    for (stated, logged), scope in zip(conditions, scopes, strict=True):
        both = {name: value for name, value in logged.items() if name in stated}
        for name, (before, after) in differences({name: stated[name] for name in both}, both, scope).items():
            yield f"{name} is {value_text(before, 60)} in {BENCH_FILE}, and {value_text(after, 60)} in the run"
    yield from _compare_system(record, run)


def _compare_system(record: BenchRecord, run: FinishedRun) -> Iterator[str]:
    """Compare the measured system in bench.json with the requested options and the accelerators of a run."""
    assert run.manifest is not None
    requested = run.manifest.asked
    pairs: tuple[tuple[str, object, object], ...] = (
        ("target", record.target, requested.get("api_server", record.target)),
        ("model", record.model, requested.get("api_model_name")),
        ("tokenizer", record.tokenizer, requested.get("model_path")),
        ("accelerators", record.accelerators, len(run.manifest.observed.accelerators)),
    )
    for name, stated, recorded in pairs:
        if stated is not None and stated != recorded:
            yield f"{name} is {stated} in {BENCH_FILE}, and {value_text(recorded, 60)} in the run"


def stated_alone(record: BenchRecord, recorded: Collection[str]) -> list[str]:
    """Return the parts of bench.json, and the conditions, that no run records. Nothing shows whether they are true.

    Args:
        recorded: Names of the conditions that a run records.
    """
    parts = [name for name in _STATED if getattr(record, name)]
    parts += ["limits.e2el"] if record.limits is not None and record.limits.e2el is not None else []
    return parts + [name for name in record.conditions.equal | record.conditions.system if name not in recorded]


def compare_options(record: BenchRecord, run: FinishedRun, equal: Facts, system: Facts) -> Iterator[str]:
    """Yield the options of a run that bench.json does not state, and a label of another bench."""
    assert run.manifest is not None
    stated: dict[str, Fact] = record.conditions.equal | record.conditions.system
    for name, value in (equal | system).items():
        if name.startswith(_OPTIONS) and value is not None and name not in stated:
            yield f"{name} = {value_text(value, 60)} is missing in {BENCH_FILE}"
    label = run.manifest.asked.get("label")
    if label is not None and label != record.label:
        yield f"a run of bench {label}, not of {record.label}"
