"""Rules on SingleStream and MultiStream logs: numbers that follow from other numbers of the log."""

from collections.abc import Iterator

from compliance.judge.rule import check_of, decides
from compliance.judge.verdict import Finding, compared
from compliance.results.log_clock import CLOCK_S
from compliance.results.log_contradictions import contradicted
from compliance.results.log_numbers import PRINTED
from compliance.trees.scenario_directory import TreeRun
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.summary_log import Contradiction
from runs.numbers.numbers import PERCENTILE_NAMES

SAMPLES_PER_QUERY = 8  # [loadgen] mlperf.conf: *.MultiStream.samples_per_query
_EXPECTED = {
    "SingleStream": "requested_single_stream_expected_latency_ns",
    "MultiStream": "requested_multi_stream_expected_latency_ns",
}
# Keys of the latencies of samples, and of queries. A query takes as long as its slowest sample.
_OF_SAMPLES = (
    ("result_min_latency_ns", "result_min_query_latency_ns"),
    ("result_mean_latency_ns", "result_mean_query_latency_ns"),
    *(
        (f"result_{name}_percentile_latency_ns", f"result_{name}_percentile_per_query_latency_ns")
        for name in PERCENTILE_NAMES.values()
    ),
)


@decides("contradiction", needs=("log", "numbers"), also=("log-arithmetic",))
def stream_contradictions(run: TreeRun) -> Iterator[Finding]:
    """Compare the rate, the duration and the latencies of a stream's log with its other numbers."""
    detail = run.detail
    if detail.scenario in _EXPECTED and not detail.error_count:
        for contradiction in (*_rate(detail), *_duration(detail), *_latencies(detail)):
            yield contradicted("log-arithmetic", contradiction, detail.path)


def _rate(detail: DetailLog) -> Iterator[Contradiction]:
    key, rate = _EXPECTED[detail.scenario], detail.number("effective_target_qps")
    if (expected_ns := detail.get(key)) is not None and abs(rate * detail.number(key) / 1e9 - 1) > PRINTED:
        yield Contradiction(
            f"effective_target_qps is {rate:.8g}, {key} is {expected_ns}", ("effective_target_qps", key)
        )


def _duration(detail: DetailLog) -> Iterator[Contradiction]:
    took_s, least_s = detail.window_s, detail.integer("effective_min_duration_ms") / 1000
    if took_s is None or not detail.flag("result_min_duration_met"):
        return
    if took_s < least_s - CLOCK_S:
        yield Contradiction(
            "result_min_duration_met is True",
            ("result_min_duration_met", "power_begin"),
            f"power_begin to power_end took {took_s:.3f} s of {least_s:g} s",
        )


def _latencies(detail: DetailLog) -> Iterator[Contradiction]:
    for of_samples, of_queries in _OF_SAMPLES if detail.scenario == "MultiStream" else ():
        if detail.get(of_queries) is not None and detail.integer(of_samples) > detail.integer(of_queries):
            yield Contradiction(
                f"{of_samples} {detail.integer(of_samples)} is above {of_queries} {detail.integer(of_queries)}",
                (of_samples, of_queries),
            )


@decides(
    "official",
    ("perf-samples-per-query", "error", "[loadgen] mlperf.conf", "samples of a MultiStream query",
     "remove samples_per_query from user.conf"),
    needs=("log",),
)  # fmt: skip
def samples_per_query(run: TreeRun) -> Iterator[Finding]:
    """Check the number of samples in the queries of MultiStream."""
    if run.detail.scenario == "MultiStream":
        key = "effective_samples_per_query"
        samples, wanted = run.detail.integer(key), SAMPLES_PER_QUERY
        yield compared("perf-samples-per-query", samples == wanted, f"{samples}", f"{wanted}", run.detail.path,
                       decided_by=(key,))  # fmt: skip


PERFORMANCE = tuple(map(check_of, (stream_contradictions, samples_per_query)))
