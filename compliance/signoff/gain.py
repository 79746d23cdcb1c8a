"""G: is the candidate's gain real, and is the headline the whole truth?"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from compliance.finding import Finding, Outcome, fail, note, warn
from compliance.signoff.baseline import (
    HIGHER_IS_BETTER,
    LEAST_REPEATS,
    NOISY_BANDS,
    change_pct,
    headline_of,
    medians,
    metrics_of,
)
from compliance.signoff.claim import Claim
from compliance.signoff.evidence import Evidence, checks

WORSE_PCT = 10.0  # by this much another metric may get worse before it has to be said


@dataclass
class Delta:
    """The headline metric of both sides; fields of the verdict."""

    metric: str
    higher_is_better: bool
    ref: list[float]
    cand: list[float]
    pct: float | None = None
    non_overlapping: bool | None = None
    drift_pct: float | None = None
    headline_integrity: str = "ok"
    decomposition: list[dict[str, float | str]] = field(default_factory=list)
    real: bool = False


@dataclass(frozen=True)
class SignedPatch:
    """The verdict on one lever, given anew."""

    decision: Outcome
    gain_pct: float


def measure(ref: list[Evidence], cand: list[Evidence]) -> Delta:
    """The headline metric of every repeat, derived from raw."""
    name, higher = headline_of(ref[0])
    values = [[metrics_of(one).get(name) for one in legs] for legs in (ref, cand)]
    before, after = ([value for value in side if value is not None] for side in values)
    return Delta(name, higher, before, after)


@checks(
    "G-4",
    ("too_few_repeats", "error", "both sides have two repeats"),
    ("no_real_gain", "error", "the gain is more than the noise band"),
    ("overlap", "error", "the worst candidate is better than the best reference"),
    ("real_gain", "note", "the gain is real"),
)
def real_delta(delta: Delta, band_pct: float) -> Iterator[Finding]:
    """G-4: more than the noise band, and the worst candidate is better than the best reference."""
    if min(len(delta.ref), len(delta.cand)) < LEAST_REPEATS:
        text = f"{len(delta.ref)} reference and {len(delta.cand)} candidate repeats; {LEAST_REPEATS} each are needed"
        yield fail("G-4/too_few_repeats", text, ref=len(delta.ref), cand=len(delta.cand))
        return
    middle = median(delta.ref), median(delta.cand)
    delta.pct = change_pct(*middle, delta.higher_is_better)
    worst, best = (min, max) if delta.higher_is_better else (max, min)
    apart = worst(delta.cand) - best(delta.ref)
    delta.non_overlapping = apart > 0 if delta.higher_is_better else apart < 0
    numbers: dict[str, Any] = {"delta_pct": delta.pct, "band_pct": band_pct, "ref": delta.ref, "cand": delta.cand}
    shown = f"{delta.metric} {middle[0]:.6g} to {middle[1]:.6g}: {delta.pct:+.3f} %"
    if delta.pct <= band_pct:
        yield fail("G-4/no_real_gain", f"{shown}, not more than the noise band of {band_pct:g} %", **numbers)
    elif not delta.non_overlapping:
        text = f"{shown}, but the worst candidate ({worst(delta.cand):.6g}) is no better than the best reference"
        yield fail("G-4/overlap", f"{text} ({best(delta.ref):.6g})", **numbers)
    else:
        delta.real = True
        yield note("G-4/real_gain", f"{shown}, all repeats apart", **numbers)


@checks(
    "G-3",
    ("baseline_drift", "error", "the reference is still the baseline that was signed off"),
    ("no_drift", "note", "the reference is the baseline that was signed off"),
    ("no_earlier_baseline", "note", "a baseline was given that was measured before"),
)
def drift(delta: Delta, ref: list[Evidence], claim: Claim, band_pct: float) -> Iterator[Finding]:
    """G-3: the reference is still what was signed off as the baseline."""
    if claim.baseline is None or not delta.ref:
        yield note("G-3/no_earlier_baseline", "no baseline was given that was measured at another time: n/a")
        return
    now = medians(ref)[delta.metric]
    delta.drift_pct = abs(now - claim.baseline) / abs(claim.baseline) * 100 if claim.baseline else float("inf")
    text = f"{delta.metric} of the reference is {now:.6g}, of the given baseline {claim.baseline:.6g}"
    text += f": {delta.drift_pct:.3f} % apart"
    numbers: dict[str, Any] = {
        "now": now,
        "baseline": claim.baseline,
        "drift_pct": delta.drift_pct,
        "band_pct": band_pct,
    }
    if delta.drift_pct > band_pct:
        yield fail("G-3/baseline_drift", f"{text}, more than the noise band of {band_pct:g} %", **numbers)
    else:
        yield note("G-3/no_drift", text, **numbers)


def claimed_gain(delta: Delta, claim: Claim, band_pct: float) -> Iterator[Finding]:
    """G-2: the gain that is claimed; beside a microbenchmark's it is that one's (G-11)."""
    if claim.delta_pct is None or delta.pct is None or claim.isolated_speedup is not None:
        return
    if abs(claim.delta_pct - delta.pct) > 2 * band_pct:
        text = f"a gain of {claim.delta_pct:+.2f} % is claimed, the raw files give {delta.pct:+.2f} %"
        yield warn("G-2/claim_vs_raw", text, claimed=claim.delta_pct, raw=delta.pct)


@checks(
    "G-6",
    ("hidden_regression", "warning", "no other metric got much worse"),
    ("cherry_picked", "error", "not only the better number is reported"),
)
def headline_integrity(
    delta: Delta, metrics: dict[str, dict[str, float]], claim: Claim, band_pct: float
) -> Iterator[Finding]:
    """G-6: what got worse while the headline got better. Limits that were broken make a leg INVALID (B-3)."""
    if delta.pct is None or delta.pct <= band_pct:
        return
    allowed_pct = max(WORSE_PCT, NOISY_BANDS * band_pct)
    for name, before in metrics["ref"].items():
        after = metrics["cand"].get(name)
        if after is None or name == delta.metric:
            continue
        worse_pct = -change_pct(before, after, name in HIGHER_IS_BETTER)
        if worse_pct <= allowed_pct:
            continue
        delta.headline_integrity = "flag"
        text = f"{delta.metric} {delta.pct:+.1f} %, but {name} {before:.4g} to {after:.4g} ({worse_pct:.0f} % worse)"
        yield warn("G-6/hidden_regression", text, metric=name, before=before, after=after)
    yield from _cherry_picked(delta, metrics, claim)


def _cherry_picked(delta: Delta, metrics: dict[str, dict[str, float]], claim: Claim) -> Iterator[Finding]:
    """Only the better number told, and tokens/s per p99 TTFT is worse: the trade was hidden."""
    if claim.reported_metrics is None or set(claim.reported_metrics) - {delta.metric}:
        return
    rates = []
    for side in ("ref", "cand"):
        tokens, ttft = metrics[side].get("tokens_per_second"), metrics[side].get("ttft_p99_ms")
        if not tokens or not ttft:
            return
        rates.append(tokens / ttft)
    if rates[1] < rates[0]:
        delta.headline_integrity = "fail"
        text = f"the claim tells of {delta.metric} alone, and tokens/s per ms of p99 TTFT fell"
        text += f" from {rates[0]:.4g} to {rates[1]:.4g}"
        yield fail("G-6/cherry_picked", text, ref=rates[0], cand=rates[1])


@checks(
    "G-11",
    ("isolated_only", "error", "a gain in isolation is one end to end"),
    ("isolated_headline", "warning", "the headline is end to end"),
)
def isolated(delta: Delta, claim: Claim) -> Iterator[Finding]:
    """G-11: a microbenchmark is no headline."""
    if claim.isolated_speedup is None and claim.headline != "isolated":
        return
    said = f"{claim.isolated_speedup:g} ×" if claim.isolated_speedup is not None else "a gain"
    if not delta.real:
        text = f"{said} in isolation is claimed, and no gain end to end was shown"
        yield fail("G-11/isolated_only", text, isolated=claim.isolated_speedup)
    else:
        text = f"{said} in isolation is claimed; end to end it is {delta.pct:+.2f} %"
        yield warn("G-11/isolated_headline", text, isolated=claim.isolated_speedup)


@checks(
    "G-9",
    ("missing_patch_verdict", "error", "each lever of a bundle has a verdict that holds"),
    ("unexplained_delta", "warning", "the levers explain the whole gain"),
    ("explained", "note", "the levers explain the whole gain"),
)
def decomposition(
    delta: Delta, levers: list[str], claim: Claim, band_pct: float, resign: Callable[[str, Path], SignedPatch | str]
) -> Iterator[Finding]:
    """G-9: each lever of a bundle has a verdict of its own, and together they explain the whole.

    Args:
        resign: gives the verdict on a lever anew, from the legs that a verdict's file names; else why it cannot.
    """
    product = 1.0
    given = {one.lever: one.verdict_file for one in claim.patch_verdicts}
    for lever in levers:
        if lever not in given:
            yield fail("G-9/missing_patch_verdict", f"no patch verdict was given for {lever}", lever=lever)
            continue
        signed = resign(lever, given[lever])
        if isinstance(signed, str):
            yield fail("G-9/missing_patch_verdict", signed, given[lever], lever=lever)
            continue
        delta.decomposition.append({"lever": lever, "delta_pct": signed.gain_pct, "verdict": signed.decision})
        product *= 1 + signed.gain_pct / 100
    if delta.pct is None or len(delta.decomposition) < len(levers):
        return
    explained_pct = (product - 1) * 100
    text = f"the levers together explain {explained_pct:+.2f} %, the bundle gained {delta.pct:+.2f} %"
    if abs(explained_pct - delta.pct) > NOISY_BANDS * band_pct:
        yield warn("G-9/unexplained_delta", text, explained_pct=explained_pct, delta_pct=delta.pct)
    else:
        yield note("G-9/explained", text, explained_pct=explained_pct)
