"""The next rate to try, as a function of the rates tried so far: a tune can be continued from its journal.

The search brackets the highest valid rate, then halves the bracket (on a logarithmic scale) until its ends lie within
the resolution. It starts below the Offline rate, where the latency scenarios usually end up, and steps away from it
faster the further it has to go.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAX_PROBES = 8
RESOLUTION = 0.02

# Where to begin, as a share of the Offline rate. A start that is too high costs little: its probe is stopped early.
# Server: a little above 0.90, so that a system that reaches this share is seen to.
# With these steps eight probes come within 2.2 % of any rate from 0.34 (0.24) to 1.25 times the Offline rate.
START_SHARE = {"Server": 0.902, "Interactive": 0.8}
STEPS_DOWN = (0.75, 0.5, 0.35)  # from the lowest invalid rate, while no rate was valid; the last one repeats
STEPS_UP = (1.12, 1.25, 1.5)  # from the highest valid rate, while none above it was invalid
# The same where the search starts at a rate that is likely to be near the best one.
NEAR_STEPS_DOWN = (0.97, 0.93, 0.85, 0.7)
NEAR_STEPS_UP = (1.04, 1.15, 1.3, 1.5)

# LoadGen issues whole datasets: a hair below the rate at which another one begins, a run takes half the time.
SAVING_WORTH = 0.8  # of the expected time
SAVING_COST = 0.01  # of the rate, at most


@dataclass(frozen=True)
class Tried:
    """One probe."""

    target_qps: float
    valid: bool


@dataclass(frozen=True)
class Bracket:
    """The highest rate found valid, and the lowest above it found invalid; None where there is none."""

    valid: float | None
    invalid: float | None

    @classmethod
    def of(cls, tried: Sequence[Tried]) -> "Bracket":
        valid = max((one.target_qps for one in tried if one.valid), default=None)
        above = [one.target_qps for one in tried if not one.valid and (valid is None or one.target_qps > valid)]
        return cls(valid, min(above, default=None))

    @property
    def width(self) -> float:
        """How much higher than the valid rate the best one could still be, as a share of it."""
        if self.valid is None or self.invalid is None:
            return math.inf
        return self.invalid / self.valid - 1


def next_rate(
    scenario: str,
    offline_qps: float,
    tried: Sequence[Tried],
    *,
    resolution: float,
    most_probes: int,
    start: float | None = None,
) -> float | None:
    """The next target_qps to try, or None when the search is over.

    Args:
        offline_qps: samples/s of the system in the Offline scenario, roughly.
        tried: all probes so far.
        resolution: how far the ends of the bracket may lie apart, as a share.
        most_probes: the search ends after so many.
        start: begin here instead of at a share of the Offline rate; likely to be near the best rate.
    """
    if len(tried) >= most_probes:
        return None
    bracket = Bracket.of(tried)
    if bracket.valid is None and bracket.invalid is None:
        return rounded(START_SHARE[scenario] * offline_qps if start is None else start)
    if bracket.valid is None:
        assert bracket.invalid is not None
        return rounded(bracket.invalid * _step(STEPS_DOWN if start is None else NEAR_STEPS_DOWN, tried))
    if bracket.invalid is None:
        return rounded(bracket.valid * _step(STEPS_UP if start is None else NEAR_STEPS_UP, tried))
    if bracket.width <= resolution:
        return None
    return rounded(math.sqrt(bracket.valid * bracket.invalid))


def cheaper(rate: float, above: float | None, expected_s: Callable[[float], float]) -> float:
    """The rate, or one up to a hundredth lower at which LoadGen issues so many fewer queries that it is worth it.

    Args:
        rate: target_qps to be tried.
        above: stay clear of this rate, which is known to be valid.
        expected_s: how long a run at a rate takes.
    """
    worth_s = SAVING_WORTH * expected_s(rate)
    for step in range(1, 11):
        lower = rounded(rate * (1 - SAVING_COST * step / 10))
        if above is not None and lower <= above * (1 + SAVING_COST / 4):
            break
        if expected_s(lower) <= worth_s:
            return lower
    return rate


def _step(steps: Sequence[float], tried: Sequence[Tried]) -> float:
    return steps[min(len(tried), len(steps)) - 1]


def rounded(rate: float) -> float:
    """Four significant digits: what a person would write into user.conf."""
    return float(f"{rate:.4g}")
