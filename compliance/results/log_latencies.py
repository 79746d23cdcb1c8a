"""Latencies in a detail log, compared with each other, with the conditions of a VALID run, and with the estimates."""

import itertools
import math
from collections.abc import Iterator

from compliance.results.log_numbers import (
    MEAN_LATENCY,
    PRINTED,
    TARGET_LATENCY,
    duration_ns,
    mean_output_tokens,
    min_samples_per_query,
)
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.early_stopping import min_queries
from runs.loadgen.summary_log import Contradiction
from runs.numbers.numbers import LATENCIES, PERCENTILE_NAMES, PERCENTILE_SHARES, LatencyNumbers, Numbers, latency_keys

# Mean latency, relative to mean TTFT + mean TPOT × (mean tokens - 1): 0.992 to 1.017 in 117 published results.
# Shorter runs are not compared: tests run LoadGen with fewer samples around a system whose latency does not depend on
# the number of tokens.
LATENCY_SHARES = (0.95, 1.05)
LATENCY_SAMPLES = {"Offline": 5_000, "Server": 5_000, "SingleStream": 1_000}


def compare_percentiles(detail: DetailLog, numbers: Numbers) -> Iterator[Contradiction]:
    """Check that percentiles rise, and that the mean lies where the percentiles allow."""
    queries = detail.integer("result_query_count")
    samples = queries * min_samples_per_query(detail)
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


def compare_mean_latency(detail: DetailLog, numbers: Numbers) -> Iterator[Contradiction]:
    """Compare the mean latency with the means of TTFT, TPOT and tokens."""
    latency, ttft, tpot = numbers.latency_ns, numbers.ttft_ns, numbers.tpot_ns
    tokens = mean_output_tokens(detail, numbers)
    if latency is None or ttft is None or tpot is None or not tokens or not detail.uses_token_latencies:
        return
    if detail.integer("result_query_count") * min_samples_per_query(detail) < LATENCY_SAMPLES.get(
        detail.scenario, math.inf
    ):
        return
    computed_ns = ttft.mean + tpot.mean * (tokens - 1)
    low, high = LATENCY_SHARES
    if computed_ns > 0 and not low <= (share := latency.mean / computed_ns) <= high:
        keys = (MEAN_LATENCY, *(dict(latency_keys(name, detail.scenario))["mean"] for name in ("ttft_ns", "tpot_ns")))
        means = f"TTFT {ttft.mean / 1e6:.1f} ms, TPOT {tpot.mean / 1e6:.2f} ms, {tokens:.1f} tokens"
        yield Contradiction(
            f"the mean latency is {latency.mean / 1e6:.1f} ms, {share:.2f} × the latency by the other means ({means})",
            keys,
            f"{low} to {high}",
        )


def compare_validity(detail: DetailLog) -> Iterator[Contradiction]:
    """Compare the verdict with its conditions, and the conditions with the numbers."""
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
    samples = queries * min_samples_per_query(detail)
    enough = queries >= detail.integer("effective_min_query_count")
    follows = {"result_min_queries_met": enough and samples >= int(detail.get("effective_min_sample_count") or 0)}
    if detail.scenario == "Server" and not detail.uses_token_latencies:
        late, share = detail.integer("result_overlatency_query_count"), 0.99
        if detail.get("effective_target_latency_percentile") == share:
            p99, limit = (detail.integer(key) for key in ("result_99.00_percentile_latency_ns", TARGET_LATENCY))
            follows |= {"result_perf_constraints_met": p99 <= limit}
            follows |= {"early_stopping_met": 0 <= late <= queries and queries >= min_queries(late, share)}
    for key, wanted in follows.items():
        if detail.flag(key) is not None and detail.flag(key) is not wanted:
            yield Contradiction(f"{key} is {detail.flag(key)}", (key,), f"the other numbers of the log imply {wanted}")


def compare_duration(detail: DetailLog, numbers: Numbers) -> Iterator[Contradiction]:
    """Compare the condition on the duration with the duration."""
    took_ns = duration_ns(detail, numbers)
    if took_ns is None or numbers.latency_ns is None:
        return
    needed_ns = detail.integer("effective_min_duration_ms") * 1_000_000
    met = detail.flag("result_min_duration_met")
    if abs(took_ns - needed_ns) > PRINTED * needed_ns and met is not (took_ns >= needed_ns):
        key = "result_min_duration_met"
        yield Contradiction(f"{key} is {met}", (key,), f"the run took {took_ns / 1e9:.2f} s of {needed_ns / 1e9:g} s")


def compare_estimates(detail: DetailLog) -> Iterator[Contradiction]:
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
