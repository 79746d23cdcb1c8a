"""Searches over options of a simulated system whose speed differs between equal runs.

`python -m tests.support.simulated.option_searches` prints the table of docs/search.md.

The capacity of a run is that of its settings, times a lognormal factor. The p99 TPOT is its limit times (rate ÷
capacity) to a power, so that runs near the limit have VALID and INVALID verdicts by chance. A VALID probe takes a
minute, and an INVALID one ends early.
"""

import math
import random
from dataclasses import dataclass

import numpy as np

from scenarios.tune.decisions import recommendable
from scenarios.tune.journal import SchedulingOptions, TuneRun, best_probe
from scenarios.tune.option_search import NextProbe, OptionTrials, open_study
from scenarios.tune.option_space import Space

SPACE = Space(dict.fromkeys(("first", "second", "third", "fourth"), (1, 2)))
TRIALS = 12
DEFAULT_QPS = 80.0
STEEPNESS = 5.0  # exponent of the p99 latency over the rate, near the limit
LIMIT_MS = 100.0
RUN_S = 60.0
EARLY_END = 8.0  # exponent of the duration of an INVALID probe


@dataclass(frozen=True)
class SimulatedSearch:
    """The result of one search."""

    probes: list[TuneRun]

    @property
    def options(self) -> SchedulingOptions:
        """The recommended options."""
        best = best_probe(recommendable(self.probes))
        return {} if best is None else best.options

    @property
    def minutes(self) -> float:
        return sum(probe.wall_s for probe in self.probes) / 60


def simulate_search(gain: float, noise: float, seed: int) -> SimulatedSearch:
    """Return a search in which one option has an effect.

    Args:
        gain: share by which the value 1 of the first option raises the capacity.
        noise: standard deviation of the capacity between equal runs, as a share.
    """
    generator = random.Random(seed)
    trials = OptionTrials(SPACE, open_study(None), "Server", 100.0, TRIALS, 1e6)
    probes: list[TuneRun] = []
    while (probe := trials.next_probe(probes, 0.0)) is not None:
        capacity_qps = DEFAULT_QPS * (1 + gain * (probe.options.get("first") == 1))
        probes.append(_run(probe, capacity_qps * math.exp(generator.gauss(0, noise))))
    return SimulatedSearch(probes)


def _run(probe: NextProbe, capacity_qps: float) -> TuneRun:
    share = probe.target_qps / capacity_qps
    is_valid = share <= 1
    return TuneRun(
        step="search", number=1, verdict="VALID" if is_valid else "INVALID", reasons=[], queries_planned=1_000,
        queries_answered=1_000, tpot_p99_ms=LIMIT_MS * share**STEEPNESS, tpot_limit_ms=LIMIT_MS,
        wall_s=RUN_S if is_valid else RUN_S / share**EARLY_END, directory="search-1", **probe._asdict(),
    )  # fmt: skip


def main(searches: int = 60) -> None:
    """Print for each gain and noise how often the options are wrong, and the median cost of a search."""
    for gain in (0.0, 0.05, 0.1):
        right = {"first": 1} if gain else {}
        for noise in (0.01, 0.03):
            results = [simulate_search(gain, noise, seed) for seed in range(searches)]
            wrong = sum(result.options != right for result in results) / searches
            missed = sum(gain > 0 and result.options.get("first") != 1 for result in results) / searches
            probes = np.median([len(result.probes) for result in results])
            minutes = np.median([result.minutes for result in results])
            print(
                f"| {gain:.0%} | {noise:.0%} | {wrong:.0%} | {missed:.0%} | {probes:.0f} | {minutes:.0f} min |",
                flush=True,
            )


if __name__ == "__main__":
    main()
