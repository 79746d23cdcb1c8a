"""Contradictions within the logs of one run: values that LoadGen cannot have written in one run.

An unchanged log has none. LoadGen prints rates with six significant digits, so values computed from two rates are
compared with a tolerance.
"""

from collections.abc import Iterator
from pathlib import Path

from compliance.judge.rule import OURS, RERUN, decides
from compliance.judge.verdict import Finding, stated
from compliance.results.log_clock import compare_clock, compare_dates, compare_records, compare_test_date
from compliance.results.log_counts import compare_counts, compare_error_count, compare_loaded_set
from compliance.results.log_latencies import (
    compare_duration,
    compare_estimates,
    compare_mean_latency,
    compare_percentiles,
    compare_validity,
)
from compliance.results.log_rates import compare_rates
from compliance.results.log_settings import compare_settings
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.summary_log import Contradiction, SummaryLog, cross_check
from runs.numbers.numbers import Numbers, reported_numbers
from runs.record.finished_run import ACCURACY


@decides(
    "contradiction",
    ("log-settings", "error", "[loadgen]", "settings that the log states twice", RERUN),
    ("log-order", "error", "[loadgen]", "issued samples, compared with the effective seeds", RERUN),
    ("log-arithmetic", "error", "[loadgen]", "numbers of the detail log, compared with each other", RERUN),
    ("log-clock", "error", "[loadgen]", "LoadGen's time stamps, compared with the duration in its results", RERUN),
    ("log-summary", "error", "[loadgen]", "numbers of the summary, compared with the detail log", RERUN),
    ("log-test-date", "warning", OURS, "date of the test, compared with the build of LoadGen and with today",
     "set the clock of the host; if it was right, rerun"),
)  # fmt: skip
def log_contradictions(detail: DetailLog, summary: SummaryLog) -> Iterator[Finding]:
    """Yield the contradictions in the detail log and the summary of a run of any benchmark.

    Raises:
        HarnessError: If a log is damaged.
    """
    if not detail.unknown_version():
        for contradiction in cross_check(summary, detail):
            yield contradicted("log-summary", contradiction, summary.path, detail.path)
    yield from detail_contradictions(detail, reported_numbers(detail) if detail.mode != ACCURACY else None)


def detail_contradictions(detail: DetailLog, numbers: Numbers | None) -> Iterator[Finding]:
    """Yield the contradictions in one detail log. `numbers` are its reported numbers, or None for an accuracy run.

    The log of an unsupported LoadGen version is not checked. In a log with error records, only their number is
    compared: LoadGen itself marks such numbers as invalid, and latencies may have overflowed.
    """
    if detail.unknown_version():
        return
    if detail.error_count:
        for contradiction in compare_error_count(detail):
            yield contradicted("log-arithmetic", contradiction, detail.path)
        return
    by_rule = [
        ("log-settings", compare_settings(detail)),
        ("log-order", compare_loaded_set(detail)),
        ("log-clock", compare_dates(detail)),
        ("log-clock", compare_records(detail)),
        ("log-test-date", compare_test_date(detail)),
    ]
    if numbers is not None and detail.has_results:
        by_rule += [
            ("log-arithmetic", compare_error_count(detail)),
            ("log-arithmetic", compare_counts(detail)),
            ("log-arithmetic", compare_percentiles(detail, numbers)),
            ("log-arithmetic", compare_validity(detail)),
            ("log-arithmetic", compare_duration(detail, numbers)),
            ("log-arithmetic", compare_rates(detail, numbers)),
            ("log-arithmetic", compare_estimates(detail)),
            ("log-arithmetic", compare_mean_latency(detail, numbers)),
            ("log-clock", compare_clock(detail, numbers)),
        ]
    for rule, contradictions in by_rule:
        for contradiction in contradictions:
            yield contradicted(rule, contradiction, detail.path)


def contradicted(rule: str, contradiction: Contradiction, *files: Path) -> Finding:
    """Return the finding on values that exclude each other."""
    return stated(
        rule, "", *files, found=contradiction.found, required=contradiction.required, decided_by=contradiction.keys
    )
