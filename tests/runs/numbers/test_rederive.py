"""LoadGen's formulas on small numbers that can be computed by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.errors import InputError
from runs.loadgen.detail_log import DetailLog
from runs.numbers.rederive import derive_numbers, evaluate_times, loadgen_statistics, time_per_output_token_ns
from runs.numbers.timeline import Timeline, timeline
from runs.record.requests_log import RequestTable

SECOND = 1_000_000_000


def detail(scenario: str, **values: Any) -> DetailLog:
    return DetailLog(
        Path("mlperf_log_detail.txt"),
        {
            "effective_scenario": scenario,
            "effective_test_mode": "PerformanceOnly",
            "effective_min_duration_ms": 1_000,
            "effective_min_query_count": 1,
            "effective_min_sample_count": 1,
            "effective_target_latency_percentile": 0.9 if scenario == "SingleStream" else 0.99,
            "effective_target_qps": 2,
            "effective_qsl_rng_seed": 1,
            "effective_sample_index_rng_seed": 2,
            "effective_schedule_rng_seed": 3,
            "effective_accuracy_log_rng_seed": 0,
            "requested_use_token_latencies": True,
            "requested_server_ttft_latency": SECOND,
            "requested_server_tpot_latency": SECOND // 10,
            **values,
        },
    )


def column(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def table(issue: Any, first: Any, complete: Any, tokens: Any) -> RequestTable:
    count = len(issue)
    return RequestTable(
        np.arange(count), np.arange(count), tokens, tokens, issue, first, complete, ["stop"] * count, ["a" * 64] * count
    )


def test_offline_rates_follow_from_completion_times() -> None:
    times = Timeline("trace", column(0, 0), column(0, 0), column(SECOND, 2 * SECOND), None)
    derived = evaluate_times(detail("Offline"), times, column(10, 30))
    numbers = derived.numbers
    assert (numbers.samples_per_second, numbers.tokens_per_second) == (1.0, 20.0)
    assert (derived.query_count, derived.sample_count, derived.duration_ns) == (1, 2, 2 * SECOND)
    assert (numbers.latency_ns.min, numbers.latency_ns.mean, numbers.latency_ns.p50) == (
        SECOND,
        1_500_000_000,
        2 * SECOND,
    )
    assert numbers.ttft_ns is None
    assert all(derived.conditions.values())


def test_server_rates_and_latencies_follow_from_the_schedule() -> None:
    # The query scheduled last completes before the one in front of it. The rates use its own end.
    times = Timeline("trace", column(0, SECOND), column(5, SECOND + 5), column(4 * SECOND, SECOND), column(10, SECOND))
    derived = evaluate_times(detail("Server"), times, column(5, 3))
    numbers = derived.numbers
    assert numbers.samples_per_second == 0.5  # (2 - 1) / 2 s
    assert numbers.scheduled_samples_per_second == 1.0
    assert numbers.tokens_per_second == 4.0
    assert numbers.tokens_per_second_with_overhead == pytest.approx(8.0)
    assert (numbers.tpot_ns.max, numbers.tpot_ns.min) == ((4 * SECOND - 10) // 4, 0)
    assert not derived.conditions["perf_constraints_met"]
    assert derived.early_stopping.verdicts["tpot"].late == 1
    assert derived.early_stopping.verdicts["ttft"].late == 0
    assert derived.duration_ns == SECOND


def test_single_stream_rates_follow_from_latencies() -> None:
    times = Timeline("trace", column(0, 2 * SECOND), column(0, 2 * SECOND), column(SECOND, SECOND), column(1, 1))
    derived = evaluate_times(detail("SingleStream"), times, column(2, 2))
    assert derived.numbers.samples_per_second == 0.5
    assert derived.numbers.samples_per_second_without_overhead == 1.0
    assert not derived.early_stopping.met
    assert derived.early_stopping.estimates_ns == {
        "tpot_p90": None,
        "tpot_p99": None,
        "ttft_p90": None,
        "ttft_p99": None,
    }
    assert not all(derived.conditions.values())


def test_tpot_divides_by_one_for_outputs_below_two_tokens() -> None:
    spans = time_per_output_token_ns(column(100, 100, 100), column(30, 30, 30), column(0, 3, 8))
    assert spans.tolist() == [-70, 35, 10]
    times = Timeline("trace", column(0, 1), column(0, 1), column(100, 100), column(30, 30))
    assert evaluate_times(detail("Server"), times, column(1, 3)).output_tokens == 3


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=300))
def test_statistics_follow_the_definitions_of_loadgen(values: list[int]) -> None:
    numbers = loadgen_statistics(np.array(values, dtype=np.int64))
    ordered = sorted(values)
    assert (numbers.min, numbers.max) == (ordered[0], ordered[-1])
    assert numbers.p90 == ordered[int(len(values) * 0.9)]
    assert numbers.mean == int(np.trunc(sum(values) / len(values))) or abs(sum(values)) > 2**52


def test_server_latencies_begin_at_the_scheduled_time() -> None:
    start = 1_000 * SECOND
    log = detail("Server")
    probe = timeline(log, table(column(start, start), column(start, start), column(start, start), column(2, 2)), None)
    offset = int(probe.scheduled_ns[1])
    # Both queries are submitted late. The less late one determines the start of the test.
    issue = column(start + 500, start + offset + 100)
    times = timeline(log, table(issue, issue + 7, issue + 900, column(2, 2)), None)
    assert times.scheduled_ns.tolist() == [0, offset]
    assert times.latency_ns.tolist() == [1_300, 900]
    assert times.ttft_ns.tolist() == [407, 7]


def test_single_stream_latencies_begin_at_the_end_of_the_previous_query() -> None:
    issue, complete = column(100, 260, 300), column(200, 290, 400)
    times = timeline(detail("SingleStream"), table(issue, issue + 1, complete, column(2, 2, 2)), None)
    assert times.latency_ns.tolist() == [100, 90, 110]


@pytest.mark.parametrize("scenario", ["Server", "SingleStream"])
def test_a_missing_first_token_is_refused(scenario: str) -> None:
    records = table(column(1, 2), column(-1, 5), column(8, 9), column(2, 2))
    with pytest.raises(InputError, match=r"no first token for 1 of 2 samples \(first: seq 0\)"):
        derive_numbers(detail(scenario), records, None)
    with pytest.raises(InputError, match=r"the request log of the run of .* is empty"):
        derive_numbers(detail(scenario), table(*[column()] * 4), None)
