"""Numbers of a bench's run, from the files of recorded runs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runs.bench import measure
from runs.bench.bench_record import NEEDED, BenchRun, Limits
from runs.bench.measure import failed_run, measure_run, supported_percentile
from runs.files.writing import sha256_of
from runs.numbers.derive_result import derive_result
from runs.record.finished_run import FinishedRun, finished_run
from runs.record.layout import RunDir
from runs.record.requests_log import RequestTable, read_request_table
from tests.support.runs.dummy_runs import DummyRuns

DUMMY_RUNS = DummyRuns()
EASY = Limits(ttft=2000, tpot=100)


def measure_folder(folder: Path, **changes: object) -> BenchRun:
    arguments: dict[str, object] = {
        "number": 3, "kind": "server", "limits": EASY, "percentile": "p95", "output_tokens": None,
        "folder": folder.parent,
    }  # fmt: skip
    return measure_run(folder, **arguments | changes)  # type: ignore[arg-type]


def test_a_server_run_has_the_numbers_of_its_result() -> None:
    folder = DUMMY_RUNS("Server")
    run, result = measure_folder(folder, asked_qps=400.0, share=0.5), derive_result(finished_run(RunDir(folder)))
    assert result.derived is not None
    assert (run.number, run.kind, run.scenario, run.asked_qps, run.share) == (3, "server", "Server", 400.0, 0.5)
    assert (run.run_dir, run.seal_sha256) == (folder.name, sha256_of(RunDir(folder).seal))
    assert (run.verdict, run.reasons, run.loadgen_verdict) == ("within", [], "VALID")
    for name in ("ttft", "tpot", "latency"):
        measured_ms, derived_ns = getattr(run, name), getattr(result.derived, f"{name}_ns")
        assert (measured_ms.p50, measured_ms.p99, measured_ms.max) == (
            derived_ns.p50 / 1e6,
            derived_ns.p99 / 1e6,
            derived_ns.max / 1e6,
        )
        assert measured_ms.p95 < measured_ms.bound < measured_ms.p99
    assert result.load is not None
    assert run.offered_qps == pytest.approx(result.load.offered_per_second)
    assert run.drain_s == pytest.approx(result.load.drain_s)
    assert run.within_limits == 1.0
    assert run.done_qps == pytest.approx(400, rel=0.1)
    assert run.open is not None
    assert run.open.mean == pytest.approx(run.done_qps * run.latency.mean / 1e3, rel=0.1)  # type: ignore[operator, union-attr]
    assert run.output_tokens_per_s == pytest.approx(run.done_qps * result.output_tokens_mean, rel=0.05)  # type: ignore[operator]
    assert (run.cached_share, run.errors, run.short_responses) == (0.0, 0, 0)


def test_an_offline_run_is_the_maximum_and_has_no_ttft() -> None:
    folder = DUMMY_RUNS("Offline")
    run = measure_folder(folder, kind="offline")
    assert (run.verdict, run.scenario, run.queries, run.offered_qps) == ("maximum", "Offline", 64, None)
    assert (run.ttft, run.tpot, run.open, run.within_limits) == (None, None, None, None)
    # All queries arrive at once, so there is no steady part
    assert run.done_qps == pytest.approx(run.loadgen_qps, rel=0.01)


def test_limits_are_applied_at_the_percentile_of_early_stopping() -> None:
    folder = DUMMY_RUNS("Server")
    ttft = measure_folder(folder).ttft
    assert ttft is not None
    within, outside = (measure_folder(folder, limits=Limits(ttft=limit)) for limit in (ttft.bound, ttft.p95))
    assert (within.verdict, outside.verdict) == ("within", "outside")
    assert outside.reasons[0].startswith("p95 TTFT 2")
    assert within.within_limits == pytest.approx(0.96, abs=0.02)
    assert measure_folder(folder, limits=None).verdict == "measured"


def test_a_limit_on_the_request_latency_is_applied() -> None:
    folder = DUMMY_RUNS("Server")
    latency = measure_folder(folder).latency
    assert latency is not None
    within, outside = (measure_folder(folder, limits=Limits(e2el=limit)) for limit in (latency.bound, latency.p95))
    assert (within.verdict, outside.verdict) == ("within", "outside")
    assert within.within_limits == pytest.approx(0.96, abs=0.02)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"percentile": None}, "another run has too few queries"),
        ({"percentile": "p99", "queries": 400}, "400 queries, 662 are needed for p99"),
        ({"percentile": None, "queries": 8}, "8 queries, 64 are needed for p90"),
        ({"limits": Limits(tpot=100), "tokens": 1}, "the responses have no TPOT"),
        ({"limits": Limits(ttft=2000, tpot=100), "tokens": 1}, "the responses have no TPOT"),
    ],
)
def test_a_limit_that_cannot_be_checked_is_not_met(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], reason: str
) -> None:
    queries, tokens = changes.pop("queries", 640), changes.pop("tokens", None)
    complete = measure.bench_queries

    def first_queries(run: FinishedRun, log: RequestTable) -> measure.BenchQueries:
        table = complete(run, log)
        parts = {name: value[:queries] for name, value in vars(table).items() if isinstance(value, np.ndarray)}
        if tokens is not None:
            parts["output_tokens"] = np.full(queries, tokens)
        if queries < 100:  # the latencies are short compared with the gaps between arrivals
            parts["arrived_ns"] = np.arange(queries) * 10**9
        return replace(table, **parts)

    monkeypatch.setattr(measure, "bench_queries", first_queries)
    run = measure_folder(DUMMY_RUNS("Server"), **changes)
    assert run.verdict == "unchecked"
    assert run.reasons[0].startswith(f"limits not checked: {reason}")
    # An exceeded limit decides, although another limit cannot be checked.
    if tokens is not None:
        assert measure_folder(DUMMY_RUNS("Server"), limits=Limits(ttft=0.001, tpot=100)).verdict == "outside"


def test_a_late_client_makes_a_run_unclear(tmp_path: Path) -> None:
    """p99 TTFT is 21 ms, so a delay of the event loop of at least 1 ms is above 5% of it."""
    folder = DUMMY_RUNS.copy(tmp_path / "run", "Server").root
    ttft = measure_folder(folder).ttft
    assert ttft is not None

    def judged(lag_ms: float, **changes: object) -> BenchRun:
        manifest = json.loads(RunDir(folder).manifest.read_text())
        manifest["observed"]["loop_lag"]["p99_ms"] = lag_ms
        RunDir(folder).manifest.write_text(json.dumps(manifest))
        return measure_folder(folder, **changes)

    assert judged(1.1).verdict == "within"
    assert judged(3.0).verdict == judged(3.0, limits=None).verdict == "unclear"
    assert judged(3.0).reasons[0].startswith("client: event loop p99 2 ms of p99 TTFT")
    # A delay that does not explain the violation changes nothing.
    assert judged(3.0, limits=Limits(ttft=ttft.p50 - 5)).verdict == "outside"
    assert judged(30.0, limits=Limits(ttft=ttft.p50 - 5)).verdict == "unclear"


def test_short_responses_are_counted() -> None:
    folder = DUMMY_RUNS("Server")
    tokens = read_request_table(RunDir(folder).requests).output_tokens
    run = measure_folder(folder, output_tokens=100)
    assert run.short_responses == int(np.count_nonzero(tokens < 100)) > 0
    assert run.reasons == [f"tokens: {run.short_responses} of 640 responses are shorter than requested"]


def test_numbers_that_contradict_loadgen_fail_the_run(tmp_path: Path) -> None:
    run_dir = DUMMY_RUNS.copy(tmp_path / "run", "Server")
    text = run_dir.requests.read_text().replace('"output_tokens":', '"output_tokens":1', 1)
    run_dir.requests.write_text(text)
    run = measure_folder(run_dir.root)
    assert (run.verdict, run.ttft, run.done_qps, run.queries) == ("failed", None, None, 640)
    assert run.reasons[0].startswith("refused: ")
    assert "output tokens" in " ".join(run.reasons)


def test_a_run_without_logs_has_failed(tmp_path: Path) -> None:
    run = measure_folder(tmp_path / "no-run", kind="offline", repetition=2)
    assert (run.verdict, run.scenario, run.repetition, run.queries) == ("failed", "Offline", 2, 0)
    assert "mlperf_log_detail.txt is missing" in run.reasons[0]
    assert failed_run(tmp_path, "killed", number=1, kind="server", folder=tmp_path).reasons == ["killed"]


def test_the_percentile_follows_from_the_number_of_queries() -> None:
    assert [supported_percentile(count) for count in (63, 64, 129, 130, 661, 662)] == [
        *(None, "p90", "p90", "p95", "p95", "p99"),
    ]  # fmt: skip
    assert {supported_percentile(needed): needed for needed in NEEDED.values()} == NEEDED
