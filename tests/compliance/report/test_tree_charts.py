"""The charts of a checked tree: rates far from the median, latencies near their limits, and affected results."""

from typing import Any

import pytest

from compliance.report.tree_charts import MAX_NAMED, cause_charts, latency_charts, rate_charts


def result(submitter: str, **fields: Any) -> dict[str, Any]:
    return {
        "organisation": submitter, "system": "a", "benchmark_of_round": "llama3.1-8b", "scenario_of_round": "Offline",
        "accelerator": "a GPU", "rate_per_accelerator": 100.0, "rate_to_median": 1.0, "unit": "tokens/s",
        "latencies": [],
    } | fields  # fmt: skip


def latency(share: float) -> dict[str, Any]:
    return {"name": "p99 TTFT", "ms": 2000 * share, "limit_ms": 2000, "share_of_limit": share}


@pytest.mark.parametrize(("ratio", "is_far"), [(1.29, False), (1.31, True), (0.78, False), (0.76, True)])
def test_a_rate_far_from_the_median_is_labeled_with_its_submitter(ratio: float, is_far: bool) -> None:
    (chart,) = rate_charts([result("A"), result("B", rate_per_accelerator=100 * ratio, rate_to_median=ratio)])
    near, far = chart.series
    assert [point.label for point in far.points] == (["B"] if is_far else [])
    assert len(near.points) == 2 - is_far


def test_each_accelerator_has_a_row_and_each_scenario_a_chart() -> None:
    results = [result("A"), result("B", accelerator="another GPU")]
    charts = rate_charts([*results, *({**row, "scenario_of_round": "Server"} for row in results)])
    assert [chart.title for chart in charts] == ["llama3.1-8b Offline", "llama3.1-8b Server"]
    assert charts[0].y.rows == ["a GPU", "another GPU"]


def test_a_single_result_and_a_result_without_rate_have_no_chart() -> None:
    assert rate_charts([result("A"), result("B", rate_per_accelerator=None)]) == []


def test_latencies_near_their_limits_are_apart_and_the_highest_have_labels() -> None:
    shares = [0.5, *(0.99 + place / 1000 for place in range(MAX_NAMED + 2))]
    results = [result(f"S{place}", latencies=[latency(share)]) for place, share in enumerate(shares)]
    (chart,) = latency_charts(results)
    below, near = chart.series
    assert [len(below.points), len(near.points)] == [1, MAX_NAMED + 2]
    assert sum(bool(point.label) for point in near.points) == MAX_NAMED
    assert "S1" not in [point.label for point in near.points]
    assert [line.value for line in chart.lines] == [100]


def test_causes_are_drawn_by_severity_with_the_results_that_they_affect() -> None:
    causes = [
        {"cause": "perf-ttft", "severity": "error", "summary": "p99 TTFT", "results": ["a", "b"], "findings": 3},
        {"cause": "tree-unknown", "severity": "warning", "summary": "files", "results": [], "findings": 5},
    ]
    (chart,) = cause_charts(causes)
    assert chart.y.rows == ["perf-ttft", "tree-unknown"]
    assert [[(point.x, point.y) for point in series.points] for series in chart.series] == [[(2, 0)], [(5, 1)]]
    assert cause_charts([]) == []
