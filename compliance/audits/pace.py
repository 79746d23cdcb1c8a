"""How fast a leg answered, and whether another leg is faster than its lengths explain.

An honest system needs time for prompt and output tokens. Of two legs the one with the shorter samples may be faster,
by the ratio of the lengths at most; so the limit is raised by that ratio, and never lowered. It is also raised by
what a busy machine may have taken from the reference, so that an honest system never fails for that.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from compliance.audits.base import LegArtifacts
from compliance.finding import AUDIT_AGAIN, OURS, Finding, applied, decides
from runs.errors import ExecutionError

# First tokens are few and their time is small, so they scatter; a prompt from a cache saves most of it.
TTFT_THRESHOLD = 0.5
# What a first token costs without any computing (scheduling, one step of the engine's loop): below this, no verdict.
TTFT_FLOOR_NS = 5_000_000
# A reference whose answers (in SingleStream) take less than this computes nothing that a cache could save, and chance
# decides how much faster another leg is; in Offline one whose mean latency is no more than a disturbance may add, or
# whose whole run takes less than this.
LATENCY_FLOOR_NS = 5_000_000
OFFLINE_RUN_FLOOR_NS = 50_000_000
# A repeated answer may differ from the reference's by batch-order effects, hardly in length.
LENGTH_SHARE = 0.10
# What a disturbed machine may have added to the reference. Offline: to all samples alike, and to the last one alone,
# which the whole run waits for; never more than half. SingleStream: the slowest tenth of its queries is left out.
OFFLINE_MEAN_NS = 20_000_000
OFFLINE_LAST_NS = 500_000_000
SLOWEST_SHARE = 0.1
# Exactly at the limit is too fast, also where floating point puts the limit a little higher.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Pace:
    """A leg in the numbers that are compared. Lengths by sample index: (prompt tokens, output tokens)."""

    label: str
    scenario: str
    samples_per_second: float
    tokens_per_second: float | None
    mean_latency_ns: float
    steady_latency_ns: float  # mean without what a disturbed machine may have added
    median_ttft_ns: float | None
    lengths: dict[int, tuple[int, float]]
    issued: list[int]  # sample indices, in the order of issue
    mean_output_tokens: float

    def as_json(self) -> dict[str, Any]:
        record = asdict(self)
        del record["lengths"], record["issued"]
        return record


@dataclass(frozen=True)
class Measure:
    """A rate of both legs; more is faster."""

    name: str
    reference: float
    test: float
    limit: float  # the first value that is too fast

    @property
    def excess(self) -> float:
        """How far the leg lies over its limit; 1 = at it."""
        return self.test / self.limit


@dataclass(frozen=True)
class Comparison:
    """A leg against its reference."""

    label: str
    unit: str
    decisive: Measure  # of the rates of whole answers, the one that is nearest its limit or furthest over it
    excess: float  # of the fastest measure
    checks: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "unit": self.unit,
            "reference_score": self.decisive.reference,
            "test_score": self.decisive.test,
            "limit": self.decisive.limit,
            "excess": self.excess,
            "checks": [check.as_json() for check in self.checks],
            "passed": self.passed,
        }


def pace_of(leg: LegArtifacts) -> Pace:
    """Read a leg's pace: rates and latencies from LoadGen's log, lengths from the record of every request.

    Raises:
        ExecutionError: no sample, no time, or a rate of 0: there is nothing to judge.
    """
    table, numbers = leg.requests, leg.numbers
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
    ttft = numbers.ttft_ns if leg.detail.scenario != "Offline" else None
    return Pace(
        label=leg.spec.label,
        scenario=leg.detail.scenario,
        samples_per_second=rate,
        tokens_per_second=numbers.tokens_per_second,
        mean_latency_ns=latency.mean,
        steady_latency_ns=_steady(leg, latency.mean),
        median_ttft_ns=ttft.p50 if ttft else None,
        lengths={index: (prompts[index], float(np.mean(tokens))) for index, tokens in outputs.items()},
        issued=table.sample_index.tolist(),
        mean_output_tokens=float(np.mean(table.output_tokens)),
    )


@decides(
    "audit",
    ("caching-pace", "error", OURS, "repeated samples are not answered faster than unique ones",
     "find out what is kept between queries; run the audit again on an idle machine"),
    ("caching-lengths", "error", OURS, "repeated answers are as long as in the reference", AUDIT_AGAIN),
)  # fmt: skip
def compare_paces(reference: Pace, test: Pace, threshold: float) -> Comparison:
    """Is `test` faster than `reference` by more than its lengths and the threshold explain?"""
    offline = test.scenario == "Offline"
    lengths = {**test.lengths, **reference.lengths}  # the reference's own, where it has the sample
    prompts, outputs = (_mean(lengths, test.issued, one) / _mean(lengths, reference.issued, one) for one in (0, 1))
    allowance = 1 / min(1.0, prompts, outputs)
    measures = [
        _measure(
            "1 / mean latency",
            (reference.mean_latency_ns, test.mean_latency_ns),
            OFFLINE_MEAN_NS if offline else LATENCY_FLOOR_NS,
            threshold,
            allowance * reference.mean_latency_ns / reference.steady_latency_ns,
        )
    ]
    if offline:
        # All samples at once: the run lasts as long as its longest answer, its mean latency does not.
        longest = [max(lengths[index][1] for index in pace.issued) for pace in (reference, test)]
        count = len(reference.issued)
        undisturbed = _without(count * 1e9 / reference.samples_per_second, OFFLINE_LAST_NS)
        measures.append(
            _measure(
                "samples/s",
                (1e9 / reference.samples_per_second, 1e9 / test.samples_per_second),
                OFFLINE_RUN_FLOOR_NS / count,
                threshold,
                allowance * max(1.0, longest[0] / longest[1]) * undisturbed,
            )
        )
    decisive = max(measures, key=lambda measure: measure.excess)
    if reference.median_ttft_ns and test.median_ttft_ns is not None:
        # Both floored: an engine that answers at once has no prompt to save.
        times_ns = max(reference.median_ttft_ns, TTFT_FLOOR_NS), max(test.median_ttft_ns, TTFT_FLOOR_NS)
        measures.append(_measure("1 / median TTFT", times_ns, 0, TTFT_THRESHOLD, 1 / min(1.0, prompts)))
    checks = [
        applied(
            "caching-pace",
            f"{test.label}: {measure.name}",
            measure.test < measure.limit * (1 - ROUNDING),
            f"{measure.test:.6g}",
            f"below {measure.limit:.6g} (reference {measure.reference:.6g})",
        )
        for measure in measures
    ]
    known = [index for index in test.issued if index in reference.lengths]
    expected = _mean(reference.lengths, known, 1) if known else test.mean_output_tokens
    found = _mean(test.lengths, known, 1) if known else test.mean_output_tokens
    checks.append(
        applied(
            "caching-lengths",
            f"{test.label}: mean output tokens",
            abs(found / expected - 1) <= LENGTH_SHARE,
            f"{found:.2f}",
            f"{expected:.2f} ± {LENGTH_SHARE:.0%}, as in {reference.label}",
        )
    )
    unit = decisive.name if decisive.name == "samples/s" else f"{'1/s' if offline else 'samples/s'} (1 / mean latency)"
    excess = max(measure.excess for measure in measures)
    return Comparison(test.label, unit, decisive, excess, tuple(checks))


def _measure(name: str, times_ns: tuple[float, float], floor_ns: float, threshold: float, allowance: float) -> Measure:
    """The rates of both, by their times; where the reference is below the floor, both are taken to be no faster."""
    floor_ns = floor_ns if times_ns[0] < floor_ns else 0
    reference, test = (1e9 / max(time_ns, floor_ns) for time_ns in times_ns)
    return Measure(name, reference, test, reference * (1 + threshold) * allowance)


def _steady(leg: LegArtifacts, mean_ns: float) -> float:
    """Mean latency without what a disturbed machine may have added."""
    if leg.detail.scenario == "Offline":
        return mean_ns / _without(mean_ns, OFFLINE_MEAN_NS)
    taken = np.sort(leg.requests.complete_ns - leg.requests.issue_ns)
    kept = taken[: len(taken) - int(len(taken) * SLOWEST_SHARE)]
    return mean_ns * float(kept.mean() / taken.mean()) if taken.mean() > 0 else mean_ns


def _without(time_ns: float, disturbance_ns: float) -> float:
    """By how much a rate rises when a disturbance is taken off its time."""
    return time_ns / max(time_ns - disturbance_ns, time_ns / 2)


def _mean(lengths: dict[int, tuple[int, float]], issued: list[int], which: int) -> float:
    return float(np.mean([lengths[index][which] for index in issued]))
