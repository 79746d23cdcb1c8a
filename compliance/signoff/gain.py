"""Checks G-2, G-3, G-4, G-6 and G-11: on the gain of the candidate, and on its other metrics."""

from collections.abc import Iterator
from statistics import median
from typing import Any

from compliance.judge.verdict import Finding, stated
from compliance.signoff.baseline import (
    HIGHER_IS_BETTER,
    MIN_REPEATS,
    NOISY_BANDS,
    change_pct,
    headline_of,
    metrics_of,
)
from compliance.signoff.claim import Claim, claim_differs
from compliance.signoff.evidence import Sides, checks
from compliance.signoff.signoff_verdict import SignOffDetails

WORSE_PCT = 10.0  # largest loss of another metric that causes no finding, in percent


def gain(comparison: Sides) -> Iterator[Finding]:
    """Apply the checks on the gain to the recomputed headline metric of every repetition."""
    name, sides = headline_of(comparison.before[0]), (comparison.before, comparison.after)
    values = [[value for run in runs if (value := metrics_of(run).get(name)) is not None] for runs in sides]
    real = list(real_gain(comparison.details, name, *values))
    yield from real
    yield from drift(comparison.details, name, comparison.claim)
    yield from headline_integrity(comparison.details, name, comparison.claim)
    yield from isolated(
        comparison.details, comparison.claim, real=any(finding.rule == "G-4/real_gain" for finding in real)
    )


@checks(
    "G-4",
    ("too_few_repeats", "error", "number of repetitions of each side"),
    ("no_real_gain", "error", "gain, compared with the noise band"),
    ("overlap", "error", "worst candidate repetition, compared with the best reference repetition"),
    ("real_gain", "note", "gain above the noise band, without overlap"),
)
def real_gain(details: SignOffDetails, name: str, ref: list[float], cand: list[float]) -> Iterator[Finding]:
    """Check that the gain exceeds the noise band and that the repetitions do not overlap (G-4)."""
    if min(len(ref), len(cand)) < MIN_REPEATS:
        text = f"{len(ref)} reference and {len(cand)} candidate repetitions, required: at least {MIN_REPEATS} each"
        yield stated("G-4/too_few_repeats", text, ref=len(ref), cand=len(cand))
        return
    band_pct = details.noise_band_pct
    before, after = median(ref), median(cand)
    pct = details.e2e_delta_pct = change_pct(name, before, after)
    worst, best = (min(cand), max(ref)) if name in HIGHER_IS_BETTER else (max(cand), min(ref))
    details.non_overlapping = change_pct(name, best, worst) > 0
    numbers: dict[str, Any] = {"delta_pct": pct, "band_pct": band_pct, "ref": ref, "cand": cand}
    shown = f"{name} {before:.6g} to {after:.6g}: {pct:+.3f}%"
    if pct <= band_pct:
        yield stated("G-4/no_real_gain", f"{shown}, required: more than the noise band of {band_pct:g}%", **numbers)
    elif not details.non_overlapping:
        change, required = (
            f"{shown}",
            f"the worst candidate ({worst:.6g}) is not better than the best reference ({best:.6g})",
        )
        yield stated("G-4/overlap", "", found=change, required=required, **numbers)
    else:
        yield stated("G-4/real_gain", f"{shown}, without overlap of the repetitions", **numbers)


@checks(
    "G-3",
    ("baseline_drift", "error", "drift of the reference from the baseline of the claim"),
    ("no_drift", "note", "drift of the reference from the baseline of the claim"),
    ("no_earlier_baseline", "note", "missing baseline in the claim"),
)
def drift(details: SignOffDetails, name: str, claim: Claim) -> Iterator[Finding]:
    """Compare the reference with the baseline that was signed off earlier (G-3)."""
    now, band_pct = details.metrics["ref"].get(name), details.noise_band_pct
    if claim.baseline is None or now is None:
        yield stated("G-3/no_earlier_baseline", "drift was not checked, because `baseline` is missing in the claim")
        return
    pct = abs(now - claim.baseline) / abs(claim.baseline) * 100 if claim.baseline else float("inf")
    details.baseline_drift_pct = pct
    text = f"{name} is {now:.6g} in the reference and {claim.baseline:.6g} in the claimed baseline: {pct:.3f}% apart"
    numbers: dict[str, Any] = {"now": now, "baseline": claim.baseline, "drift_pct": pct, "band_pct": band_pct}
    if pct > band_pct:
        yield stated("G-3/baseline_drift", f"{text}, required: at most the noise band of {band_pct:g}%", **numbers)
    else:
        yield stated("G-3/no_drift", text, **numbers)


@checks(
    "G-6",
    ("hidden_regression", "warning", "loss in another metric"),
    ("cherry_picked", "error", "worse metrics that the claim leaves out"),
)
def headline_integrity(details: SignOffDetails, name: str, claim: Claim) -> Iterator[Finding]:
    """Check the claimed gain (G-2), and metrics that became worse while the headline metric improved (G-6)."""
    pct, band_pct = details.e2e_delta_pct, details.noise_band_pct
    if pct is None:
        return
    # G-11 checks the claimed gain of a microbenchmark.
    claimed = claim.delta_pct if claim.isolated_speedup is None else None
    if claimed is not None and abs(claimed - pct) > 2 * band_pct:
        text = f"claimed gain {claimed:+.2f}%, recomputed from the raw files {pct:+.2f}%"
        yield claim_differs(details, text, claimed, pct, is_overstated=claimed > pct)
    if pct <= band_pct:
        return
    before, after = (details.metrics[side] for side in ("ref", "cand"))
    for metric in [metric_name for metric_name in before if metric_name in after and metric_name != name]:
        worse_pct = -change_pct(metric, before[metric], after[metric])
        if worse_pct > max(WORSE_PCT, NOISY_BANDS * band_pct):
            change, required = f"{name} changed by {pct:+.1f}%", f"{metric} changed from {before[metric]:.4g}"
            required += f" to {after[metric]:.4g} ({worse_pct:.0f}% worse)"
            numbers: dict[str, Any] = {"metric": metric, "before": before[metric], "after": after[metric]}
            yield stated("G-6/hidden_regression", found=change, required=required, **numbers)
    if claim.reported_metrics is None or set(claim.reported_metrics) - {name}:
        return
    pairs = [(side.get("tokens_per_second"), side.get("ttft_p99_ms")) for side in (before, after)]
    rates = [tokens / ttft for tokens, ttft in pairs if tokens and ttft]
    if len(rates) == 2 and rates[1] < rates[0]:
        change = f"the claim reports only {name}"
        required = f"the ratio of tokens/s to p99 TTFT fell from {rates[0]:.4g} to {rates[1]:.4g}"
        yield stated("G-6/cherry_picked", found=change, required=required, ref=rates[0], cand=rates[1])


@checks(
    "G-11",
    ("isolated_only", "error", "claimed microbenchmark gain without an end-to-end gain"),
    ("isolated_headline", "warning", "claimed microbenchmark gain as the headline"),
)
def isolated(details: SignOffDetails, claim: Claim, *, real: bool) -> Iterator[Finding]:
    """Check that the claimed gain was measured end to end, not only in a microbenchmark (G-11).

    Args:
        real: True if G-4 found an end-to-end gain.
    """
    if claim.isolated_speedup is None and claim.headline != "isolated":
        return
    claimed = f"{claim.isolated_speedup:g} ×" if claim.isolated_speedup is not None else "a gain"
    if not real:
        stated_gain, required = (
            f"the claim states a gain of {claimed} in a microbenchmark",
            "the end-to-end gain is missing",
        )
        yield stated("G-11/isolated_only", "", found=stated_gain, required=required, isolated=claim.isolated_speedup)
    else:
        text = f"claimed microbenchmark gain: {claimed}; end-to-end gain: {details.e2e_delta_pct:+.2f}%"
        yield stated("G-11/isolated_headline", text, isolated=claim.isolated_speedup)
