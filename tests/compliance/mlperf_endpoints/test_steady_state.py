"""The steady-state window, found in generated samples of flat, drifting and staircase runs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compliance.mlperf_endpoints.steady_window import (
    ANOMALY,
    DOWN,
    FEW_PASSES,
    NOT_FOUND,
    PARTIAL,
    SHORT,
    STEADY,
    UP,
    WINDOWABLE,
    SteadyState,
    detect_steady_state,
    drift_share,
    super_passes,
    trend,
    variation,
)
from compliance.mlperf_endpoints.verdict import client_run
from runs.mlperf_endpoints.layout import SUMMARY
from tests.support.mlperf_endpoints.folder_changes import in_json
from tests.support.mlperf_endpoints.verdicts import judge_folder

ROWS = 100
MS = 1_000_000


def detected(
    tpot_ms: Callable[[float], float], passes: int, *, pass_s: float = 200.0, required_s: float = 600.0, seed: int = 1
) -> SteadyState:
    """Detect the steady state of samples whose TPOT depends on the share of the run, with 2% noise."""
    count = ROWS * passes
    draw, share = np.random.default_rng(seed), np.arange(count) / count
    issued = (np.arange(count) * pass_s / ROWS * 1e9).astype(np.int64)
    first = issued + 50 * MS
    tokens = draw.integers(20, 100, count)
    tpot = np.array([tpot_ms(place) for place in share]) * draw.normal(1, 0.02, count) * MS
    return detect_steady_state(
        super_passes(ROWS, issued, first, first + (tpot * tokens).astype(np.int64), tokens), ROWS, required_s
    )


def test_a_flat_run_has_one_window_after_the_dropped_super_pass() -> None:
    steady = detected(lambda _: 10.0, 12)
    assert (steady.status, steady.verdict, steady.cropped) == (WINDOWABLE, STEADY, 1)
    assert steady.window is not None
    assert (steady.window.start, steady.window.end, steady.window.samples) == (0, 11, 11 * ROWS)
    assert steady.window.per_user_tps == pytest.approx(100, rel=0.01)
    assert steady.declared["window"]["super_pass_end"] == 11
    assert steady.declared["state"] == {"tpot_p50": "Plateau", "tpot_p90": "Plateau"}


def test_the_ramp_at_the_start_is_dropped() -> None:
    steady = detected(lambda share: 7.0 if share < 0.25 else 10.0, 16)
    assert steady.cropped == 4
    assert steady.status == WINDOWABLE


@pytest.mark.parametrize(("change", "verdict"), [(0.04, UP), (-0.04, DOWN)])
def test_a_drift_over_the_whole_run_is_reported_beside_the_window(change: float, verdict: str) -> None:
    steady = detected(lambda share: 10 * (1 + change * share), 40)
    assert steady.verdict == verdict
    assert steady.status == WINDOWABLE
    assert set(steady.state.values()) == {"Plateau"}


@pytest.mark.parametrize("change", [0.30, -0.30])
def test_a_large_drift_is_an_anomaly(change: float) -> None:
    assert detected(lambda share: 10 * (1 + change * share), 40).verdict == ANOMALY


def test_a_staircase_is_an_anomaly() -> None:
    steady = detected(lambda share: 10.0 if share < 0.76 else 12.0, 50)
    assert steady.verdict == ANOMALY
    assert steady.anomaly is not None
    assert steady.anomaly["delta_pct"] == pytest.approx(19, abs=2)


def test_a_scattered_tpot_has_no_window() -> None:
    draw = np.random.default_rng(3)
    levels = draw.uniform(5, 15, 12)
    steady = detected(lambda share: float(levels[int(share * 12)]), 12)
    assert (steady.status, steady.verdict, steady.window) == (FEW_PASSES, NOT_FOUND, None)


def test_a_window_below_ten_minutes_is_too_short() -> None:
    steady = detected(lambda _: 10.0, 8, pass_s=60.0)
    assert (steady.status, steady.verdict, steady.is_long_enough) == (SHORT, NOT_FOUND, False)
    assert steady.window is not None
    assert steady.window.duration_s < steady.window.required_s


def test_a_window_below_the_duration_of_the_point_is_too_short_but_found() -> None:
    steady = detected(lambda _: 10.0, 6, required_s=1200.0)
    assert (steady.status, steady.verdict, steady.is_long_enough) == (SHORT, STEADY, True)


def test_less_than_one_pass_is_a_partial_dataset() -> None:
    issued = np.arange(40, dtype=np.int64) * MS
    passes = super_passes(ROWS, issued, issued + MS, issued + 5 * MS, np.full(40, 4))
    assert detect_steady_state(passes, ROWS, 600).status == PARTIAL


def test_a_range_of_the_longest_latency_needs_five_times_its_length() -> None:
    issued = (np.arange(12 * ROWS) * 2e9).astype(np.int64)
    first = issued + MS
    passes = super_passes(ROWS, issued, first, first + 300 * 1000 * MS, np.full(12 * ROWS, 100))
    steady = detect_steady_state(passes, ROWS, 600)
    assert steady.window is not None
    assert steady.window.required_s == pytest.approx(5 * 300, rel=0.01)


@pytest.mark.parametrize(
    ("values", "direction"),
    [([1, 2, 3], 0), ([1, 2, 3, 4, 5, 6, 7, 8], 1), ([8, 7, 6, 5, 4, 3, 2, 1], -1), ([5, 5, 5, 5, 5], 0),
     ([1, 3, 2, 4, 3, 1, 2, 4], 0)],
)  # fmt: skip
def test_a_trend_is_significant_in_one_direction(values: list[float], direction: int) -> None:
    assert trend(np.array(values, float)) == direction


def test_the_drift_and_the_variation_are_relative() -> None:
    assert drift_share(np.array([9.0, 10.0, 11.0])) == pytest.approx(0.2)
    assert variation(np.array([9.0, 11.0])) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("change", "is_violated"), [({}, False), ({"n_super_passes": 7}, True), ({"found": True}, True)]
)
def test_a_block_of_the_client_that_differs_from_the_events_is_a_contradiction(
    copy_of: Callable[[str], Path], change: dict[str, object], is_violated: bool
) -> None:
    folder = copy_of("concurrency")
    steady = client_run(folder, "bytes").steady_state
    assert steady is not None
    in_json(SUMMARY, lambda summary: summary.update(steady_state=steady.reported | change))(folder)
    violated = [
        finding.rule
        for finding in judge_folder(folder, model_path="bytes").of("error")
        if finding.kind == "contradiction"
    ]
    assert violated == ["endpoints-steady-state"] * is_violated
