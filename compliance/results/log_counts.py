"""Counts of samples, queries and errors in a detail log, compared with each other and with the settings."""

from collections.abc import Iterator

from compliance.results.log_numbers import TARGET_LATENCY, min_samples_per_query
from runs.loadgen.defaults import OFFLINE_SLACK
from runs.loadgen.detail_log import SIX_DIGITS, DetailLog
from runs.loadgen.summary_log import Contradiction
from runs.numbers.numbers import PERCENTILE_SHARES, latency_keys
from runs.record.finished_run import PERFORMANCE


def compare_loaded_set(detail: DetailLog) -> Iterator[Contradiction]:
    """Check that LoadGen loaded the number of samples that it states, each once."""
    loaded = detail.loaded_qsl_set
    more = int(detail.get("effective_samples_per_query") or 1) - 1
    if detail.scenario == "MultiStream" and 0 < more < len(loaded) and loaded[-more:] == loaded[:more]:
        loaded = loaded[:-more]  # the last query is filled up with samples from the start
    total, size = detail.integer("qsl_reported_total_count"), detail.integer("effective_performance_sample_count")
    if len(set(loaded)) != len(loaded) or max(loaded, default=-1) >= total:
        yield Contradiction(
            f"loaded_qsl_set contains a sample twice, or a sample outside 0 to {total - 1}", ("loaded_qsl_set",)
        )
    if detail.mode == PERFORMANCE and len(loaded) != min(total, size):
        yield Contradiction(
            f"loaded_qsl_set contains {len(loaded)} samples instead of {min(total, size)}", ("loaded_qsl_set",)
        )


def compare_error_count(detail: DetailLog) -> Iterator[Contradiction]:
    """Compare the stated number of errors with the error records."""
    counted = detail.has_results and (detail.counts_errors or "num_errors" in detail.values)
    if counted and detail.get("num_errors") != detail.error_count:
        yield Contradiction(
            f"num_errors is {detail.get('num_errors')}", ("num_errors",), f"the log has {detail.error_count} errors"
        )


def compare_counts(detail: DetailLog) -> Iterator[Contradiction]:
    """Compare the numbers of queries, of late queries and of samples with each other."""
    queries, generated = detail.integer("result_query_count"), detail.queries_generated
    if queries > generated or (queries < generated and detail.scenario in ("Offline", "Server")):
        yield Contradiction(f"the result has {queries} queries", ("result_query_count",), f"{generated} were generated")
    late = detail.get("result_overlatency_query_count")
    if late is not None and (late > queries or (detail.get("effective_target_latency_ns") == 0 and late != queries)):
        key = "result_overlatency_query_count"
        yield Contradiction(f"{key} is {late} of {queries} queries", (key,))
    elif late is not None and not detail.uses_token_latencies:
        yield from _late(detail, queries, detail.integer("result_overlatency_query_count"))
    yield from _issued(detail)


def _late(detail: DetailLog, queries: int, late: int) -> Iterator[Contradiction]:
    """Compare the number of late queries with the percentiles of the latency."""
    limit = detail.integer(TARGET_LATENCY)
    for name, share in PERCENTILE_SHARES.items():
        value, beyond = detail.integer(dict(latency_keys("latency_ns"))[name]), queries * (1 - share)
        if not (late >= beyond - 1 if value > limit else late <= beyond + 1):
            yield Contradiction(
                f"{late} of {queries} queries are late",
                ("result_overlatency_query_count",),
                f"p{100 * share:g} is {value} ns for a limit of {limit} ns",
            )
            return


def _issued(detail: DetailLog) -> Iterator[Contradiction]:
    """Compare the number of issued samples with the settings, and with whole sets of samples."""
    samples = min_samples_per_query(detail)
    if detail.scenario == "Offline":
        requested, rate = detail.integer("effective_samples_per_query"), detail.number("effective_target_qps")
        wanted = OFFLINE_SLACK * detail.integer("effective_min_duration_ms") / 1000 * rate
        least = detail.get("requested_min_query_count")
        unique = detail.effective("performance_issue_unique")  # then exactly one set of samples is issued
        if not unique and isinstance(least, int) and abs(requested - max(int(wanted), least)) > 1 + SIX_DIGITS * wanted:
            key = "effective_samples_per_query"
            yield Contradiction(
                f"{key} is {requested}", (key,), f"target_qps and the minimum settings imply {max(int(wanted), least)}"
            )
        if samples < requested:
            first, second = "generated_samples_per_query", "effective_samples_per_query"
            yield Contradiction(f"{first} is {samples}, {second} {requested}", (first, second))
    total, size = detail.integer("qsl_reported_total_count"), detail.integer("effective_performance_sample_count")
    whole_sets = detail.effective("sample_concatenate_permutation") is True
    issued, one_set = samples * detail.integer("result_query_count"), min(total, size)
    if whole_sets and detail.scenario in ("Offline", "Server") and one_set > 0 and issued % one_set:
        key = "sample_concatenate_permutation"
        yield Contradiction(
            f"{issued} samples were issued", (f"effective_{key}",), f"{key} needs a multiple of {one_set}"
        )
