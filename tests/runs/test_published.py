"""Published logs of other systems, of LoadGen 5.1. Skipped if they are missing."""

from pathlib import Path

import pytest

from runs.errors import InputError
from runs.loadgen.accuracy_log import read_accuracy_log
from runs.loadgen.detail_log import read_detail
from runs.loadgen.early_stopping import late_queries_allowed
from runs.loadgen.replay import expected_order
from runs.loadgen.schedule import poisson_offsets_ns, shuffled_library
from runs.loadgen.summary_log import cross_check, read_summary
from runs.loadgen.trace_log import read_trace
from runs.numbers.numbers import reported_numbers
from tests.runs.conftest import server_queries
from tests.support.published import PUBLISHED, PUBLISHED_MARKS

DETAILS = sorted(PUBLISHED.rglob("mlperf_log_detail.txt"))
pytestmark = PUBLISHED_MARKS


def name_of(path: Path) -> str:
    return str(path.parent.relative_to(PUBLISHED))


@pytest.mark.parametrize("path", DETAILS, ids=name_of)
def test_published_details_and_summaries_agree(path: Path) -> None:
    detail = read_detail(path)
    assert detail.finished
    assert detail.error_count == 0
    performance = "performance" in path.parts
    assert detail.mode == ("PerformanceOnly" if performance else "AccuracyOnly")
    assert detail.validity == ("VALID" if performance else None)
    summary = read_summary(path.with_name("mlperf_log_summary.txt"))
    assert summary.verdict == detail.validity
    assert cross_check(summary, detail) == []
    trace = path.with_name("mlperf_log_trace.json")
    assert not trace.exists() or read_trace(trace) is None


@pytest.mark.parametrize("path", DETAILS, ids=name_of)
def test_the_replay_equals_published_samples_and_schedules(path: Path) -> None:
    detail = read_detail(path)
    seeds = detail.seeds
    size = detail.integer("effective_performance_sample_count")
    assert detail.loaded_qsl_set == shuffled_library(seeds.qsl_rng_seed, size).tolist()
    assert expected_order(detail, detail.integer("generated_samples_per_query")) is not None
    if detail.scenario == "Server" and detail.has_results:
        qps, count = detail.number("effective_target_qps"), detail.integer("result_query_count")
        assert count == server_queries(seeds.schedule_rng_seed, qps, 600_000, 100, size)
        last_s = poisson_offsets_ns(seeds.schedule_rng_seed, qps, count)[-1] / 1e9
        reported = reported_numbers(detail).scheduled_samples_per_second
        assert reported == pytest.approx((count - 1) / last_s, rel=1e-5)


def test_early_stopping_equals_a_published_single_stream_run() -> None:
    details = [read_detail(path) for path in DETAILS]
    texts = [str(detail.get("early_stopping_ttft_result")) for detail in details if detail.scenario == "SingleStream"]
    assert any(f"Would discard {late_queries_allowed(5_000, 0.9) - 1} highest" in text for text in texts)


@pytest.mark.parametrize("path", sorted(PUBLISHED.rglob("mlperf_log_accuracy.json")), ids=name_of)
def test_published_accuracy_logs_are_read_or_reported_as_truncated(path: Path) -> None:
    if b"..." in path.read_bytes():
        with pytest.raises(InputError):
            read_accuracy_log(path)
        return
    entries = read_accuracy_log(path)
    assert len(entries) in (0, 100)
    assert all(entry.data and entry.token_count for entry in entries)
