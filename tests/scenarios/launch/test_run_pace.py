"""The duration that a run's heartbeats forecast, and the warning of a slow run."""

import random

import pytest

from runs.loadgen.schedule import poisson_offsets_ns
from runs.record.progress import Progress, is_slower
from runs.rounds import CURRENT_ROUND
from scenarios.launch.run_pace import DurationForecast
from scenarios.launch.trial import AT_A_TIME, trial_settings
from scenarios.live.run_view import slowness

Beat = tuple[int, int, int]  # time in s, issued, completed


def beats(issued_s: list[float], completed_s: list[float]) -> list[Beat]:
    """Yield the heartbeats of a run, one each second."""
    last = int(max(completed_s)) + 2
    return [
        (now, sum(time <= now for time in issued_s), sum(time <= now for time in completed_s)) for now in range(1, last)
    ]


def server(target_qps: float, count: int, capacity: float, latency_s: float) -> list[Beat]:
    """Return a queue in front of an engine that completes at most `capacity` queries per s."""
    offsets_ns = poisson_offsets_ns(CURRENT_ROUND.seeds.schedule_rng_seed, target_qps, count)
    issued_s = [offset_ns / 1e9 for offset_ns in offsets_ns.tolist()]
    completed_s, free_s = [], 0.0
    for time_s in issued_s:
        free_s = max(free_s, time_s) + 1 / capacity
        completed_s.append(free_s + latency_s)
    return beats(issued_s, completed_s)


def forecasts(scenario: str, seen: list[Beat], planned_s: float) -> list[tuple[int, float | None]]:
    pace = DurationForecast(scenario, seen[-1][2], planned_s)  # type: ignore[arg-type]
    return [(now, pace.forecast_s(now, issued, completed)) for now, issued, completed in seen]


def first_report_s(scenario: str, seen: list[Beat], planned_s: float) -> int | None:
    """Return the time of the first heartbeat that reports the run as slower than planned."""
    return next(
        (
            now
            for now, forecast_s in forecasts(scenario, seen, planned_s)
            if forecast_s and is_slower(planned_s, forecast_s)
        ),
        None,
    )


@pytest.mark.parametrize("capacity", [0.05, 0.12, 0.3, 1.0, 2.5, 15.0])
@pytest.mark.parametrize("at_a_time", [1, 4])
def test_a_trial_in_time_is_never_reported_as_slow(capacity: float, at_a_time: int) -> None:
    settings = trial_settings("Server", capacity)
    count = int(settings["min_query_count"])
    seen = server(settings["target_qps"], count, capacity, at_a_time / capacity)
    planned_s = next(float(now) for now, issued, _ in seen if issued == count)
    assert first_report_s("Server", seen, planned_s + AT_A_TIME / capacity) is None


def test_a_server_run_at_a_twentieth_of_the_rate_is_reported_as_slow() -> None:
    seen = server(0.4, 24, 0.02, 0.0)
    end_s = seen[-1][0]
    noticed_s = first_report_s("Server", seen, 60.0)
    assert noticed_s is not None
    assert noticed_s < end_s / 5
    rough = [forecast_s for now, forecast_s in forecasts("Server", seen, 60.0) if now > end_s / 4]
    assert all(forecast_s == pytest.approx(end_s, rel=0.2) for forecast_s in rough)


@pytest.mark.parametrize(("pace_s", "is_called_slow"), [(1.0, False), (1.3, False), (4.0, True)])
def test_a_single_stream_run_is_compared_with_its_planned_latency(pace_s: float, is_called_slow: bool) -> None:
    ends_s = [pace_s * number for number in range(1, 41)]
    seen = beats([0.0, *ends_s[:-1]], ends_s)
    assert (first_report_s("SingleStream", seen, 40.0) is not None) == is_called_slow


@pytest.mark.parametrize(("slower", "is_called_slow"), [(1.0, False), (3.0, True)])
def test_an_offline_run_with_late_completions_is_in_time(slower: float, is_called_slow: bool) -> None:
    chooser = random.Random(1)
    ends_s = sorted(slower * chooser.uniform(45.0, 60.0) for _ in range(200))
    seen = beats([0.0] * 200, ends_s)
    noticed_s = first_report_s("Offline", seen, 60.0)
    assert (noticed_s is not None) == is_called_slow
    assert noticed_s is None or noticed_s <= 91  # without a completed sample, by the time alone


def heartbeat(**more: object) -> Progress:
    values: dict[str, object] = {"elapsed_s": 110.0, "issued": 24, "completed": 2, "expected": 24}
    values |= {"samples_per_second": 0.018, "planned_s": 60.0, "forecast_s": 660.0}
    return Progress("running", 1, 1, "Server", "performance", **(values | more))  # type: ignore[arg-type]


def test_a_slow_run_is_reported_with_both_durations_and_rates() -> None:
    assert slowness(heartbeat()) == "slower than planned: 11 min instead of 60 s; 0.018/s, 0.40/s planned"
    assert slowness(heartbeat(forecast_s=110.0)).startswith("slower than planned: at least 2 min ")


@pytest.mark.parametrize("more", [{"planned_s": None}, {"forecast_s": None}, {"forecast_s": 69.0}, {"expected": None}])
def test_a_run_in_time_is_not_reported_as_slow(more: dict[str, object]) -> None:
    assert slowness(heartbeat(**more)) == ""
