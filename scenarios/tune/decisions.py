"""The decision between two settings of a search, from probes of both at one rate.

The margin of a probe is the logarithm of a latency limit over the p99 latency, for the limit that is nearer. Probes of
equal settings at one rate show how much the margin varies between equal runs. A setting is better if the interval of
the difference of the margins excludes 0.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from runs.numbers.intervals import ERROR, Interval, anytime_difference, anytime_quantile, pooled_variance
from scenarios.tune.journal import SchedulingOptions, TuneRun, best_probe, with_options

MAX_PAIRS = 4  # maximum number of probes of each setting for one decision


def margin(probe: TuneRun) -> float | None:
    """Return the logarithm of limit ÷ p99 of the latency that is nearer to its limit; None without latencies."""
    latencies = ((probe.ttft_p99_ms, probe.ttft_limit_ms), (probe.tpot_p99_ms, probe.tpot_limit_ms))
    return min((math.log(limit / p99) for p99, limit in latencies if p99 and limit), default=None)


def _margins(probes: Sequence[TuneRun]) -> dict[tuple[str, float], list[float]]:
    """Return the margins by settings and rate."""
    groups: dict[tuple[str, float], list[float]] = {}
    for probe in probes:
        if probe.verdict and (value := margin(probe)) is not None:
            groups.setdefault(_place(probe.options, probe.target_qps), []).append(value)
    return groups


def _place(options: SchedulingOptions, rate: float) -> tuple[str, float]:
    return str(sorted(options.items())), rate


def advantage(probes: Sequence[TuneRun], options: SchedulingOptions, base: SchedulingOptions, rate: float) -> Interval:
    """Return the difference between the margins of two settings at a rate, with its interval.

    Args:
        probes: all probes of the search; repeated probes show the noise.
    """
    groups = _margins(probes)
    before, after = (groups.get(_place(side, rate), []) for side in (base, options))
    return anytime_difference(before, after, [*groups.values()], ERROR)


def smallest_gain(probes: Sequence[TuneRun]) -> float | None:
    """Return the gain in rate, as a share, below which no decision of a search is clear; None if it is unknown.

    It is the half-width of the interval after all probes of a decision, divided by how fast the margin falls with the
    logarithm of the rate.
    """
    groups = _margins(probes)
    repeated, steepness = [group for group in groups.values() if len(group) > 1], _steepness(groups)
    if not repeated or steepness is None:
        return None
    noise, count = pooled_variance(repeated), MAX_PAIRS / 2
    gain = anytime_quantile(ERROR, count, noise.freedom) * math.sqrt(noise.value / count) / steepness
    return math.expm1(gain) if math.isfinite(gain) else None


def _steepness(groups: Mapping[tuple[str, float], Sequence[float]]) -> float | None:
    """Return how much the margin falls per unit of the logarithm of the rate, within equal settings; None if it does
    not fall.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    for (settings, rate), group in groups.items():
        points.setdefault(settings, []).append((math.log(rate), fmean(group)))
    products, squares = 0.0, 0.0
    for places in points.values():
        center = [fmean(values) for values in zip(*places, strict=True)]
        products += sum((rate - center[0]) * (value - center[1]) for rate, value in places)
        squares += sum((rate - center[0]) ** 2 for rate, _ in places)
    return -products / squares if products < 0 else None


def is_better(probes: Sequence[TuneRun], options: SchedulingOptions, base: SchedulingOptions) -> bool:
    """Return whether settings are better than others at a rate at which both have probes."""
    rates = {probe.target_qps for probe in probes if probe.options == options}
    common = {probe.target_qps for probe in probes if probe.options == base and probe.target_qps in rates}
    return any(advantage(probes, options, base, rate).low > 0 for rate in common)


def next_of_pair(
    probes: Sequence[TuneRun], options: SchedulingOptions, base: SchedulingOptions, rate: float
) -> SchedulingOptions | None:
    """Return the settings of the next probe for a decision at a rate; None if the decision is clear, or if each setting
    has `MAX_PAIRS` probes.

    The settings take turns in the order A B B A, so that linear drift of the machine cancels.
    """
    at_rate = [probe for probe in probes if probe.target_qps == rate and probe.options in (options, base)]
    counts = [sum(probe.options == side for probe in at_rate) for side in (options, base)]
    if min(counts) >= MAX_PAIRS or advantage(probes, options, base, rate).excludes_zero:
        return None
    if counts[0] == counts[1]:
        return at_rate[-1].options if at_rate else options
    return options if counts[0] < counts[1] else base


def recommendable(probes: Sequence[TuneRun]) -> list[TuneRun]:
    """Return the probes of the settings that the search may recommend.

    They are the given settings, and each setting that was better than the best one before its trial. Settings replace
    the best settings that have one option more, if they are VALID at the best rate, or if the best settings are not
    better.
    """
    accepted: list[SchedulingOptions] = []
    for number in dict.fromkeys(probe.trial for probe in probes):
        places = [place for place, probe in enumerate(probes) if probe.trial == number]
        before = [probe for probe in probes[: places[0]] if probe.options in accepted]
        after = probes[: places[-1] + 1]
        own = next(probe for place in places if (probe := probes[place]).phase != "base")
        best = best_probe(before)
        if best is None or own.phase != "trial" or is_better(after, own.options, best.options):
            accepted.append(own.options)
        without = best_probe(with_options(after, own.options))
        if best is not None and own.phase == "worth" and without is not None:
            is_needed = without.target_qps < best.target_qps and is_better(after, best.options, own.options)
            accepted = [options for options in accepted if is_needed or options != best.options]
    return [probe for probe in probes if probe.options in accepted]
