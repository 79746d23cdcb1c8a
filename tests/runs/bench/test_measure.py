"""The numbers of a bench's run from the files of recorded runs."""

from pathlib import Path

import numpy as np
import pytest

from runs.bench.bench_record import BenchRun, Limits
from runs.bench.measure import failed_run, measure_run, supported_percentile
from runs.files.writing import sha256_of
from runs.numbers.derive_result import result_of
from runs.record.finished_run import finished_run
from runs.record.layout import RunDir
from runs.record.requests_log import read_requests
from scenarios.bench.ladder import NEEDED
from tests.support.dummy_runs import DummyRuns

DUMMY_RUNS = DummyRuns()
EASY = Limits(ttft=2000, tpot=100)


def measured(folder: Path, **changes: object) -> BenchRun:
    asked: dict[str, object] = {
        "number": 3, "kind": "server", "limits": EASY, "percentile": "p95", "output_tokens": None,
        "folder": folder.parent,
    }  # fmt: skip
    return measure_run(folder, **asked | changes)  # type: ignore[arg-type]


def test_a_server_run_has_the_numbers_of_its_result() -> None:
    folder = DUMMY_RUNS("Server")
    run, result = measured(folder, asked_qps=400.0, share=0.5), result_of(finished_run(RunDir(folder)))
    assert result.derived is not None
    assert (run.number, run.kind, run.scenario, run.asked_qps, run.share) == (3, "server", "Server", 400.0, 0.5)
    assert (run.run_dir, run.seal_sha256) == (folder.name, sha256_of(RunDir(folder).seal))
    assert (run.verdict, run.reasons, run.loadgen_verdict) == ("within", [], "VALID")
    for name in ("ttft", "tpot", "latency"):
        ours, theirs = getattr(run, name), getattr(result.derived, f"{name}_ns")
        assert (ours.p50, ours.p99, ours.max) == (theirs.p50 / 1e6, theirs.p99 / 1e6, theirs.max / 1e6)
        assert ours.p95 < ours.bound < ours.p99
    assert result.load is not None
    assert run.offered_qps == pytest.approx(result.load.offered_per_second)
    assert run.drain_s == pytest.approx(result.load.drain_s)
    assert run.within_limits == 1.0
    assert run.done_qps == pytest.approx(400, rel=0.1)
    assert run.open is not None
    assert run.open.mean == pytest.approx(run.done_qps * run.latency.mean / 1e3, rel=0.1)  # type: ignore[operator, union-attr]
    assert run.output_tokens_per_s == pytest.approx(run.done_qps * result.output_tokens_mean, rel=0.05)  # type: ignore[operator]
    assert (run.cached_share, run.errors, run.short_responses) == (0.0, 0, 0)


def test_an_offline_run_is_the_maximum_and_has_no_first_tokens() -> None:
    folder = DUMMY_RUNS("Offline")
    run = measured(folder, kind="offline")
    assert (run.verdict, run.scenario, run.queries, run.offered_qps) == ("maximum", "Offline", 64, None)
    assert (run.ttft, run.tpot, run.open, run.within_limits) == (None, None, None, None)
    assert run.done_qps == pytest.approx(run.loadgen_qps, rel=0.01)  # all queries at once, so there is no steady part


def test_limits_are_judged_at_the_percentile_with_early_stopping() -> None:
    folder = DUMMY_RUNS("Server")
    ttft = measured(folder).ttft
    assert ttft is not None
    within, outside = (measured(folder, limits=Limits(ttft=limit)) for limit in (ttft.bound, ttft.p95))
    assert (within.verdict, outside.verdict) == ("within", "outside")
    assert outside.reasons[0].startswith("p95 TTFT 21 ms, limit ")
    assert within.within_limits == pytest.approx(0.96, abs=0.02)
    few = measured(folder, percentile=None)
    assert (few.verdict, few.reasons) == ("measured", [])
    assert measured(folder, limits=None).verdict == "measured"


def test_short_responses_are_counted() -> None:
    folder = DUMMY_RUNS("Server")
    tokens = read_requests(RunDir(folder).requests).output_tokens
    run = measured(folder, output_tokens=100)
    assert run.short_responses == int(np.count_nonzero(tokens < 100)) > 0
    assert run.reasons == [f"tokens: {run.short_responses} of 640 responses are shorter than requested"]


def test_numbers_that_disagree_with_loadgen_are_refused(tmp_path: Path) -> None:
    run_dir = DUMMY_RUNS.copy(tmp_path / "run", "Server")
    text = run_dir.requests.read_text().replace('"output_tokens":', '"output_tokens":1', 1)
    run_dir.requests.write_text(text)
    run = measured(run_dir.root)
    assert (run.verdict, run.ttft, run.done_qps, run.queries) == ("failed", None, None, 640)
    assert run.reasons[0].startswith("refused: ")
    assert "output tokens" in " ".join(run.reasons)


def test_a_run_without_logs_has_failed(tmp_path: Path) -> None:
    run = measured(tmp_path / "no-run", kind="offline", repetition=2)
    assert (run.verdict, run.scenario, run.repetition, run.queries) == ("failed", "Offline", 2, 0)
    assert "mlperf_log_detail.txt is missing" in run.reasons[0]
    assert failed_run(tmp_path, "killed", number=1, kind="server", folder=tmp_path).reasons == ["killed"]


def test_the_percentile_that_a_number_of_queries_supports() -> None:
    assert [supported_percentile(count) for count in (63, 64, 129, 130, 661, 662)] == [
        *(None, "p90", "p90", "p95", "p95", "p99"),
    ]  # fmt: skip
    assert {supported_percentile(needed): needed for needed in NEEDED.values()} == NEEDED
