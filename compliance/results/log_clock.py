"""Dates, processes and time stamps in a detail log, compared with each other and with the results."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from compliance.results.log_numbers import PRINTED, duration_ns
from runs.loadgen.detail_log import DetailLog, power_time
from runs.loadgen.summary_log import Contradiction
from runs.numbers.numbers import Numbers

ZONES = timedelta(hours=15)  # tolerance for time zones (-12 to +14 hours) and for the time to load samples
CLOCK_S = 0.1  # tolerance in seconds between two readings of one clock
# Time by which a test may precede the build of LoadGen: in 10 of 518 published logs, by up to 5.8 hours.
BUILD_CLOCKS = timedelta(days=1)
TEST_DATE = "test_datetime"
_BUILT = ("loadgen_build_date_utc", "loadgen_build_date_local")


def compare_dates(detail: DetailLog) -> Iterator[Contradiction]:
    """Compare dates in UTC with local dates, and the length of the run with the time of the last log record."""
    begin, window_s = power_time(detail.get("power_begin")), detail.window_s
    dates = [(TEST_DATE, local_test_date(detail), "power_begin", begin)]
    dates.append((_BUILT[0], _date(detail, _BUILT[0]), _BUILT[1], _date(detail, _BUILT[1])))
    for first, first_time, second, second_time in dates:
        if first_time is not None and second_time is not None and abs(second_time - first_time) > ZONES:
            yield Contradiction(f"{first} is {detail.get(first)}, {second} is {detail.get(second)}", (first, second))
    if window_s is None or not detail.last_ms:
        return
    logged_s = detail.last_ms / 1000
    if logged_s < window_s * (1 - PRINTED) - CLOCK_S:
        yield Contradiction(
            f"power_begin and power_end are {window_s:.3f} s apart",
            ("power_end",),
            f"the last log record is at {logged_s:.3f} s",
        )


def compare_test_date(detail: DetailLog) -> Iterator[Contradiction]:
    """Compare the date of the test with the build of LoadGen and with today. Honest hosts may have a wrong clock."""
    tested, built = local_test_date(detail), _date(detail, _BUILT[0])
    if tested is None:
        return
    began = f"the test began at {tested:%Y-%m-%d %H:%M}"
    if built is not None and tested < built - BUILD_CLOCKS:
        yield Contradiction(began, (TEST_DATE, _BUILT[0]), f"LoadGen was built at {built:%Y-%m-%d %H:%M}")
    if tested > (now := datetime.now(UTC)) + ZONES:
        yield Contradiction(began, (TEST_DATE,), f"it is {now:%Y-%m-%d %H:%M}")


def compare_records(detail: DetailLog) -> Iterator[Contradiction]:
    """Check that one process wrote the records, by a clock that never goes back."""
    if None in detail.processes:
        yield Contradiction("the log has records without a process ID", ("pid",))
    elif len(detail.processes) > 1:
        ids = " and ".join(map(str, sorted(number for number in detail.processes if number is not None)))
        yield Contradiction(f"the records come from the processes {ids}", ("pid",), "one process writes a log")
    if detail.step_back is not None:
        line, before_ms, time_ms = detail.step_back
        yield Contradiction(
            f"line {line} is at {time_ms:g} ms", ("time_ms",), f"the record before it is at {before_ms:g} ms"
        )
    if detail.has_results and not detail.last_ms:
        yield Contradiction("all records are at 0 ms", ("time_ms",))


def compare_clock(detail: DetailLog, numbers: Numbers) -> Iterator[Contradiction]:
    """Compare the time between the first and the last query with the duration and the latencies in the results."""
    took_ns = duration_ns(detail, numbers)
    window_s, keys = detail.window_s, ("power_begin", "power_end")
    if numbers.latency_ns is None or window_s is None:
        return
    apart = f"{' and '.join(keys)} are {window_s:.3f} s apart"
    if detail.scenario in ("SingleStream", "MultiStream"):  # in these scenarios, queries do not overlap
        busy_s = detail.integer("result_query_count") * numbers.latency_ns.mean / 1e9
        if busy_s > window_s + CLOCK_S:
            yield Contradiction(apart, tuple(keys), f"the queries took {busy_s:.3f} s in total")
    if took_ns is None:
        return
    took_s = took_ns / 1e9
    slack_s = CLOCK_S + PRINTED * took_s
    # LoadGen writes power_begin before the first query and power_end after the last completion.
    most_s = took_s + (0 if detail.scenario == "Offline" else numbers.latency_ns.max / 1e9)
    if not took_s - slack_s <= window_s <= most_s + slack_s + 1:
        yield Contradiction(apart, tuple(keys), f"the results state that the run took {took_s:.3f} s")


def local_test_date(detail: DetailLog) -> datetime | None:
    """Return the local time of the start of the test, as if it were UTC; None if it is invalid."""
    return _date(detail, TEST_DATE)


def _date(detail: DetailLog, key: str) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(str(detail.get(key)).removesuffix("Z")).replace(tzinfo=UTC)
    return None
