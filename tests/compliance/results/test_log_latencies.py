"""Means of latencies in a detail log that exclude each other."""

from pathlib import Path

import pytest

from compliance.results import log_latencies
from compliance.results.log_latencies import compare_mean_latency
from runs.loadgen.detail_log import read_detail
from runs.numbers.numbers import reported_numbers
from tests.signoff.forge.faults import scale_reported
from tests.support.runs.dummy_runs import DummyRuns

TTFT, TPOT = "result_first_token_mean_latency_ns", "result_time_to_output_token_mean"


@pytest.mark.parametrize(("key", "factor", "is_found"), [(TTFT, 1.0, False), (TPOT, 0.5, True), (TPOT, 1.5, True)])
def test_the_mean_latency_follows_from_ttft_tpot_and_tokens(
    key: str, factor: float, is_found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer runs are compared; the run of this test is short."""
    monkeypatch.setitem(log_latencies.LATENCY_SAMPLES, "Server", 1)
    run = DummyRuns().copy(tmp_path / "run", "Server")
    scale_reported(run, key, factor)
    detail = read_detail(run.detail)
    contradictions = list(compare_mean_latency(detail, reported_numbers(detail)))
    assert ["result_mean_latency_ns" in contradiction.keys for contradiction in contradictions] == [True] * is_found
