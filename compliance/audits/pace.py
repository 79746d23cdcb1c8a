"""Pace (rates and latencies) of a run, and the comparison of two paces.

The limit of a rate follows from the threshold. A correction for the lengths of the samples lowers or raises it by at
most half of the threshold. The caller repeats the runs, so the limits contain no allowance for disturbances.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from compliance.judge.rule import AUDIT_AGAIN, OURS, decides
from compliance.judge.verdict import Finding, compared

# Threshold for TTFT. TTFT varies more than other times, and a cached prompt saves most of it.
TTFT_THRESHOLD = 0.5
# Maximum relative difference in mean length. Batch effects change repeated responses, but hardly their length.
LENGTH_SHARE = 0.10
# Maximum correction of a limit for the lengths of the samples, as a share of the threshold.
MAX_CORRECTION = 0.5
# Possible effects of lengths on times: exponents of the mean prompt and output tokens. Their sum is below
# 1 if samples also take a constant time. The effect with which the reference runs agree best counts. If it reduces
# their spread by less than MIN_GAIN, the first effect counts.
LATENCY_EFFECTS = ((0.5, 0.5), (1.0, 0.0), (0.0, 1.0), (0.25, 0.25), (0.0, 0.0))
TTFT_EFFECTS = ((1.0, 0.0), (0.5, 0.0), (0.0, 0.0))
MIN_GAIN = 0.01
MANY_RUNS = 5  # number of runs from which the slowest is left out of their spread
NEAR_ROWS = 4
LATENCY, TTFT = "1 / mean latency", "1 / mean TTFT"
SampleLengths = Mapping[int, tuple[int, float]]  # row of the dataset → (prompt tokens, mean output tokens)


@dataclass(frozen=True)
class Pace:
    """Rates, latencies and lengths of a run."""

    label: str
    scenario: str
    samples_per_second: float
    mean_latency_ns: float
    mean_ttft_ns: float | None
    lengths: SampleLengths
    issued: list[int]  # rows of the dataset, in the order in which LoadGen issued them

    @property
    def seconds(self) -> float:
        """Duration of the run in seconds."""
        if self.scenario == "Offline":
            return len(self.issued) / self.samples_per_second
        return len(self.issued) * self.mean_latency_ns / 1e9

    @cached_property
    def counts(self) -> Counter[int]:
        """Number of times that each row was issued."""
        return Counter(self.issued)

    @cached_property
    def mean_lengths(self) -> tuple[float, float]:
        """Mean prompt and output tokens of the issued samples."""
        return mean_lengths(self.lengths, self.counts)

    @cached_property
    def rows_near_means(self) -> tuple[int, ...]:
        """NEAR_ROWS rows whose mean lengths are near the means of the run.

        The distance is the larger of the relative differences of prompt and output tokens. The first row is the nearest
        row. Each further row brings the means of the rows nearest to the means of the run.
        """
        means = self.mean_lengths
        left = {row: (prompts / means[0], outputs / means[1]) for row, (prompts, outputs) in self.lengths.items()}
        rows: list[int] = []
        prompts = outputs = 0.0
        while left and len(rows) < NEAR_ROWS:
            count = len(rows) + 1
            row = min(
                left, key=lambda name: max(abs(prompts + left[name][0] - count), abs(outputs + left[name][1] - count))
            )
            rows.append(row)
            length = left.pop(row)
            prompts, outputs = prompts + length[0], outputs + length[1]
        return tuple(rows)


@dataclass(frozen=True)
class Ratio:
    """A rate of a repeating run, relative to the rate of a reference run, and the limit of this ratio."""

    name: str
    value: float
    threshold: float
    correction: float  # change of the limit for the lengths of the repeated samples

    @property
    def limit(self) -> float:
        return 1 + self.threshold + self.correction

    @property
    def excess(self) -> float:
        """Ratio of the value to its limit."""
        return self.value / self.limit


def compare_paces(
    references: Sequence[Pace], test: Pace, threshold: float, lengths: SampleLengths
) -> list[tuple[Ratio, ...]]:
    """Return the rates of a repeating run, relative to each reference run: for each rate, a ratio for each reference.

    The rates of the reference runs are corrected for the differences between the lengths of their samples.

    Args:
        lengths: Lengths of samples that reference runs had. They replace the lengths in the repeating run, because a
            cache can change these.
    """
    means = [reference.mean_lengths for reference in references]
    mean = fmean(prompts for prompts, _ in means), fmean(outputs for _, outputs in means)
    test_means = mean_lengths({row: lengths.get(row, length) for row, length in test.lengths.items()}, test.counts)
    shares = [(prompts / mean[0], outputs / mean[1]) for prompts, outputs in (*means, test_means)]
    # In Offline, a sample waits for earlier samples. With fewer queries the mean latency is shorter.
    offline = test.scenario == "Offline"
    fewer = [max(1.0, len(reference.issued) / len(test.issued)) if offline else 1.0 for reference in references]
    rates = [count / reference.mean_latency_ns for reference, count in zip(references, fewer, strict=True)]
    ratios = [_ratios(LATENCY, [*rates, 1 / test.mean_latency_ns], shares, LATENCY_EFFECTS, threshold)]
    ttfts_ns = [reference.mean_ttft_ns for reference in (*references, test)]
    if None not in ttfts_ns and all(ttfts_ns[:-1]):
        rates = [1 / max(ttft_ns or 0.0, 1.0) for ttft_ns in ttfts_ns]
        ratios.append(_ratios(TTFT, rates, shares, TTFT_EFFECTS, TTFT_THRESHOLD))
    return ratios


def _ratios(
    name: str,
    rates: Sequence[float],
    shares: Sequence[tuple[float, float]],
    effects: Sequence[tuple[float, float]],
    threshold: float,
) -> tuple[Ratio, ...]:
    """Return a rate of a repeating run, relative to reference runs, corrected for the lengths of all samples.

    Args:
        rates: Rates of the reference runs, then of the repeating run.
        shares: Prompt and output tokens of these runs, relative to the means of the reference runs.
    """
    *references, test_rate = rates
    corrected = []
    for effect in effects:
        works = [prompts ** effect[0] * outputs ** effect[1] for prompts, outputs in shares]
        corrected.append(([rate * work for rate, work in zip(references, works[:-1], strict=True)], works[-1]))
    best = min(corrected, key=lambda pair: rate_spread(pair[0]))
    expected, work = best if rate_spread(best[0]) < rate_spread(corrected[0][0]) - MIN_GAIN else corrected[0]
    change = correction(work, threshold)
    return tuple(Ratio(name, test_rate / rate, threshold, change) for rate in expected)


def rate_spread(rates: Sequence[float]) -> float:
    """Return the ratio of the highest to the lowest rate. The lowest of many rates may be disturbed and is left out."""
    ordered = sorted(rates)[len(rates) >= MANY_RUNS :]
    return ordered[-1] / ordered[0]


def correction(work: float, threshold: float) -> float:
    """Return the change of a limit for samples with this share of the mean work.

    Shorter samples raise the limit, and longer samples lower it, by at most half of the threshold.
    """
    bound = MAX_CORRECTION * threshold
    return max(-bound, min(bound, 1 / work - 1))


def relative_lengths(reference: Pace, counts: Mapping[int, int], lengths: SampleLengths) -> tuple[float, float]:
    """Return the mean prompt and output tokens of samples, relative to the means of a reference run."""
    means = mean_lengths(lengths, counts)
    return means[0] / reference.mean_lengths[0], means[1] / reference.mean_lengths[1]


def mean_lengths(lengths: SampleLengths, counts: Mapping[int, int]) -> tuple[float, float]:
    """Return the mean numbers of prompt and output tokens per query; `counts` has the number of queries by row."""
    total = sum(counts.values())
    prompts, outputs = (sum(lengths[row][which] * n for row, n in counts.items()) / total for which in (0, 1))
    return prompts, outputs


@decides(
    "audit",
    ("caching-pace", "error", OURS, "rate of repeated samples, compared with unique samples",
     "turn off caching between queries, and run the audit again on an idle machine"),
)  # fmt: skip
def pace_finding(text: str, passed: bool, found: str, required: str, **numbers: Any) -> Finding:
    """Return the finding on a rate of repeated samples, with the numbers that decided it."""
    return compared("caching-pace", passed, found, required, text=text, **numbers)


@decides(
    "audit",
    ("caching-lengths", "error", OURS, "length of repeated responses, compared with the reference", AUDIT_AGAIN),
)  # fmt: skip
def length_finding(label: str, repeated: float, expected: float, reference: str = "the reference runs") -> Finding:
    """Return the finding on the mean output tokens of repeated responses."""
    return compared(
        "caching-lengths", abs(repeated / expected - 1) <= LENGTH_SHARE, f"{repeated:.2f}",
        f"{expected:.2f} ± {LENGTH_SHARE:.0%}, as in {reference}", text=f"{label}: mean output tokens",
    )  # fmt: skip
