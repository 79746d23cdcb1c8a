"""How fast a leg answered, and whether another leg is faster than its lengths explain.

An honest system needs time for prompt and output tokens. Of two legs the one with the shorter samples may be faster,
by the ratio of the lengths at most; so the limit is raised by that ratio, and never lowered. It is also raised by
what a busy machine may have taken from the reference, so that an honest system never fails for that.
"""

from dataclasses import asdict, dataclass, replace
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
class Comparison:
    """A leg against its reference. `excess` is how far the faster measure lies over its limit (1 = at it)."""

    label: str
    unit: str
    reference_score: float
    test_score: float
    limit: float
    excess: float
    checks: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        checks = [check.as_json() for check in self.checks]
        return {**asdict(replace(self, checks=())), "checks": checks, "passed": self.passed}


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
)  # fmt: skip
def compare_paces(reference: Pace, test: Pace, threshold: float) -> Comparison:
    """Is `test` faster than `reference` by more than its lengths and the threshold explain?"""
    lengths = {**test.lengths, **reference.lengths}  # the reference's own, where it has the sample
    shorter_prompts = _mean(lengths, test.issued, 0) / _mean(lengths, reference.issued, 0)
    shorter_outputs = _mean(lengths, test.issued, 1) / _mean(lengths, reference.issued, 1)
    allowance = 1 / min(1.0, shorter_prompts, shorter_outputs)
    latency = _Measure(
        "1 / mean latency",
        *_rates(
            reference.mean_latency_ns,
            test.mean_latency_ns,
            OFFLINE_MEAN_NS if test.scenario == "Offline" else LATENCY_FLOOR_NS,
        ),
        allowance * reference.mean_latency_ns / reference.steady_latency_ns,
    )
    if test.scenario == "Offline":
        # All samples at once: the run lasts as long as its longest answer, its mean latency does not.
        tail = max(1.0, _longest(lengths, reference.issued) / _longest(lengths, test.issued))
        unit = "1/s (1 / mean latency)"
        measures = [
            latency,
            _Measure(
                "samples/s",
                *_rates(_sample_ns(reference), _sample_ns(test), OFFLINE_RUN_FLOOR_NS / len(reference.issued)),
                allowance
                * tail
                * _without(len(reference.issued) * 1e9 / reference.samples_per_second, OFFLINE_LAST_NS),
            ),
        ]
    else:
        unit = "samples/s (1 / mean latency)"
        measures = [latency]
    measures = [measure.within(threshold) for measure in measures]
    if reference.median_ttft_ns and test.median_ttft_ns is not None:
        measures.append(_ttft(reference.median_ttft_ns, test.median_ttft_ns, 1 / min(1.0, shorter_prompts)))
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
    checks.append(_same_lengths(reference, test))
    decisive = max(measures[: 2 if test.scenario == "Offline" else 1], key=lambda measure: measure.test / measure.limit)
    return Comparison(
        label=test.label,
        unit=decisive.name if decisive.name == "samples/s" else unit,
        reference_score=decisive.reference,
        test_score=decisive.test,
        limit=decisive.limit,
        excess=max(measure.test / measure.limit for measure in measures),
        checks=tuple(checks),
    )


@dataclass(frozen=True)
class _Measure:
    """A rate of both legs; more is faster. `limit` is the first value that is too fast."""

    name: str
    reference: float
    test: float
    allowance: float
    limit: float = 0.0

    def within(self, threshold: float) -> "_Measure":
        limit = self.reference * (1 + threshold) * self.allowance
        return _Measure(self.name, self.reference, self.test, self.allowance, limit)


def _ttft(reference_ns: float, test_ns: float, allowance: float) -> _Measure:
    """1 / median time to first token, both floored: an engine that answers at once has no prompt to save."""
    reference, test = 1e9 / max(reference_ns, TTFT_FLOOR_NS), 1e9 / max(test_ns, TTFT_FLOOR_NS)
    return _Measure("1 / median TTFT", reference, test, allowance).within(TTFT_THRESHOLD)


def _rates(reference_ns: float, test_ns: float, floor_ns: float) -> tuple[float, float]:
    """1/s of both; where the reference is below the floor, both are taken to be no faster than that."""
    floor_ns = floor_ns if reference_ns < floor_ns else 0.0
    return 1e9 / max(reference_ns, floor_ns), 1e9 / max(test_ns, floor_ns)


def _sample_ns(pace: Pace) -> float:
    return 1e9 / pace.samples_per_second


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


@decides(
    "audit",
    ("caching-lengths", "error", OURS, "repeated answers are as long as in the reference", AUDIT_AGAIN),
)  # fmt: skip
def _same_lengths(reference: Pace, test: Pace) -> Finding:
    """Answers to repeated samples, as long as in the reference leg."""
    known = [index for index in test.issued if index in reference.lengths]
    expected = _mean(reference.lengths, known, 1) if known else test.mean_output_tokens
    found = _mean(test.lengths, known, 1) if known else test.mean_output_tokens
    return applied(
        "caching-lengths",
        f"{test.label}: mean output tokens",
        abs(found / expected - 1) <= LENGTH_SHARE,
        f"{found:.2f}",
        f"{expected:.2f} ± {LENGTH_SHARE:.0%}, as in {reference.label}",
    )


def _mean(lengths: dict[int, tuple[int, float]], issued: list[int], which: int) -> float:
    return float(np.mean([lengths[index][which] for index in issued]))


def _longest(lengths: dict[int, tuple[int, float]], issued: list[int]) -> float:
    return max(lengths[index][1] for index in issued)
