"""Edited numbers: each is found, and the finding names the number."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from runs.loadgen.detail_log import read_detail
from runs.loadgen.trace_log import read_trace
from runs.numbers.derive_result import derive_result
from runs.numbers.log_comparison import Allowance, compare_log
from runs.numbers.rederive import Derived, derive_numbers, evaluate_times
from runs.numbers.result import Disagreement
from runs.record.finished_run import FinishedRun
from runs.record.layout import RunDir
from runs.record.requests_log import read_request_table
from tests.support.files.editing import edit_detail, edit_requests
from tests.support.runs.loadgen_runs import LoadgenRuns

Copy = Callable[[str], RunDir]


def disagreements_of(run: RunDir, *, with_trace: bool = True) -> list[Disagreement]:
    detail = read_detail(run.detail)
    trace = read_trace(run.trace) if with_trace else None
    return compare_log(derive_numbers(detail, read_request_table(run.requests), trace), detail)


def slightly_other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.0001
    return "INVALID"


@pytest.mark.parametrize("name", ["offline", "server", "single-stream"])
def test_each_changed_number_is_found_with_a_trace(loadgen_runs: LoadgenRuns, copied_run: Copy, name: str) -> None:
    values = read_detail(loadgen_runs[name].detail).values
    results = [key for key in values if key.startswith(("result_", "early_stopping_latency", "early_stopping_met"))]
    assert len(results) > 15
    run = copied_run(name)
    original = run.detail.read_bytes()
    for key in [*results, "num_errors"]:
        value = values[key]
        if key.endswith(("_per_second", "_per_sec")):
            value = float(value)  # LoadGen may print a round number
        edit_detail(run, key, slightly_other(value))
        findings = disagreements_of(run)
        assert any(key in item.name for item in findings) or (key == "result_query_count" and findings), (key, findings)
        run.detail.write_bytes(original)


@pytest.mark.parametrize(
    ("key", "factor"),
    [
        ("result_completed_tokens_per_second", 1.001),  # the sum of tokens does not depend on a clock
        ("result_completed_samples_per_sec", 1.5),
        ("result_scheduled_samples_per_sec", 1.0001),  # the schedule does not depend on a clock, either
        ("result_90.00_percentile_latency_ns", 20),
        ("result_first_token_90.00_percentile_latency_ns", 50),
        ("result_time_per_output_token_50.00_percentile_ns", 1000),
        ("result_max_latency_ns", 1000),
    ],
)
def test_a_large_change_is_found_without_a_trace(copied_run: Copy, key: str, factor: float) -> None:
    run = copied_run("server-no-trace")
    assert disagreements_of(run) == []
    value = read_detail(run.detail).values[key]
    edit_detail(run, key, int(value * factor) if isinstance(value, int) and factor > 2 else value * factor)
    assert any(key in item.name or item.name == "output tokens" for item in disagreements_of(run))


@pytest.mark.parametrize(("unseen", "fits"), [(1, True), (40, False)])
def test_an_unseen_pause_may_move_a_percentile_across_a_gap(loadgen_runs: LoadgenRuns, unseen: int, fits: bool) -> None:
    """Times have two sizes if a container's share of the cores is sometimes cut off."""
    run = loadgen_runs["server-no-trace"]
    detail, table = read_detail(run.detail), read_request_table(run.requests)
    times = derive_numbers(detail, table, None).times
    short = int(len(times) * 0.9)  # the place of p90 is the first of the long times

    def with_short_ones(count: int) -> Derived:
        places = np.arange(len(times))
        ttft_ns = np.where(places < count, 5_000_000, 500_000_000) + places
        changed = replace(times, ttft_ns=ttft_ns, latency_ns=ttft_ns + 90_000_000)
        return evaluate_times(detail, changed, table.output_tokens)

    stopped, undisturbed = with_short_ones(short + unseen), with_short_ones(short)
    stopped_ns, undisturbed_ns = stopped.numbers.ttft_ns, undisturbed.numbers.ttft_ns
    assert undisturbed_ns.p90 - stopped_ns.p90 == 495_000_000
    allowance = Allowance(stopped, "ttft", stopped_ns)
    assert (allowance.of("p90") + allowance.shift_ns(stopped_ns.p90, undisturbed_ns.p90) >= 495_000_000) is fits


@pytest.mark.parametrize("name", ["server", "server-no-trace"])
def test_a_missing_request_is_reported(copied_run: Copy, name: str) -> None:
    run = copied_run(name)
    edit_requests(run, 5)
    assert any("seq 5" in str(item) for item in derive_result(FinishedRun(run)).disagreements)


CONDITIONS = ("result_validity", "result_perf_constraints_met", "early_stopping_met")


@pytest.mark.parametrize(
    ("name", "changed", "expected"),
    [
        ("server-no-trace", {"result_min_queries_met": False}, {"result_min_queries_met"}),
        ("server-no-trace", {"result_min_duration_met": False}, {"result_min_duration_met"}),
        ("server-no-trace", {"result_validity": "INVALID"}, {"result_validity"}),
        ("interactive-late-first-token", dict.fromkeys(CONDITIONS, True), set(CONDITIONS)),
        # Too short for a verdict
        ("server-too-few", dict.fromkeys(CONDITIONS[::2], True), {"early_stopping_met", "result_validity"}),
        ("single-stream-too-few", dict.fromkeys(CONDITIONS[::2], True), {"early_stopping_met", "result_validity"}),
    ],
)
def test_a_changed_verdict_is_found_without_a_trace(
    copied_run: Copy, name: str, changed: dict[str, Any], expected: set[str]
) -> None:
    run = copied_run(name)
    for key, value in changed.items():
        edit_detail(run, key, "VALID" if (key, value) == ("result_validity", True) else value)
    assert {item.name for item in disagreements_of(run)} == expected


@pytest.mark.parametrize("name", ["offline", "server", "single-stream-no-trace"])
def test_edited_requests_contradict_the_log(copied_run: Copy, name: str) -> None:
    run = copied_run(name)
    table = read_request_table(run.requests)
    edit_requests(run, 0, output_tokens=int(table.output_tokens[0]) + 50)
    assert "output tokens" in {item.name for item in disagreements_of(run)}
    edit_requests(run, 3, sample_index=1_000)
    names = [item.name for item in derive_result(FinishedRun(run)).disagreements]
    assert [name for name in names if name.startswith("sample index")] == [
        f"sample index at seq 3 ({source}; 1 differ)"
        for source in (*([] if name.endswith("no-trace") else ["trace"]), "replay of the seeds")
    ]
    last = int(table.seq[table.complete_ns.argmax()])
    edit_requests(run, last, complete_ns=int(table.complete_ns.max()) + 60_000_000_000)
    (late,) = [item for item in disagreements_of(run, with_trace=False) if item.name.startswith("latency_ns.max")]
    assert f"re-derived {late.derived} ± " in str(late)
