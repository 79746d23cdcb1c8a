"""What is shown of an unfinished run, from its heartbeats."""

import pytest

from runs.record.progress import Progress
from runs.wording import NO_LIMIT_MS
from scenarios.live.run_view import MAX_HISTORY, LatencyView, RunFollower, RunView, time_to_go_s
from tests.support.runs.heartbeats import server_heartbeat as server


def view(progress: Progress, name: str = "Server", waited_s: float = 185.0) -> RunView:
    return RunFollower(name).view(progress, waited_s, 0.0)


def test_a_view_has_the_numbers_of_the_heartbeat() -> None:
    shown = view(server())
    assert (shown.completed, shown.expected, shown.open_queries) == (3_342, 13_368, 58)
    assert (shown.completed_qps, shown.tokens_per_s) == (22.28, 2_000.0)
    assert shown.offered_qps == pytest.approx(3_400 / 150)
    assert shown.share == 0.25
    assert shown.latencies == (LatencyView("TTFT", 310.0, 812.4, 2000.0), LatencyView("TPOT", 38.0, 41.26, 100.0))
    assert shown.warnings == ()


@pytest.mark.parametrize(("completed", "is_p50", "is_p99"), [(6, False, False), (458, True, False), (459, True, True)])
def test_a_percentile_without_enough_samples_is_unknown(completed: int, is_p50: bool, is_p99: bool) -> None:
    for latency in view(server(completed=completed)).latencies:
        assert (latency.p50_ms is not None, latency.p99_ms is not None) == (is_p50, is_p99)


def test_the_limit_of_a_run_without_limits_is_unknown() -> None:
    assert view(server(ttft_limit_ms=float(NO_LIMIT_MS))).latencies[0].limit_ms is None


@pytest.mark.parametrize(
    ("p99_ms", "limit_ms", "state"),
    [
        (1_799.0, 2_000.0, "within limit"),
        (1_800.0, 2_000.0, "near limit"),
        (2_000.0, 2_000.0, "near limit"),
        (2_000.1, 2_000.0, "over limit"),
        (2_000.1, None, None),
        (None, 2_000.0, None),
    ],
)
def test_a_latency_is_compared_with_its_limit(p99_ms: float | None, limit_ms: float | None, state: str | None) -> None:
    assert LatencyView("TTFT", None, p99_ms, limit_ms).state == state


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        ({"phase": "importing"}, "engine"),
        ({"phase": "engine"}, "engine"),
        ({"phase": "warm-up"}, "warm-up"),
        ({}, "timed run"),
        ({"issued": 13_368}, "last responses"),
        ({"issued": 13_368, "scenario": "Offline"}, "timed run"),
        ({"phase": "closing"}, "verification"),
        ({"phase": "done"}, "verification"),
    ],
)
def test_each_phase_belongs_to_a_step(seen: dict[str, object], step: str) -> None:
    shown = view(server(**seen))
    assert shown.step == step
    assert step in shown.steps


def test_the_offered_rate_ends_with_the_last_query() -> None:
    follower = RunFollower("Server")
    for second in range(1, 31):
        shown = follower.view(
            server(time_ns=second, elapsed_s=float(second), expected=100, issued=min(100, 10 * second)), second, second
        )
    assert shown.offered_qps == 10.0


def test_offline_has_no_offered_rate() -> None:
    assert view(server(scenario="Offline")).offered_qps is None


def test_the_history_has_the_maxima_of_the_whole_run() -> None:
    follower = RunFollower("Server")
    shown = []
    for second in range(10 * MAX_HISTORY):
        opened = 500 if second == 17 else second % 3
        beat = server(time_ns=second + 1, issued=5_000 + opened, completed=5_000)
        shown.append(follower.view(beat, second, second).open_history)
        assert follower.view(beat, second, second).open_history == shown[-1]  # a repeated heartbeat changes nothing
    assert [len(history) for history in shown[:3]] == [1, 2, 3]
    assert all(MAX_HISTORY / 2 < len(history) <= MAX_HISTORY for history in shown[MAX_HISTORY:])
    assert shown[-1].count(500) == 1
    assert set(shown[-1]) == {2, 500}


def test_a_closed_loop_has_no_more_open_queries_than_its_limit() -> None:
    shown = RunFollower("8 open", max_open=8).view(server(scenario="Offline", issued=4_000, completed=10), 1.0, 1.0)
    assert (shown.open_queries, shown.open_history) == (8, (8,))


def test_the_time_of_a_stage_begins_with_the_stage() -> None:
    follower = RunFollower("Server")
    assert follower.view(server(phase="engine"), 1.0, 11.0).stage_s == 0.0
    assert follower.view(server(phase="engine"), 5.0, 15.0).stage_s == 4.0
    assert follower.view(server(phase="engine", stage="loading weights"), 6.0, 16.0).stage_s == 0.0


def test_the_share_follows_the_time_if_the_number_of_samples_is_unknown() -> None:
    assert view(server(expected=None)).share == 0.25
    assert view(server(expected=None, elapsed_s=700.0)).share == 1.0
    assert view(server(expected=None, min_duration_s=None)).share is None


def test_the_remaining_time_follows_from_count_and_duration() -> None:
    assert time_to_go_s(server(completed=0)) is None
    assert time_to_go_s(server(elapsed_s=0.0)) is None
    # 100 s by the count, 500 s by the clock. Offline ends with its last sample, other scenarios also with the clock.
    half = server(expected=200, completed=100, elapsed_s=100.0)
    assert time_to_go_s(half) == 500.0
    half.scenario = "Offline"
    assert time_to_go_s(half) == 100.0
    # SingleStream: the number of queries is unknown.
    assert time_to_go_s(server(expected=None, elapsed_s=590.0)) == 10.0
    assert time_to_go_s(server(expected=None, elapsed_s=700.0)) == 0.0
    # A run with a known rate follows its plan until samples show a pace.
    assert time_to_go_s(server(completed=0, elapsed_s=10.0, planned_s=60.0)) == 50.0
    assert time_to_go_s(server(elapsed_s=10.0, planned_s=60.0, forecast_s=90.0)) == 80.0
    assert time_to_go_s(server(completed=0, elapsed_s=61.0, planned_s=60.0, forecast_s=61.0)) is None
    # An accuracy run has no minimum duration.
    assert time_to_go_s(server(expected=200, completed=100, elapsed_s=10.0, min_duration_s=None)) == 10.0
