"""Rates in a detail log, compared with each other, with the latencies, and with the schedule of the seeds."""

from collections.abc import Iterable, Iterator

import numpy as np

from compliance.results.log_numbers import PRINTED, duration_ns, mean_output_tokens
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.replay import REPLAYABLE, loaded_samples
from runs.loadgen.schedule import poisson_offsets_ns
from runs.loadgen.summary_log import Contradiction
from runs.numbers.numbers import RATE_KEYS, LatencyNumbers, Numbers

_SERVER = RATE_KEYS["Server"]


def compare_rates(detail: DetailLog, numbers: Numbers) -> Iterator[Contradiction]:
    """Compare the rates with the counts, the latencies and the schedule."""
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
