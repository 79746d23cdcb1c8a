"""How fast a leg answered, and whether another leg is faster than the lengths of its samples explain.

An honest system needs time for prompt and output tokens, so the leg with the shorter samples may be faster by the ratio
of the lengths: the limit is raised by that ratio. It is also raised by the time that a busy machine may have added to
the reference.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compliance.audits.base import LegArtifacts
from compliance.finding import AUDIT_AGAIN, OURS, Finding, applied, decides
from runs.errors import ExecutionError

# Times to first token are few, short and scattered; a cached prompt saves most of such a time.
TTFT_THRESHOLD = 0.5
# A first token takes as long without any computing (scheduling, one step of the engine's loop).
TTFT_FLOOR_NS = 5_000_000
# Faster references are not compared, since chance decides how much faster another leg is: answers in SingleStream;
# the whole run in Offline.
LATENCY_FLOOR_NS = 5_000_000
OFFLINE_RUN_FLOOR_NS = 50_000_000
# Repeated answers may differ from the reference's by batch effects, but hardly in length.
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
    """A leg in the numbers that are compared. Lengths by sample index: (prompt tokens, output tokens)."""

    label: str
    scenario: str
    samples_per_second: float
    mean_latency_ns: float
    steady_latency_ns: float  # mean without what a disturbed machine may have added
    median_ttft_ns: float | None
    lengths: dict[int, tuple[int, float]]
    issued: list[int]  # sample indices, in the order of issue


def pace_of(leg: LegArtifacts) -> Pace:
    """Read a leg's pace: rates and latencies from LoadGen's log, lengths from the record of every request.

    Raises:
        ExecutionError: no sample, no time, or a rate of 0.
    """
    table, numbers = leg.request_table, leg.numbers
    latency = numbers.latency_ns
    rate = numbers.samples_per_second_without_overhead or numbers.samples_per_second
    if len(table) == 0 or latency is None or latency.mean <= 0 or not rate or not 0 < rate < float("inf"):
        raise ExecutionError(
            f"audit leg {leg.spec.label}: {len(table)} samples at {rate} samples/s allow no comparison",
            f"see {leg.run.detail}; audit with more --samples",
        )
    outputs: dict[int, list[int]] = {}
    for index, tokens in zip(table.sample_index.tolist(), table.output_tokens.tolist(), strict=True):
        outputs.setdefault(index, []).append(tokens)
    prompts = dict(zip(table.sample_index.tolist(), table.prompt_tokens.tolist(), strict=True))
    offline = leg.detail.scenario == "Offline"
    if offline:
        steady_ns = latency.mean / _without(latency.mean, OFFLINE_MEAN_NS)
    else:
        taken = np.sort(table.complete_ns - table.issue_ns)
        kept = taken[: len(taken) - int(len(taken) * SLOWEST_SHARE)]
        steady_ns = latency.mean * float(kept.mean() / taken.mean()) if taken.mean() > 0 else latency.mean
    return Pace(
        label=leg.spec.label,
        scenario=leg.detail.scenario,
        samples_per_second=rate,
        mean_latency_ns=latency.mean,
        steady_latency_ns=steady_ns,
        median_ttft_ns=None if offline or numbers.ttft_ns is None else numbers.ttft_ns.p50,
        lengths={index: (prompts[index], float(np.mean(tokens))) for index, tokens in outputs.items()},
        issued=table.sample_index.tolist(),
    )


@decides(
    "audit",
    ("caching-pace", "error", OURS, "repeated samples are not answered faster than unique ones",
     "find out what is kept between queries; run the audit again on an idle machine"),
    ("caching-lengths", "error", OURS, "repeated answers are as long as in the reference", AUDIT_AGAIN),
)  # fmt: skip
def compare_paces(reference: Pace, test: Pace, threshold: float) -> list[Finding]:
    """Judge whether `test` is faster than `reference` by more than the lengths and the threshold explain.

    Returns:
        A finding for each rate, with the numbers name, reference, test and limit, and one for the lengths of answers.
    """
    offline = test.scenario == "Offline"
    lengths = {**test.lengths, **reference.lengths}  # the reference's own, where it has the sample
    prompts, outputs = (_mean(lengths, test.issued, one) / _mean(lengths, reference.issued, one) for one in (0, 1))
    shorter = 1 / min(1.0, prompts, outputs)
    # name, times of both, the least time of the reference, threshold, what else raises the limit
    rates: list[tuple[str, tuple[float, float], float, float, float]] = [
        (
            LATENCY, (reference.mean_latency_ns, test.mean_latency_ns),
            OFFLINE_MEAN_NS if offline else LATENCY_FLOOR_NS, threshold,
            shorter * reference.mean_latency_ns / reference.steady_latency_ns,
        )
    ]  # fmt: skip
    if offline:
        # All samples at once: the run lasts as long as its longest answer, its mean latency does not.
        longest, longest_test = (max(lengths[index][1] for index in pace.issued) for pace in (reference, test))
        count, times_ns = len(reference.issued), (1e9 / reference.samples_per_second, 1e9 / test.samples_per_second)
        raised = shorter * max(1.0, longest / longest_test) * _without(count * times_ns[0], OFFLINE_LAST_NS)
        rates.append((RATE, times_ns, OFFLINE_RUN_FLOOR_NS / count, threshold, raised))
    if reference.median_ttft_ns and test.median_ttft_ns is not None:
        # Both at least the floor.
        times_ns = max(reference.median_ttft_ns, TTFT_FLOOR_NS), max(test.median_ttft_ns, TTFT_FLOOR_NS)
        rates.append((TTFT, times_ns, 0, TTFT_THRESHOLD, 1 / min(1.0, prompts)))
    findings = []
    for name, times_ns, least_ns, allowed, raised in rates:
        least_ns = least_ns if times_ns[0] < least_ns else 0  # then both are taken to be no faster
        before, after = (1e9 / max(time_ns, least_ns) for time_ns in times_ns)
        limit = before * (1 + allowed) * raised
        findings.append(
            applied(
                "caching-pace", f"{test.label}: {name}", after < limit * (1 - ROUNDING), f"{after:.6g}",
                f"below {limit:.6g} (reference {before:.6g})", name=name, reference=before, test=after, limit=limit,
            )
        )  # fmt: skip
    if known := [index for index in test.issued if index in reference.lengths]:
        expected, found = (_mean(pace.lengths, known, 1) for pace in (reference, test))
        findings.append(
            applied(
                "caching-lengths", f"{test.label}: mean output tokens", abs(found / expected - 1) <= LENGTH_SHARE,
                f"{found:.2f}", f"{expected:.2f} ± {LENGTH_SHARE:.0%}, as in {reference.label}",
            )
        )  # fmt: skip
    return findings


def excess(found: Sequence[Finding]) -> float:
    """The fastest rate divided by its limit."""
    return max(float(one.numbers["test"] / one.numbers["limit"]) for one in found if "limit" in one.numbers)


def decisive(found: Sequence[Finding]) -> Finding:
    """Of the rates of whole answers, the one with the greatest share of its limit."""
    return max((one for one in found if one.numbers.get("name") in (LATENCY, RATE)), key=lambda one: excess([one]))


def _without(time_ns: float, disturbance_ns: float) -> float:
    """The factor by which a rate rises without a disturbance."""
    return time_ns / max(time_ns - disturbance_ns, time_ns / 2)


def _mean(lengths: dict[int, tuple[int, float]], issued: list[int], which: int) -> float:
    return float(np.mean([lengths[index][which] for index in issued]))
