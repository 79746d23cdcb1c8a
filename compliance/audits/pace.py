"""Pace (rates and latencies) of a run, and the comparison of two paces, corrected for the lengths of the samples.

A run with shorter samples may be faster by the ratio of the lengths, so the limit is raised by that ratio. It is also
raised by the time that a busy machine may have added to the reference. The caller must refuse runs that are too short.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from compliance.judge.check import decides
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import AUDIT_AGAIN, OURS

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Threshold for TTFT. TTFT varies more than other times, and a cached prompt saves most of it.
TTFT_THRESHOLD = 0.5
# Maximum relative difference in mean length. Batch effects change repeated responses, but hardly their length.
LENGTH_SHARE = 0.10
# Time in ns that a disturbance may have added to the reference run, limited to half of its time. Offline: added to the
# mean and to the last latency. SingleStream: the slowest tenth of the queries is left out instead.
OFFLINE_MEAN_NS = 20_000_000
OFFLINE_LAST_NS = 500_000_000
SLOWEST_SHARE = 0.1
# Tolerance for rounding: a rate that is equal to the limit counts as too fast.
ROUNDING = 1e-9
LATENCY, RATE, TTFT = "1 / mean latency", "samples/s", "1 / median TTFT"


@dataclass(frozen=True)
class Pace:
    """Rates, latencies and lengths of a run. `lengths` maps a sample index to (prompt tokens, output tokens)."""

    label: str
    scenario: str
    samples_per_second: float
    mean_latency_ns: float
    steady_latency_ns: float  # mean latency without time that a disturbance may have added
    median_ttft_ns: float | None
    lengths: dict[int, tuple[int, float]]
    issued: list[int]  # sample indices in the order in which LoadGen issued them

    @property
    def seconds(self) -> float:
        """Duration of the run in seconds. In SingleStream, time that a disturbance may have added is subtracted."""
        if self.scenario == "Offline":
            return len(self.issued) / self.samples_per_second
        return len(self.issued) * self.steady_latency_ns / 1e9

    @cached_property
    def counts(self) -> Counter[int]:
        """Number of times that each sample was issued."""
        return Counter(self.issued)

    @cached_property
    def mean_lengths(self) -> tuple[float, float]:
        """Mean prompt and output tokens of the issued samples."""
        return _mean(self.lengths, self.counts)


def steady_latency_ns(scenario: str, mean_ns: float, taken_ns: "NDArray[Any]") -> float:
    """Return the mean latency without the time that a disturbance may have added.

    Args:
        mean_ns: Mean latency that LoadGen reports.
        taken_ns: Latency of each query.
    """
    if scenario == "Offline":
        return mean_ns / _without(mean_ns, OFFLINE_MEAN_NS)
    sorted_ns = taken_ns.copy()
    sorted_ns.sort()
    kept = sorted_ns[: len(sorted_ns) - int(len(sorted_ns) * SLOWEST_SHARE)]
    return mean_ns * float(kept.mean() / sorted_ns.mean()) if sorted_ns.mean() > 0 else mean_ns


@decides(
    "audit",
    ("caching-pace", "error", OURS, "rate of repeated samples, compared with unique samples",
     "turn off caching between queries, and run the audit again on an idle machine"),
    ("caching-lengths", "error", OURS, "length of repeated responses, compared with the reference", AUDIT_AGAIN),
)  # fmt: skip
def compare_paces(reference: Pace, test: Pace, threshold: float, *, least_ttft_ns: int = 0) -> list[Finding]:
    """Check that `test` is not faster than `reference` by more than the lengths and the threshold explain.

    Args:
        least_ttft_ns: Lower bound for TTFT, used if only one pair of runs can be compared.

    Returns:
        A finding for each rate, with the numbers name, reference, test, limit and expected (rate of the reference,
        corrected for longer samples), and a finding for the length of responses.
    """
    offline = test.scenario == "Offline"
    # Use the lengths of the reference for samples that it contains.
    lengths = {index: reference.lengths.get(index, own) for index, own in test.lengths.items()}
    prompts, outputs = (
        one / other for one, other in zip(_mean(lengths, test.counts), reference.mean_lengths, strict=True)
    )
    shorter, longer = 1 / min(1.0, prompts, outputs), max(1.0, prompts, outputs)
    # In Offline, samples wait for earlier samples, so a run of fewer samples has a shorter mean latency.
    fewer = max(1.0, len(reference.issued) / len(test.issued)) if offline else 1.0
    # each row: name, times of both runs, threshold, additional factor of the limit
    rates: list[tuple[str, tuple[float, float], float, float]] = [
        (
            LATENCY, (reference.mean_latency_ns, test.mean_latency_ns), threshold,
            shorter * fewer * reference.mean_latency_ns / reference.steady_latency_ns,
        )
    ]  # fmt: skip
    if offline:
        # In Offline, the longest response determines the duration of the run, but not its mean latency.
        longest = max(1.0, _longest(reference.lengths) / _longest(lengths))
        count, times_ns = len(reference.issued), (1e9 / reference.samples_per_second, 1e9 / test.samples_per_second)
        rates.append((RATE, times_ns, threshold, shorter * longest * _without(count * times_ns[0], OFFLINE_LAST_NS)))
    if reference.median_ttft_ns and test.median_ttft_ns is not None:
        times_ns = max(reference.median_ttft_ns, least_ttft_ns), max(test.median_ttft_ns, least_ttft_ns, 1)
        rates.append((TTFT, times_ns, TTFT_THRESHOLD, 1 / min(1.0, prompts)))
    findings = []
    for name, times_ns, allowed, raised in rates:
        before, after = (1e9 / time_ns for time_ns in times_ns)
        limit = before * (1 + allowed) * raised
        findings.append(
            compared(
                "caching-pace", after < limit * (1 - ROUNDING), f"{after:.6g}",
                f"below {limit:.6g} (reference {before:.6g})", name=name, reference=before, test=after, limit=limit,
                expected=before / longer, text=f"{test.label}: {name}",
            )
        )  # fmt: skip
    if known := {index: count for index, count in test.counts.items() if index in reference.lengths}:
        expected, found = (_mean(pace.lengths, known)[1] for pace in (reference, test))
        findings.append(
            compared(
                "caching-lengths", abs(found / expected - 1) <= LENGTH_SHARE,
                f"{found:.2f}", f"{expected:.2f} ± {LENGTH_SHARE:.0%}, as in {reference.label}",
                text=f"{test.label}: mean output tokens",
            )
        )  # fmt: skip
    return findings


def limit_ratio(found: Sequence[Finding]) -> float:
    """Return the largest ratio of a rate to its limit."""
    return max(float(one.numbers["test"] / one.numbers["limit"]) for one in found if "limit" in one.numbers)


def deciding_rate(found: Sequence[Finding]) -> Finding:
    """Return the finding whose rate has the largest ratio to its limit. Only rates of whole responses count."""
    return max((one for one in found if one.numbers.get("name") in (LATENCY, RATE)), key=lambda one: limit_ratio([one]))


def _without(time_ns: float, disturbance_ns: float) -> float:
    """Return the factor by which a rate would rise if a disturbance had not slowed the run down."""
    return time_ns / max(time_ns - disturbance_ns, time_ns / 2)


def _mean(lengths: Mapping[int, tuple[int, float]], counts: Mapping[int, int]) -> tuple[float, float]:
    """Return the mean numbers of prompt and output tokens per query; `counts` has the number of queries by sample."""
    total = sum(counts.values())
    prompts, outputs = (sum(lengths[index][which] * n for index, n in counts.items()) / total for which in (0, 1))
    return prompts, outputs


def _longest(lengths: Mapping[int, tuple[int, float]]) -> float:
    return max(output for _, output in lengths.values())
