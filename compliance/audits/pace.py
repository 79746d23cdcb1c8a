"""How fast a run answered, and whether another run is faster than the lengths of its samples explain.

An honest system needs time for prompt and output tokens, so the run with the shorter samples may be faster by the ratio
of the lengths: the limit is raised by that ratio. It is also raised by the time that a busy machine may have added to
the reference. A run that is too short to be compared is for the caller to refuse; no time is replaced here.
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

# Times to first token are few, short and scattered; a cached prompt saves most of such a time.
TTFT_THRESHOLD = 0.5
# Repeated responses may differ from the reference's by batch effects, but hardly in length.
LENGTH_SHARE = 0.10
# What a disturbed machine may have added to the reference, half of its time at most. Offline: to every sample, and to
# the last one, which the run waits for. SingleStream: the slowest tenth of the queries is left out.
OFFLINE_MEAN_NS = 20_000_000
OFFLINE_LAST_NS = 500_000_000
SLOWEST_SHARE = 0.1
# A rate at the limit is too fast, also where rounding puts the limit a little higher.
ROUNDING = 1e-9
LATENCY, RATE, TTFT = "1 / mean latency", "samples/s", "1 / median TTFT"


@dataclass(frozen=True)
class Pace:
    """A run in the numbers that are compared. Lengths by sample index: (prompt tokens, output tokens)."""

    label: str
    scenario: str
    samples_per_second: float
    mean_latency_ns: float
    steady_latency_ns: float  # mean without what a disturbed machine may have added
    median_ttft_ns: float | None
    lengths: dict[int, tuple[int, float]]
    issued: list[int]  # sample indices, in the order of issue

    @property
    def seconds(self) -> float:
        """How long the run took; in SingleStream without what a disturbed machine may have added."""
        if self.scenario == "Offline":
            return len(self.issued) / self.samples_per_second
        return len(self.issued) * self.steady_latency_ns / 1e9

    @cached_property
    def counts(self) -> Counter[int]:
        """How often each sample was issued."""
        return Counter(self.issued)

    @cached_property
    def mean_lengths(self) -> tuple[float, float]:
        """Prompt and output tokens, over the issued samples."""
        return _mean(self.lengths, self.counts)


def steady_latency_ns(scenario: str, mean_ns: float, taken_ns: "NDArray[Any]") -> float:
    """The mean latency without what a disturbed machine may have added.

    Args:
        mean_ns: of LoadGen.
        taken_ns: of each query.
    """
    if scenario == "Offline":
        return mean_ns / _without(mean_ns, OFFLINE_MEAN_NS)
    sorted_ns = taken_ns.copy()
    sorted_ns.sort()
    kept = sorted_ns[: len(sorted_ns) - int(len(sorted_ns) * SLOWEST_SHARE)]
    return mean_ns * float(kept.mean() / sorted_ns.mean()) if sorted_ns.mean() > 0 else mean_ns


@decides(
    "audit",
    ("caching-pace", "error", OURS, "repeated samples are not answered faster than unique ones",
     "find out what is kept between queries; run the audit again on an idle machine"),
    ("caching-lengths", "error", OURS, "repeated responses are as long as in the reference", AUDIT_AGAIN),
)  # fmt: skip
def compare_paces(reference: Pace, test: Pace, threshold: float, *, least_ttft_ns: int = 0) -> list[Finding]:
    """Judge whether `test` is faster than `reference` by more than the lengths and the threshold explain.

    Args:
        least_ttft_ns: shorter times to first token count as this, where only a single pair of runs can be compared.

    Returns:
        A finding for each rate, with the numbers name, reference, test, limit and expected (the reference's rate, less
        what longer samples explain), and one for the lengths of responses.
    """
    offline = test.scenario == "Offline"
    # The reference's own, where it has the sample.
    lengths = {index: reference.lengths.get(index, own) for index, own in test.lengths.items()}
    prompts, outputs = (
        one / other for one, other in zip(_mean(lengths, test.counts), reference.mean_lengths, strict=True)
    )
    shorter, longer = 1 / min(1.0, prompts, outputs), max(1.0, prompts, outputs)
    # Offline: all samples wait for those before them, so that a run of fewer has the shorter mean latency.
    fewer = max(1.0, len(reference.issued) / len(test.issued)) if offline else 1.0
    # name, times of both, threshold, what else raises the limit
    rates: list[tuple[str, tuple[float, float], float, float]] = [
        (
            LATENCY, (reference.mean_latency_ns, test.mean_latency_ns), threshold,
            shorter * fewer * reference.mean_latency_ns / reference.steady_latency_ns,
        )
    ]  # fmt: skip
    if offline:
        # All samples at once: the run lasts as long as its longest response, its mean latency does not.
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
                "caching-pace", f"{test.label}: {name}", after < limit * (1 - ROUNDING), f"{after:.6g}",
                f"below {limit:.6g} (reference {before:.6g})", name=name, reference=before, test=after, limit=limit,
                expected=before / longer,
            )
        )  # fmt: skip
    if known := {index: count for index, count in test.counts.items() if index in reference.lengths}:
        expected, found = (_mean(pace.lengths, known)[1] for pace in (reference, test))
        findings.append(
            compared(
                "caching-lengths", f"{test.label}: mean output tokens", abs(found / expected - 1) <= LENGTH_SHARE,
                f"{found:.2f}", f"{expected:.2f} ± {LENGTH_SHARE:.0%}, as in {reference.label}",
            )
        )  # fmt: skip
    return findings


def limit_ratio(found: Sequence[Finding]) -> float:
    """The fastest rate divided by its limit."""
    return max(float(one.numbers["test"] / one.numbers["limit"]) for one in found if "limit" in one.numbers)


def deciding_rate(found: Sequence[Finding]) -> Finding:
    """Of the rates of whole responses, the one with the greatest share of its limit."""
    return max((one for one in found if one.numbers.get("name") in (LATENCY, RATE)), key=lambda one: limit_ratio([one]))


def _without(time_ns: float, disturbance_ns: float) -> float:
    """The factor by which a rate rises without a disturbance."""
    return time_ns / max(time_ns - disturbance_ns, time_ns / 2)


def _mean(lengths: Mapping[int, tuple[int, float]], counts: Mapping[int, int]) -> tuple[float, float]:
    """Prompt and output tokens a query, of queries counted by sample."""
    total = sum(counts.values())
    prompts, outputs = (sum(lengths[index][which] * n for index, n in counts.items()) / total for which in (0, 1))
    return prompts, outputs


def _longest(lengths: Mapping[int, tuple[int, float]]) -> float:
    return max(output for _, output in lengths.values())
