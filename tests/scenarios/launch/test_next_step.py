"""The next command that the summary of a trial proposes."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from runs.benchmarks import default_benchmark
from runs.numbers.load import Load
from runs.numbers.numbers import LatencyNumbers, Numbers
from runs.record.observed import Contention
from scenarios.launch.next_step import next_steps
from scenarios.launch.trial import slower_than_measured


def latency(least_ms: float, most_ms: float, median_ms: float | None = None) -> LatencyNumbers:
    values = dict.fromkeys(LatencyNumbers.model_fields, int(most_ms * 1e6))
    return LatencyNumbers(**{**values, "min": int(least_ms * 1e6), "p50": int((median_ms or most_ms) * 1e6)})


def next_step_lines(
    scenario: Any,
    ttft_ms: tuple[float, ...],
    tpot_ms: tuple[float, ...],
    *,
    rate: float = 0.24,
    kept_up: bool = True,
) -> list[str]:
    """Return the lines on a trial at `rate` with these latencies. An engine that did not keep up completed half."""
    done = rate if kept_up else rate / 2
    result: Any = SimpleNamespace(
        reported=Numbers(ttft_ns=latency(*ttft_ms), tpot_ns=latency(*tpot_ms)),
        load=Load(rate, done, 2.0, 3, 5.0, kept_up),
    )
    manifest: Any = SimpleNamespace(
        asked={},
        trial=SimpleNamespace(settings={"target_qps": rate}, queries_per_second=rate / 0.65),
        plan=SimpleNamespace(
            scenario=scenario,
            loadgen_scenario="Server" if scenario in ("Server", "Interactive") else scenario,
            loadgen_key=default_benchmark(scenario).loadgen_key,
            sample_count=64,
        ),
        observed=SimpleNamespace(start_stages={"importing": 20.0, "warming up": 15.0}),
    )
    return next_steps(manifest, default_benchmark(scenario), result)


def offered_rate(line: str) -> float:
    match = re.search(r"--target-qps (\S+) ", line)
    assert match
    return float(match[1])


def test_a_trial_within_the_limits_proposes_its_rate() -> None:
    (line,) = next_step_lines("Server", (200, 900), (30, 60))
    assert offered_rate(line) == 0.24
    assert "512 queries" in line  # complete datasets above the 459 queries of early stopping
    assert "37 min" in line  # duration by the schedule of this round


@pytest.mark.parametrize(("scenario", "ttft_ms", "tpot_ms"), [("Server", 2_000, 100), ("Interactive", 500, 30)])
def test_a_limit_that_no_query_met_is_named_without_a_rate(scenario: str, ttft_ms: int, tpot_ms: int) -> None:
    *why, line = next_step_lines(scenario, (ttft_ms / 2, ttft_ms), (tpot_ms * 0.9, tpot_ms * 2.1))
    assert len(why) == 1
    assert f"TPOT was {tpot_ms * 2.1:.3g} ms" in why[0]
    assert f"limit of {tpot_ms} ms" in why[0]
    assert "--target-qps" not in line
    assert "--scenario Offline --accuracy " in line
    why = next_step_lines(scenario, (ttft_ms * 1.5, ttft_ms * 2), (1, 2))[:-1]
    assert why[0].startswith(f"TTFT was {ttft_ms * 1.5:,.0f} ms")


def test_a_limit_that_some_queries_exceeded_halves_the_rate() -> None:
    why, line = next_step_lines("Server", (200, 900), (60, 130, 70))
    assert why == "TPOT up to 130 ms, official limit 100 ms"
    assert offered_rate(line) == 0.12


def test_an_unsustained_rate_is_not_proposed() -> None:
    (line,) = next_step_lines("Server", (200, 900), (30, 60), kept_up=False)
    assert offered_rate(line) <= 0.12 * 0.65
    for rate in (0.0237, 0.299, 7.77, 123.4):
        (line,) = next_step_lines("Server", (200, 900), (30, 60), rate=rate)
        assert 0.9 * rate <= offered_rate(line) <= rate


@pytest.mark.parametrize("scenario", ["Offline", "SingleStream"])
def test_a_trial_without_limits_proposes_an_accuracy_run(scenario: str) -> None:
    (line,) = next_step_lines(scenario, (1, 2), (1, 2))
    assert "the same command with --accuracy (scores of 64 articles, about 3 min)" in line


def test_a_trial_slower_than_its_warm_up_is_reported() -> None:
    assert slower_than_measured(None) == slower_than_measured(150 * 10**9) == ""
    assert "the run took 7 min instead of at most 100 s" in slower_than_measured(395 * 10**9)
    contention = Contention(
        window_s=395.0, usable_cores=2, busy_cpu_s=700.0, stolen_cpu_s=0.0, own_cpu_s=350.0, foreign_cpu_s=350.0,
        load_average_start=1.0, load_average_end=1.0,
    )  # fmt: skip
    assert "other programs used 1 of 2 cores" in slower_than_measured(395 * 10**9, contention)
