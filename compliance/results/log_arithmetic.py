"""Contradictions within one detail log: numbers that LoadGen cannot have written in one run.

An unchanged log has none. LoadGen prints rates with six significant digits, so values computed from two rates are
compared with a tolerance.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from compliance.judge.rule import OURS, RERUN, decides
from compliance.judge.verdict import Finding, stated
from runs.loadgen.defaults import OFFLINE_SLACK
from runs.loadgen.detail_log import SIX_DIGITS, DetailLog, power_time
from runs.loadgen.early_stopping import min_queries
from runs.loadgen.replay import REPLAYABLE, loaded_samples
from runs.loadgen.schedule import poisson_offsets_ns
from runs.loadgen.summary_log import Contradiction, SummaryLog, cross_check
from runs.numbers.numbers import (
    LATENCIES,
    PERCENTILE_NAMES,
    PERCENTILE_SHARES,
    RATE_KEYS,
    LatencyNumbers,
    Numbers,
    latency_keys,
    reported_numbers,
)
from runs.record.finished_run import ACCURACY, PERFORMANCE

PRINTED = 2 * SIX_DIGITS  # tolerance for the quotient of two printed rates
ZONES = timedelta(hours=15)  # tolerance for time zones (-12 to +14 hours) and for the time to load samples
CLOCK_S = 0.1  # tolerance in seconds between two readings of one clock
# Time by which a test may precede the build of LoadGen: in 10 of 518 published logs, by up to 5.8 hours.
BUILD_CLOCKS = timedelta(days=1)
# Mean latency, relative to mean TTFT + mean TPOT × (mean tokens - 1): 0.992 to 1.017 in 117 published results.
# Shorter runs are not compared: tests run LoadGen with fewer samples around a system whose latency does not depend on
# the number of tokens.
LATENCY_SHARES = (0.95, 1.05)
LATENCY_SAMPLES = {"Offline": 5_000, "Server": 5_000, "SingleStream": 1_000}
TEST_DATE = "test_datetime"
_BUILT = ("loadgen_build_date_utc", "loadgen_build_date_local")
_TARGET_LATENCY = "effective_target_latency_ns"
_SERVER = RATE_KEYS["Server"]

# Settings that LoadGen logs twice: as requested_X and as effective_X.
_SAME_NAME = (
    "min_duration_ms", "max_duration_ms", "max_query_count", "qsl_rng_seed", "sample_index_rng_seed",
    "schedule_rng_seed", "accuracy_log_rng_seed", "accuracy_log_probability", "accuracy_log_sampling_target",
    "print_timestamps", "performance_issue_unique", "performance_issue_same", "performance_issue_same_index",
    "sample_concatenate_permutation",
)  # fmt: skip
# Settings that LoadGen logs under two names, by scenario.
_BY_COUNT = (
    ("effective_target_duration_ms", "effective_min_duration_ms"),
    ("effective_min_sample_count", "effective_min_query_count"),
    ("effective_samples_per_query", "generated_samples_per_query"),
)
_SAME_VALUE = {
    "Offline": (
        ("requested_offline_expected_qps", "effective_target_qps"),
        ("effective_min_sample_count", "effective_samples_per_query"),
    ),
    "Server": (
        ("requested_server_target_qps", "effective_target_qps"),
        ("requested_server_target_latency_ns", "effective_target_latency_ns"),
        ("requested_server_target_latency_percentile", "effective_target_latency_percentile"),
        ("requested_server_max_async_queries", "effective_max_async_queries"),
        ("requested_min_query_count", "effective_min_query_count"),
        *_BY_COUNT,
    ),
    "SingleStream": (
        ("requested_single_stream_target_latency_percentile", "effective_target_latency_percentile"),
        *_BY_COUNT,
    ),
    "MultiStream": (
        ("requested_multi_stream_target_latency_percentile", "effective_target_latency_percentile"),
        ("requested_multi_stream_samples_per_query", "effective_samples_per_query"),
        ("effective_target_duration_ms", "effective_min_duration_ms"),
        ("effective_samples_per_query", "generated_samples_per_query"),
        ("result_max_latency_ns", "result_max_query_latency_ns"),
    ),
}


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
        for contradiction in _error_count(detail):
            yield contradicted("log-arithmetic", contradiction, detail.path)
        return
    clocks = itertools.chain(_dates(detail), _records(detail))
    by_rule = [
        ("log-settings", _settings(detail)), ("log-order", _loaded_set(detail)), ("log-clock", clocks),
        ("log-test-date", _test_date(detail)),
    ]  # fmt: skip
    if numbers is not None and detail.has_results:
        arithmetic = itertools.chain(
            _error_count(detail), _counts(detail), _order(detail, numbers), _verdict(detail),
            _duration(detail, numbers), _rates(detail, numbers), _estimates(detail), _latency(detail, numbers),
        )  # fmt: skip
        by_rule += [("log-arithmetic", arithmetic), ("log-clock", _clock(detail, numbers))]
    for rule, contradictions in by_rule:
        for contradiction in contradictions:
            yield contradicted(rule, contradiction, detail.path)


def contradicted(rule: str, contradiction: Contradiction, *files: Path) -> Finding:
    """Return the finding on values that exclude each other."""
    return stated(
        rule, "", *files, found=contradiction.found, required=contradiction.required, decided_by=contradiction.keys
    )


Formula = tuple[str, tuple[str, ...]]  # how a number is computed from the log, and the keys that it is computed from
_OFFLINE, _STREAM, _MEAN_LATENCY = RATE_KEYS["Offline"], RATE_KEYS["SingleStream"], "result_mean_latency_ns"
DURATION_FROM: dict[str, Formula] = {
    "Offline": ("maximum latency", ("result_max_latency_ns",)),
    "Server": ("(queries - 1) ÷ scheduled samples/s", (_SERVER["scheduled_samples_per_second"], "result_query_count")),
    "SingleStream": ("(queries - 1) ÷ samples/s", (_STREAM["samples_per_second"], "result_query_count")),
}
TOKENS_FROM: dict[str, Formula] = {
    "Offline": ("tokens/s ÷ samples/s", (_OFFLINE["tokens_per_second"], _OFFLINE["samples_per_second"])),
    "Server": ("tokens/s ÷ samples/s", (_SERVER["tokens_per_second"], _SERVER["samples_per_second"])),
    "SingleStream": ("tokens/s × mean latency", (_STREAM["tokens_per_second_without_overhead"], _MEAN_LATENCY)),
}


def duration_ns(detail: DetailLog, numbers: Numbers) -> float | None:
    """Return the duration that LoadGen compares with the minimum duration, computed from rates to five digits."""
    if detail.scenario == "Offline":
        return float(numbers.latency_ns.max) if numbers.latency_ns else None
    rate = numbers.scheduled_samples_per_second if detail.scenario == "Server" else numbers.samples_per_second
    return (detail.integer("result_query_count") - 1) * 1e9 / rate if rate else None


def mean_output_tokens(detail: DetailLog, numbers: Numbers) -> float | None:
    """Return the output tokens per sample, computed from two rates to four digits."""
    if not numbers.tokens_per_second or not numbers.samples_per_second:
        return None
    if detail.scenario == "Offline":
        return numbers.tokens_per_second / numbers.samples_per_second
    if detail.scenario == "SingleStream":  # tokens/s and samples/s of SingleStream are means over different times
        tokens = numbers.tokens_per_second_without_overhead
        return tokens * numbers.latency_ns.mean / 1e9 if tokens and numbers.latency_ns else None
    # For n queries, LoadGen's samples/s counts n - 1 samples, but tokens/s counts the tokens of all n queries.
    count = detail.integer("result_query_count")
    return numbers.tokens_per_second / numbers.samples_per_second * (count - 1) / count if count else None


def _settings(detail: DetailLog) -> Iterator[Contradiction]:
    pairs = [(f"requested_{name}", f"effective_{name}") for name in _SAME_NAME]
    pairs += _SAME_VALUE.get(detail.scenario, ())
    override = "requested_performance_sample_count_override"
    of_set = override if detail.get(override) else "qsl_reported_performance_count"
    pairs.append((of_set, "effective_performance_sample_count"))
    for first, second in pairs:
        requested, effective = detail.get(first), detail.get(second)
        if requested is not None and effective is not None and requested != effective:
            yield Contradiction(f"{first} is {requested}, {second} is {effective}", (first, second))


def _dates(detail: DetailLog) -> Iterator[Contradiction]:
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


def _test_date(detail: DetailLog) -> Iterator[Contradiction]:
    """Compare the date of the test with the build of LoadGen and with today. Honest hosts may have a wrong clock."""
    tested, built = local_test_date(detail), _date(detail, _BUILT[0])
    if tested is None:
        return
    began = f"the test began at {tested:%Y-%m-%d %H:%M}"
    if built is not None and tested < built - BUILD_CLOCKS:
        yield Contradiction(began, (TEST_DATE, _BUILT[0]), f"LoadGen was built at {built:%Y-%m-%d %H:%M}")
    if tested > (now := datetime.now(UTC)) + ZONES:
        yield Contradiction(began, (TEST_DATE,), f"it is {now:%Y-%m-%d %H:%M}")


def _records(detail: DetailLog) -> Iterator[Contradiction]:
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


def local_test_date(detail: DetailLog) -> datetime | None:
    """Return the local time of the start of the test, as if it were UTC; None if it is invalid."""
    return _date(detail, TEST_DATE)


def _date(detail: DetailLog, key: str) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(str(detail.get(key)).removesuffix("Z")).replace(tzinfo=UTC)
    return None


def _loaded_set(detail: DetailLog) -> Iterator[Contradiction]:
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


def _latency(detail: DetailLog, numbers: Numbers) -> Iterator[Contradiction]:
    """Compare the mean latency with the means of TTFT, TPOT and tokens."""
    latency, ttft, tpot = numbers.latency_ns, numbers.ttft_ns, numbers.tpot_ns
    tokens = mean_output_tokens(detail, numbers)
    if latency is None or ttft is None or tpot is None or not tokens or not detail.uses_token_latencies:
        return
    if detail.integer("result_query_count") * _of_query(detail) < LATENCY_SAMPLES.get(detail.scenario, math.inf):
        return
    computed_ns = ttft.mean + tpot.mean * (tokens - 1)
    low, high = LATENCY_SHARES
    if computed_ns > 0 and not low <= (share := latency.mean / computed_ns) <= high:
        keys = (_MEAN_LATENCY, *(dict(latency_keys(name, detail.scenario))["mean"] for name in ("ttft_ns", "tpot_ns")))
        means = f"TTFT {ttft.mean / 1e6:.1f} ms, TPOT {tpot.mean / 1e6:.2f} ms, {tokens:.1f} tokens"
        yield Contradiction(
            f"the mean latency is {latency.mean / 1e6:.1f} ms, {share:.2f} × the latency by the other means ({means})",
            keys,
            f"{low} to {high}",
        )


def _order(detail: DetailLog, numbers: Numbers) -> Iterator[Contradiction]:
    queries = detail.integer("result_query_count")
    samples = queries * _of_query(detail)
    measured = samples if detail.scenario == "Offline" else queries
    for name in LATENCIES:
        values = getattr(numbers, name)
        if values is None:
            continue
        keys = dict(latency_keys(name, detail.scenario))
        steps = [(key, getattr(values, key)) for key in ("min", *PERCENTILE_NAMES, "max")]
        for (low, below), (high, above) in itertools.pairwise(steps):
            if below > above:
                yield Contradiction(f"{name}: {low} {below} is above {high} {above}", (keys[low], keys[high]))
        overflows = samples * values.max >= 2**63  # LoadGen's 64-bit sum overflows, as in dlrm-v2
        if not overflows and not values.min <= values.mean <= values.max:
            yield Contradiction(
                f"{name}: the mean {values.mean} is outside {values.min} to {values.max}", (keys["mean"],)
            )
        elif not overflows and measured > 0 and not (between := _mean_between(values, measured))[0] <= values.mean:
            yield Contradiction(
                f"{name}: the mean {values.mean} is below {between[0]:.0f}, the minimum by percentiles", (keys["mean"],)
            )
        elif not overflows and measured > 0 and not values.mean <= between[1]:
            yield Contradiction(
                f"{name}: the mean {values.mean} is above {between[1]:.0f}, the maximum by percentiles", (keys["mean"],)
            )


def _mean_between(values: LatencyNumbers, count: int) -> tuple[float, float]:
    """Return the lowest and the highest mean that these percentiles allow. Each percentile may be one value off."""
    shares = (0.0, *PERCENTILE_SHARES.values(), 1.0)
    steps = [values.min, *(getattr(values, name) for name in PERCENTILE_SHARES), values.max]
    weights = [later - earlier for earlier, later in itertools.pairwise(shares)]
    slack = 1 + 2 * (values.max - values.min) / count
    least = sum(weight * step for weight, step in zip(weights, steps[:-1], strict=True))
    most = sum(weight * step for weight, step in zip(weights, steps[1:], strict=True))
    return least - slack, most + slack


def _verdict(detail: DetailLog) -> Iterator[Contradiction]:
    keys = ("result_min_duration_met", "result_min_queries_met", "result_perf_constraints_met", "early_stopping_met")
    met = all(detail.flag(key) is not False for key in keys)
    if (detail.validity == "VALID") != met:
        yield Contradiction(
            f"result_validity is {detail.validity}",
            ("result_validity", *keys),
            f"its conditions are {'all met' if met else 'not all met'}",
        )
    yield from _conditions(detail)
    if detail.scenario == "Server" and detail.uses_token_latencies:
        pairs = [
            ("result_first_token_99.00_percentile_latency_ns", "requested_server_ttft_latency"),
            ("result_time_per_output_token_99.00_percentile_ns", "requested_server_tpot_latency"),
        ]
        kept = all(detail.integer(value) <= detail.integer(limit) for value, limit in pairs)
        at_p99 = detail.get("effective_target_latency_percentile") == 0.99
        if at_p99 and detail.flag("result_perf_constraints_met") is not kept:
            key = "result_perf_constraints_met"
            yield Contradiction(f"{key} is {detail.flag(key)}", (key,), f"the p99 values and the limits imply {kept}")


def _conditions(detail: DetailLog) -> Iterator[Contradiction]:
    """Compare the conditions of LoadGen's verdict with the numbers that decide them."""
    queries = detail.integer("result_query_count")
    samples = queries * _of_query(detail)
    enough = queries >= detail.integer("effective_min_query_count")
    follows = {"result_min_queries_met": enough and samples >= int(detail.get("effective_min_sample_count") or 0)}
    if detail.scenario == "Server" and not detail.uses_token_latencies:
        late, share = detail.integer("result_overlatency_query_count"), 0.99
        if detail.get("effective_target_latency_percentile") == share:
            p99, limit = (detail.integer(key) for key in ("result_99.00_percentile_latency_ns", _TARGET_LATENCY))
            follows |= {"result_perf_constraints_met": p99 <= limit}
            follows |= {"early_stopping_met": 0 <= late <= queries and queries >= min_queries(late, share)}
    for key, wanted in follows.items():
        if detail.flag(key) is not None and detail.flag(key) is not wanted:
            yield Contradiction(f"{key} is {detail.flag(key)}", (key,), f"the other numbers of the log imply {wanted}")


def _late(detail: DetailLog, queries: int, late: int) -> Iterator[Contradiction]:
    """Compare the number of late queries with the percentiles of the latency."""
    limit = detail.integer(_TARGET_LATENCY)
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
    samples = _of_query(detail)
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


def _of_query(detail: DetailLog) -> int:
    """Return the minimum number of samples per query. An older LoadGen does not log the samples that it added."""
    return detail.samples_per_query or detail.integer("generated_samples_per_query")


def _error_count(detail: DetailLog) -> Iterator[Contradiction]:
    counted = detail.has_results and (detail.counts_errors or "num_errors" in detail.values)
    if counted and detail.get("num_errors") != detail.error_count:
        yield Contradiction(
            f"num_errors is {detail.get('num_errors')}", ("num_errors",), f"the log has {detail.error_count} errors"
        )


def _counts(detail: DetailLog) -> Iterator[Contradiction]:
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


def _duration(detail: DetailLog, numbers: Numbers) -> Iterator[Contradiction]:
    took_ns = duration_ns(detail, numbers)
    if took_ns is None or numbers.latency_ns is None:
        return
    needed_ns = detail.integer("effective_min_duration_ms") * 1_000_000
    met = detail.flag("result_min_duration_met")
    if abs(took_ns - needed_ns) > PRINTED * needed_ns and met is not (took_ns >= needed_ns):
        key = "result_min_duration_met"
        yield Contradiction(f"{key} is {met}", (key,), f"the run took {took_ns / 1e9:.2f} s of {needed_ns / 1e9:g} s")


def _clock(detail: DetailLog, numbers: Numbers) -> Iterator[Contradiction]:
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


def _rates(detail: DetailLog, numbers: Numbers) -> Iterator[Contradiction]:
    latency, queries = numbers.latency_ns, detail.integer("result_query_count")
    if latency is None or latency.max <= 0 or latency.mean <= 0:
        return
    keys = RATE_KEYS.get(detail.scenario, {})
    if detail.scenario == "Offline":
        if (samples := detail.samples_per_query) is not None:
            computed = queries * samples * 1e9 / latency.max
            yield from _differs("samples/s", keys["samples_per_second"], numbers.samples_per_second, computed)
        return
    if detail.scenario == "MultiStream":
        return  # The only score is a latency.
    single = detail.scenario == "SingleStream"
    if single:
        rate, key = numbers.samples_per_second_without_overhead, keys["samples_per_second_without_overhead"]
        yield from _differs("1 / mean latency", key, rate, 1e9 / latency.mean)
        busy_ns, rate = queries * latency.mean - latency.max, numbers.samples_per_second
        if rate is not None and busy_ns > 0 and rate > (queries - 1) * 1e9 / busy_ns * (1 + 3 * PRINTED):
            most = (queries - 1) * 1e9 / busy_ns
            yield Contradiction(
                f"queries/s is {rate:.8g}",
                (keys["samples_per_second"],),
                f"queries without overlap allow at most {most:.8g}",
            )
    else:
        yield from _schedule(detail, queries, numbers)
        yield from _completed(queries, numbers, latency)
    mean, took_ns = mean_output_tokens(detail, numbers), duration_ns(detail, numbers)
    if mean and took_ns:
        tokens = _single_stream_tokens if single else _server_tokens
        yield from tokens(numbers, latency, mean, mean * queries, took_ns)


def _completed(queries: int, numbers: Numbers, latency: LatencyNumbers) -> Iterator[Contradiction]:
    """Compare the completed and the scheduled rate in Server. Their ratio implies the latency of the last query."""
    done, scheduled = numbers.samples_per_second, numbers.scheduled_samples_per_second
    if not done or not scheduled:
        return
    last_ns = (queries - 1) * (1e9 / done - 1e9 / scheduled)
    slack_ns = PRINTED * 2 * queries * 1e9 / min(done, scheduled) + 1e6
    keys = _SERVER["samples_per_second"], _SERVER["scheduled_samples_per_second"]
    stated, most = f"completed samples/s is {done:.8g}", f"scheduled samples/s {scheduled:.8g}"
    yield from _last_latency(stated, most, last_ns, slack_ns, latency, keys)


def _last_latency(
    stated: str, most: str, last_ns: float, slack_ns: float, latency: LatencyNumbers, keys: Iterable[str]
) -> Iterator[Contradiction]:
    """Compare the latency of the last query, which a completed rate implies, with the range of the latencies.

    Args:
        most: The rate without the last query's latency, which the completed rate cannot exceed.
    """
    if last_ns < -slack_ns:
        yield Contradiction(stated, tuple(keys), f"must be at most {most}")
    elif not latency.min - slack_ns <= last_ns <= latency.max + slack_ns:
        between = f"the latencies are between {latency.min / 1e6:.3f} and {latency.max / 1e6:.3f} ms"
        yield Contradiction(
            f"{stated}, which gives a last query latency of {last_ns / 1e6:.3f} ms", tuple(keys), between
        )


def _differs(name: str, key: str, stated: float | None, computed: float) -> Iterator[Contradiction]:
    if stated is not None and not abs(stated - computed) <= 3 * PRINTED * abs(computed):
        yield Contradiction(f"{name} is {stated:.8g}", (key,), f"the other numbers of the log imply {computed:.8g}")


def _single_stream_tokens(
    numbers: Numbers, latency: LatencyNumbers, mean: float, total: float, took_ns: float
) -> Iterator[Contradiction]:
    name, keys = "tokens/s with LoadGen's overhead", RATE_KEYS["SingleStream"]
    yield from _differs(
        name, keys["tokens_per_second_with_overhead"], numbers.tokens_per_second_with_overhead, total * 1e9 / took_ns
    )
    if not numbers.tokens_per_second:
        return
    # Completed tokens/s includes the time until the last query ends.
    slack_ns = 3 * PRINTED * took_ns
    last_ns = total * 1e9 / numbers.tokens_per_second - took_ns
    stated = f"tokens/s is {numbers.tokens_per_second:.8g}"
    most = f"tokens/s with LoadGen's overhead {total * 1e9 / took_ns:.8g}"
    yield from _last_latency(stated, most, last_ns, slack_ns, latency, (keys["tokens_per_second"],))


def _server_tokens(
    numbers: Numbers, latency: LatencyNumbers, mean: float, total: float, took_ns: float
) -> Iterator[Contradiction]:
    name = "tokens/s over the mean latency"
    key, rate = _SERVER["tokens_per_second_without_overhead"], numbers.tokens_per_second_without_overhead
    yield from _differs(name, key, rate, mean * 1e9 / latency.mean)
    rate_with_overhead = numbers.tokens_per_second_with_overhead
    if rate_with_overhead is not None:  # rate over the time until the last issue, which may be later than scheduled
        most = total * 1e9 / took_ns
        least = most * took_ns / (took_ns + latency.max)
        if not least * (1 - 3 * PRINTED) <= rate_with_overhead <= most * (1 + 3 * PRINTED):
            name = "tokens/s with LoadGen's overhead"
            yield Contradiction(
                f"{name} is {rate_with_overhead:.8g}",
                (_SERVER["tokens_per_second_with_overhead"],),
                f"must be between {least:.8g} and {most:.8g}",
            )


def _schedule(detail: DetailLog, queries: int, numbers: Numbers) -> Iterator[Contradiction]:
    """Compare the schedule of a Server run with its seed, unless LoadGen's random numbers are unknown."""
    qps = detail.number("effective_target_qps")
    if not qps > 0 or not 1 < queries + 1 <= REPLAYABLE or loaded_samples(detail, queries) is None:
        return
    offsets_ns = np.asarray(poisson_offsets_ns(detail.seeds.schedule_rng_seed, qps, queries + 1))
    if offsets_ns[-2] <= 0:
        return
    rate = (queries - 1) * 1e9 / float(offsets_ns[-2])
    key, length = _SERVER["scheduled_samples_per_second"], "generated_query_duration"
    yield from _differs("scheduled samples/s", key, numbers.scheduled_samples_per_second, rate)
    yield from _differs(length, length, detail.number(length), float(offsets_ns[-1]))


def _estimates(detail: DetailLog) -> Iterator[Contradiction]:
    """Compare the early stopping estimates in text and as numbers with each other and with the percentiles."""
    text = detail.get("early_stopping_ttft_result", detail.get("early_stopping_result"))
    if detail.scenario not in ("SingleStream", "MultiStream") or not isinstance(text, str):
        return
    words, highest = text.split(), detail.integer("result_max_latency_ns")
    keys = dict(latency_keys("latency_ns", detail.scenario))
    for key, name in (("early_stopping_latency_ss", "p90"), ("early_stopping_latency_ms", "p99")):
        value = detail.get(key)
        if not value:
            continue
        if str(value) not in words:
            yield Contradiction(f"{key} is {value}", (key,), "the early stopping text does not contain this value")
        lowest = detail.integer(keys[name])
        if not detail.uses_token_latencies and not lowest <= value <= highest:
            yield Contradiction(
                f"{key} is {value}", (key,), f"must be between {name} {lowest} and the maximum latency {highest}"
            )
