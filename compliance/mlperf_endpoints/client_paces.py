"""Comparison of the two runs of the client's output-caching audit, which has only one run of each kind.

A run with shorter samples may be faster by the ratio of the lengths, so the limit is raised by that ratio. It is also
raised by the time that a busy machine may have added to the reference. The caller must refuse runs that are too short.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compliance.audits.pace import (
    LATENCY,
    TTFT_THRESHOLD,
    Pace,
    length_finding,
    mean_lengths,
    pace_finding,
)
from compliance.judge.verdict import Finding

# Time in ns that a disturbance may have added to the reference run, limited to half of its time. Offline: added to the
# mean and to the last latency. SingleStream: the slowest tenth of the queries is left out instead.
OFFLINE_LAST_NS = 500_000_000
SLOWEST_SHARE = 0.1
# Tolerance for rounding: a rate that is equal to the limit counts as too fast.
ROUNDING = 1e-9
RATE, TTFT = "samples/s", "1 / median TTFT"


@dataclass(frozen=True)
class ClientPace(Pace):
    """The pace of a run of the client."""

    steady_latency_ns: float  # mean latency without time that a disturbance may have added
    median_ttft_ns: float | None


def compare_client_paces(
    reference: ClientPace, test: ClientPace, threshold: float, *, least_ttft_ns: int = 0
) -> list[Finding]:
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
        test_mean / reference_mean
        for test_mean, reference_mean in zip(mean_lengths(lengths, test.counts), reference.mean_lengths, strict=True)
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
        passed = after < limit * (1 - ROUNDING)
        required = f"below {limit:.6g} (reference {before:.6g})"
        numbers = {"name": name, "reference": before, "test": after, "limit": limit, "expected": before / longer}
        findings.append(pace_finding(f"{test.label}: {name}", passed, f"{after:.6g}", required, **numbers))
    if shared := {index: count for index, count in test.counts.items() if index in reference.lengths}:
        expected, repeated = (mean_lengths(pace.lengths, shared)[1] for pace in (reference, test))
        findings.append(length_finding(test.label, repeated, expected, reference.label))
    return findings


def limit_ratio(findings: Sequence[Finding]) -> float:
    """Return the largest ratio of a rate to its limit."""
    return max(
        float(finding.numbers["test"] / finding.numbers["limit"]) for finding in findings if "limit" in finding.numbers
    )


def deciding_rate(findings: Sequence[Finding]) -> Finding:
    """Return the finding whose rate has the largest ratio to its limit. Only rates of whole responses count."""
    return max(
        (finding for finding in findings if finding.numbers.get("name") in (LATENCY, RATE)),
        key=lambda finding: limit_ratio([finding]),
    )


def _without(time_ns: float, disturbance_ns: float) -> float:
    """Return the factor by which a rate would rise if a disturbance had not slowed the run down."""
    return time_ns / max(time_ns - disturbance_ns, time_ns / 2)


def _longest(lengths: Mapping[int, tuple[int, float]]) -> float:
    return max(output for _, output in lengths.values())
