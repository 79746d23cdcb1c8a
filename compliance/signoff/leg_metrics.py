"""The numbers of a leg that gates compare: always the ones derived again, never those of a report."""

from statistics import median

from compliance.signoff.evidence import Evidence
from runs.numbers.numbers import Numbers

# Headline metric by LoadGen scenario, and whether more of it is better.
HEADLINE: dict[str, tuple[str, bool]] = {
    "Offline": ("tokens_per_second", True),
    "Server": ("tokens_per_second", True),
    "SingleStream": ("latency_p90_ms", False),
}
_HIGHER_IS_BETTER = frozenset({"samples_per_second", "tokens_per_second"})


def metrics_of(evidence: Evidence) -> dict[str, float]:
    """samples_per_second, tokens_per_second and percentiles in ms, as derived; empty where nothing could be."""
    if not evidence.details.get("derived"):
        return {}
    numbers = Numbers.model_validate(evidence.details["derived"])
    found = {
        "samples_per_second": numbers.samples_per_second,
        "tokens_per_second": numbers.tokens_per_second,
    }
    if numbers.latency_ns is not None:
        found |= {"latency_p90_ms": numbers.latency_ns.p90 / 1e6, "latency_p99_ms": numbers.latency_ns.p99 / 1e6}
    if numbers.ttft_ns is not None:
        found |= {"ttft_p50_ms": numbers.ttft_ns.p50 / 1e6, "ttft_p99_ms": numbers.ttft_ns.p99 / 1e6}
    if numbers.tpot_ns is not None:
        found |= {"tpot_p50_ms": numbers.tpot_ns.p50 / 1e6, "tpot_p99_ms": numbers.tpot_ns.p99 / 1e6}
    return {name: value for name, value in found.items() if value is not None}


def headline_of(evidence: Evidence) -> tuple[str, bool]:
    """Name of the metric that the scenario is measured by, and whether higher is better."""
    return HEADLINE[evidence.detail.scenario]


def medians(legs: list[Evidence]) -> dict[str, float]:
    """The median of each metric over repeats; only metrics that all of them have."""
    all_metrics = [metrics_of(evidence) for evidence in legs]
    names = set.intersection(*(set(one) for one in all_metrics)) if all_metrics else set()
    return {name: median(one[name] for one in all_metrics) for name in sorted(names)}


def change_pct(ref: float, cand: float, higher_is_better: bool) -> float:
    """Improvement in percent of the reference; negative for a loss."""
    if ref == 0:
        return 0.0
    change = (cand - ref) / abs(ref) * 100
    return change if higher_is_better else -change


def improvement_pct(name: str, ref: float, cand: float) -> float:
    """`change_pct` by the metric's own direction."""
    return change_pct(ref, cand, name in _HIGHER_IS_BETTER)
