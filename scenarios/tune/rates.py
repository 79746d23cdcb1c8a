"""The choice of the next rate from the rates so far, so that a tuning can continue from its journal.

The search brackets the highest valid rate, then halves the bracket (on a logarithmic scale) until its ends are within
the resolution. It starts below the Offline rate, near the usual result of latency scenarios, with growing steps.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAX_PROBES = 8
RESOLUTION = 0.02

# First rate as a share of the Offline rate. A high first rate costs little, because its probe is stopped early. Server
# starts above 0.90, so that the search detects a system that reaches this share.
# With these steps, eight probes come within 2.2% of any rate from 0.34 (0.24) to 1.25 × the Offline rate.
START_SHARE = {"Server": 0.902, "Interactive": 0.8}
STEPS_DOWN = (0.75, 0.5, 0.35)
STEPS_UP = (1.12, 1.25, 1.5)  # from the highest valid rate, until a higher rate is INVALID
# Steps of a search that starts near the best rate:
NEAR_STEPS_DOWN = (0.97, 0.93, 0.85, 0.7)
NEAR_STEPS_UP = (1.04, 1.15, 1.3, 1.5)

# Rates of repeated runs, as shares below a VALID rate, until a run is VALID. A temporarily slower machine costs a few
# percent of the rate instead of the whole tuning.
BACK_OFF = (0.0, 0.01, 0.02, 0.04, 0.08)

# LoadGen issues whole datasets: slightly below the rate that needs a further dataset, a run can take half the time.
SAVING_WORTH = 0.8  # maximum share of the expected time
SAVING_COST = 0.01  # maximum share of the rate


@dataclass(frozen=True)
class Tried:
    """One probe."""

    target_qps: float
    valid: bool


@dataclass(frozen=True)
class Bracket:
    """The highest VALID rate and the lowest INVALID rate above it; None if missing."""

    valid: float | None
    invalid: float | None

    @classmethod
    def of(cls, tried: Sequence[Tried]) -> "Bracket":
        valid = max((probe.target_qps for probe in tried if probe.valid), default=None)
        above = [probe.target_qps for probe in tried if not probe.valid and (valid is None or probe.target_qps > valid)]
        return cls(valid, min(above, default=None))

    @property
    def width(self) -> float:
        """The distance between the ends of the bracket, as a share of the valid rate."""
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
    """Return the next target_qps to try, or None if the search is over.

    Args:
        offline_qps: Estimated Offline rate in samples/s.
        tried: All probes so far.
        resolution: Maximum final distance between the ends of the bracket, as a share.
        most_probes: Maximum number of probes.
        start: First rate instead of a share of the Offline rate, near the best rate.
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
    """Return the rate, or a rate up to 1% lower at which LoadGen issues far fewer queries.

    Args:
        rate: target_qps to try.
        above: Highest VALID rate, which the result must exceed.
        expected_s: Returns the duration of a run at a rate.
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
    """Round a rate to four significant digits for user.conf."""
    return float(f"{rate:.4g}")
