"""Durations and token counts that follow from the rates and latencies in a detail log."""

from runs.loadgen.detail_log import SIX_DIGITS, DetailLog
from runs.numbers.numbers import RATE_KEYS, Numbers

PRINTED = 2 * SIX_DIGITS  # tolerance for the quotient of two printed rates
TARGET_LATENCY = "effective_target_latency_ns"
Formula = tuple[str, tuple[str, ...]]  # how a number is computed from the log, and the keys that it is computed from
_OFFLINE, _STREAM, MEAN_LATENCY = RATE_KEYS["Offline"], RATE_KEYS["SingleStream"], "result_mean_latency_ns"
_SERVER = RATE_KEYS["Server"]
DURATION_FROM: dict[str, Formula] = {
    "Offline": ("maximum latency", ("result_max_latency_ns",)),
    "Server": ("(queries - 1) ÷ scheduled samples/s", (_SERVER["scheduled_samples_per_second"], "result_query_count")),
    "SingleStream": ("(queries - 1) ÷ samples/s", (_STREAM["samples_per_second"], "result_query_count")),
}
TOKENS_FROM: dict[str, Formula] = {
    "Offline": ("tokens/s ÷ samples/s", (_OFFLINE["tokens_per_second"], _OFFLINE["samples_per_second"])),
    "Server": ("tokens/s ÷ samples/s", (_SERVER["tokens_per_second"], _SERVER["samples_per_second"])),
    "SingleStream": ("tokens/s × mean latency", (_STREAM["tokens_per_second_without_overhead"], MEAN_LATENCY)),
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


def min_samples_per_query(detail: DetailLog) -> int:
    """Return the minimum number of samples per query. An older LoadGen does not log the samples that it added."""
    return detail.samples_per_query or detail.integer("generated_samples_per_query")
