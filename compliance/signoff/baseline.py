"""Checks B: on the repetitions of a baseline. Also the recomputed metrics that the sign-off compares."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from compliance.judge.verdict import Finding, stated
from compliance.results.same_system import REPEATS
from compliance.signoff.coherence import coherent
from compliance.signoff.evidence import Evidence, Sides, checks
from compliance.signoff.provenance import one_system
from runs.numbers.numbers import Numbers

NOISY_BANDS = 3  # largest spread or unexplained gain that is not flagged, as a multiple of the noise band
MIN_REPEATS = 2

# Headline metric of each LoadGen scenario.
_HEADLINE = {"Offline": "tokens_per_second", "Server": "tokens_per_second", "SingleStream": "latency_p90_ms"}
HIGHER_IS_BETTER = frozenset({"samples_per_second", "tokens_per_second"})
_TIMES = frozenset({"latency_p90_ms", "latency_p99_ms", "ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms"})


def metrics_of(evidence: Evidence) -> dict[str, float]:
    """Return the recomputed metrics: rates per second and percentiles in ms; empty if no numbers were recomputed."""
    values = Numbers.model_validate(evidence.details.get("derived") or {}).flat("p50", "p90", "p99")
    return {name: value for name, value in values.items() if name in HIGHER_IS_BETTER | _TIMES}


def headline_of(evidence: Evidence) -> str:
    """Return the name of the headline metric of the scenario."""
    return _HEADLINE[evidence.detail.scenario]


def medians(runs: list[Evidence]) -> dict[str, float]:
    """Return the median of each metric that all runs have."""
    all_metrics = [metrics_of(evidence) for evidence in runs]
    names = set.intersection(*(set(metrics) for metrics in all_metrics)) if all_metrics else set()
    return {name: median(metrics[name] for metrics in all_metrics) for name in sorted(names)}


def change_pct(name: str, ref: float, cand: float) -> float:
    """Return the improvement of a metric in percent of the reference; negative for a loss."""
    change = (cand - ref) / abs(ref) * 100 if ref else 0.0
    return change if name in HIGHER_IS_BETTER else -change


def measured_headline(name: str, metrics: dict[str, dict[str, float]]) -> str:
    """Return the recomputed headline metric as text; with a candidate, the metric of both sides and the gain."""
    ref, cand = (metrics[side].get(name) for side in ("ref", "cand"))
    if ref is None or cand is None:
        return "" if ref is None else f"{name} {ref:.6g}"
    return f"{name} {ref:.6g} to {cand:.6g}, {change_pct(name, ref, cand):+.2f}%"


@checks("B-1", ("too_few_repeats", "error", "number of repetitions of the baseline"))
def baseline(sides: Sides) -> Iterator[Finding]:
    """Apply B-1, B-2, B-3 and B-5 to all repetitions."""
    repeats = sides.before
    if len(repeats) < MIN_REPEATS:
        text = f"performance runs of the baseline: {len(repeats)}, required: at least {MIN_REPEATS}"
        yield stated("B-1/too_few_repeats", text, *(run.dir.root for run in sides.ref[:1]), repeats=len(repeats))
    else:
        yield from same_conditions(repeats)
        yield from spread(repeats, sides.details.noise_band_pct)
    yield from coherent(sides.ref)


@checks("B-3", ("other_conditions", "error", "differences in conditions between repetitions"))
def same_conditions(repeats: list[Evidence]) -> Iterator[Finding]:
    """Check that the repetitions have one configuration (B-3)."""
    return one_system(repeats, REPEATS)


def spread(repeats: list[Evidence], band_pct: float) -> Iterator[Finding]:
    """Check the spread of the headline metric over the repetitions (B-1, B-2)."""
    name = headline_of(repeats[0])
    values = [metrics_of(evidence).get(name) for evidence in repeats]
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        yield stated("P-1/null_metric", f"{name} of a repetition cannot be recomputed", repeats[0].dir.root)
        return
    yield from judge_spread(name, numbers, band_pct, repeats[0].dir.root)


@checks(
    "B-1",
    ("noisy_baseline", "warning", "spread of the repetitions above three noise bands"),
    ("steady", "note", "spread of the repetitions within the noise band"),
    ("spread", "note", "spread of the repetitions within three noise bands"),
)
@checks(
    "B-2",
    ("warmup_outlier", "warning", "distance of the first repetition from the others"),
    ("outlier", "warning", "distance of a repetition from the others"),
)
@checks("B-6", ("baseline_imperfect", "warning", "spread of the repetitions after they were repeated"))
def judge_spread(name: str, values: list[float], band_pct: float, *where: Path) -> Iterator[Finding]:
    """Check the spread of the values of the repetitions. `values` is in the order in which the repetitions started."""
    middle = median(values)
    spread_pct = (max(values) - min(values)) / middle * 100
    shown = " / ".join(f"{value:.6g}" for value in values)
    numbers: dict[str, Any] = {"metric": name, "values": values, "spread_pct": spread_pct, "band_pct": band_pct}
    text = f"{name} {shown}: spread {spread_pct:.3f}%, noise band {band_pct:g}%"
    if spread_pct <= NOISY_BANDS * band_pct:
        slug = "steady" if spread_pct <= band_pct else "spread"
        yield stated(f"B-1/{slug}", text, *where, **numbers)
        return
    yield stated("B-1/noisy_baseline", text, *where, **numbers)
    place = max(range(len(values)), key=lambda index: abs(values[index] - middle))
    remaining = [value for index, value in enumerate(values) if index != place]
    rest_pct = (max(remaining) - min(remaining)) / middle * 100
    if len(values) >= 3 and rest_pct <= NOISY_BANDS * band_pct:
        slug = "warmup_outlier" if place == 0 else "outlier"
        off = (values[place] - middle) / middle
        text = f"repetition {place + 1} differs from the median by {off:+.2%}; the others lie within {rest_pct:.3f}%"
        yield stated(f"B-2/{slug}", text, *where, repeat=place + 1)
