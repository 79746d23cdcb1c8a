"""Which settings of the scheduling options are probed next, and at which rate: a function of the probes so far.

The settings given (the defaults) are probed first, until their highest valid rate is known. Every trial after that
begins a little above the best rate so far: one that is INVALID there is over with that probe, which is stopped early;
only one that is VALID goes on upwards. At the end each option of the best settings is put back, one at a time, which
tells what it is worth. One without which the best rate is still VALID is left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from scenarios.tune.option_sampler import ScoredOptions
from scenarios.tune.option_space import Options, Space
from scenarios.tune.rates import MOST_PROBES, Bracket, Tried, next_rate, rounded

Phase = Literal["defaults", "trial", "worth"]

RESOLUTION = 0.03  # of a trial's rate: a difference smaller than this is not looked for
WORTH_PROBES = 4  # for one option; those below the best rate's come after one that was stopped early
WORTH_SHARE = 0.3  # of the time, kept for the question what each option is worth


@dataclass(frozen=True)
class Probe:
    """One probe of the search."""

    trial: int  # 0: the defaults
    phase: Phase
    options: Options
    target_qps: float
    valid: bool | None  # None: the leg failed, as with an engine that refuses the settings
    held: float  # share of its queries that were answered when its verdict was certain


@dataclass(frozen=True)
class Limits:
    """How far the search goes."""

    scenario: str
    offline_qps: float
    most_trials: int
    budget_s: float


@dataclass(frozen=True)
class Ask:
    """The next probe."""

    trial: int
    phase: Phase
    options: Options
    target_qps: float


@dataclass(frozen=True)
class Best:
    """The best settings so far and the highest rate that was VALID with them."""

    options: Options
    target_qps: float


@dataclass(frozen=True)
class Worth:
    """What one option of the best settings is worth: the rates with it put back, all other options as they are."""

    name: str
    without: Options
    bracket: Bracket
    probes: int  # behind the bracket

    def shares(self, best: Best) -> tuple[float | None, float | None]:
        """At least and at most how much higher the best rate is, as shares of the rate without the option."""
        at_least = None if self.bracket.invalid is None else max(0.0, best.target_qps / self.bracket.invalid - 1)
        at_most = None if self.bracket.valid is None else max(0.0, best.target_qps / self.bracket.valid - 1)
        return at_least, at_most


Suggest = Callable[[Space, Sequence[ScoredOptions], Options], Options | None]


def next_ask(space: Space, probes: Sequence[Probe], spent_s: float, limits: Limits, suggest: Suggest) -> Ask | None:
    """The next probe, or None when the search is over.

    Args:
        probes: all so far, in their order.
        spent_s: the time they took.
    """
    if spent_s >= limits.budget_s:
        return None
    rate = _rate_of_defaults(probes, limits)
    if rate is not None:
        return Ask(0, "defaults", {}, rate)
    best = best_of(probes)
    if best is None:
        return None
    last = probes[-1]
    rate = _higher(probes, limits) if last.phase == "trial" else None
    if rate is not None:
        return Ask(last.trial, "trial", last.options, rate)
    kept_s = WORTH_SHARE * limits.budget_s if best.options else 0.0
    if trials_of(probes) < limits.most_trials and spent_s < limits.budget_s - kept_s:
        options = suggest(space, scores(probes), best.options)
        if options is not None:
            return Ask(last.trial + 1, "trial", options, rounded(best.target_qps * (1 + RESOLUTION)))
    return _ask_worth(space, probes, best, limits)


def best_of(probes: Sequence[Probe]) -> Best | None:
    """The settings with the highest valid rate; of equal ones those with the fewest options, then the earliest."""
    valid = [probe for probe in probes if probe.valid]
    if not valid:
        return None
    top = max(valid, key=lambda probe: (probe.target_qps, -len(probe.options)))
    return Best(top.options, top.target_qps)


def trials_of(probes: Sequence[Probe]) -> int:
    """How many settings were tried beside the defaults; those that only put an option back do not count."""
    return len({probe.trial for probe in probes if probe.phase == "trial"})


def tried_with(probes: Sequence[Probe], options: Options) -> list[Tried]:
    """All rates with a verdict for some settings."""
    return [
        Tried(probe.target_qps, probe.valid) for probe in probes if probe.options == options and probe.valid is not None
    ]


def scores(probes: Sequence[Probe]) -> list[ScoredOptions]:
    """All settings tried, in the order of their first probe, with a score.

    The highest rate that was VALID, or, where none was, a rate that failed, less what of the leg it did not hold: of
    two that fail at one rate, the one whose failure shows later is the better.
    """
    settings: list[Options] = []
    for probe in probes:
        if probe.options not in settings:
            settings.append(probe.options)
    return [
        ScoredOptions(options, _score([probe for probe in probes if probe.options == options])) for options in settings
    ]


def worths(space: Space, probes: Sequence[Probe], best: Best) -> list[Worth]:
    """What is known of each option of the best settings."""
    found = []
    for name in best.options:
        without = space.reduced({key: value for key, value in best.options.items() if key != name})
        tried = tried_with(probes, without)
        found.append(Worth(name, without, Bracket.of(tried), len(tried)))
    return found


def _score(probes: Sequence[Probe]) -> float:
    valid = [probe.target_qps for probe in probes if probe.valid]
    return max(valid) if valid else max(probe.target_qps * probe.held for probe in probes)


def _rate_of_defaults(probes: Sequence[Probe], limits: Limits) -> float | None:
    tried = tried_with([probe for probe in probes if probe.phase == "defaults"], {})
    return next_rate(limits.scenario, limits.offline_qps, tried, resolution=RESOLUTION, most_probes=MOST_PROBES)


def _higher(probes: Sequence[Probe], limits: Limits) -> float | None:
    """The next rate of the last trial; None when it is over."""
    last = [probe for probe in probes if probe.trial == probes[-1].trial]
    tried = tried_with(last, last[-1].options)
    if last[-1].valid is None or not any(one.valid for one in tried):
        return None
    return next_rate(
        limits.scenario,
        limits.offline_qps,
        tried,
        resolution=RESOLUTION,
        most_probes=MOST_PROBES,
        start=tried[0].target_qps,
    )


def _ask_worth(space: Space, probes: Sequence[Probe], best: Best, limits: Limits) -> Ask | None:
    """Put back one option of the best settings, and look for the rate without it."""
    for worth in worths(space, probes, best):
        tried = tried_with(probes, worth.without)
        own = [probe for probe in probes if probe.phase == "worth" and probe.options == worth.without]
        if len(own) >= WORTH_PROBES or any(probe.valid is None for probe in own):
            continue
        if worth.bracket.invalid is None or worth.bracket.invalid > best.target_qps:
            # Not known to be worse: asked at the best rate itself. Should it be VALID, the option is not needed.
            rate: float | None = best.target_qps
        else:
            rate = next_rate(
                limits.scenario,
                limits.offline_qps,
                tried,
                resolution=RESOLUTION,
                most_probes=len(tried) + WORTH_PROBES - len(own),
                start=best.target_qps,
            )
        if rate is not None and not any(one.target_qps == rate for one in tried):
            trial = own[-1].trial if own else probes[-1].trial + 1
            return Ask(trial, "worth", worth.without, rate)
    return None
