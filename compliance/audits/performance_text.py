"""`verify_performance.txt` of an audit: the official wording first, then what stands behind it."""

from collections.abc import Sequence

from compliance.audits.base import LegArtifacts
from compliance.finding import Finding
from runs.numbers.numbers import LatencyNumbers

SHOWN = ("mean", "p50", "p90", "p99")


def performance_text(
    reference_score: float | str,
    test_score: float | str,
    passed: bool,
    problem: str,
    rule: str,
    legs: Sequence[LegArtifacts],
    checks: Sequence[Finding],
) -> str:
    """The text of a caching audit's verdict. `problem` follows `TEST FAIL:`."""
    lines = [
        "Verifying performance.",
        f"reference score = {reference_score}",
        f"test score = {test_score}",
        "TEST PASS" if passed else f"TEST FAIL: {problem}",
        *own_lines(rule, legs, checks),
    ]
    return "\n".join(lines) + "\n"


def own_lines(rule: str, legs: Sequence[LegArtifacts], checks: Sequence[Finding]) -> list[str]:
    """What follows the official wording: the rule, the legs, every check."""
    return [f"rule: {rule}", *(line for leg in legs for line in leg_lines(leg)), *(f"check: {c}" for c in checks)]


def leg_lines(leg: LegArtifacts) -> list[str]:
    """A leg in three lines: scenario, rates, validity; TTFT; TPOT."""
    detail, numbers = leg.detail, leg.numbers
    rates = [
        f"{value:.6g} {unit}"
        for value, unit in ((numbers.samples_per_second, "samples/s"), (numbers.tokens_per_second, "tokens/s"))
        if value is not None
    ]
    lines = [
        f"{leg.spec.label}: {detail.scenario}, {', '.join(rates)}, {leg.completed} of {leg.requested} samples, "
        f"LoadGen says {detail.validity}"
    ]
    for name, values in (("latency", numbers.latency_ns), ("TTFT", numbers.ttft_ns), ("TPOT", numbers.tpot_ns)):
        if values is not None:
            lines.append(f"{leg.spec.label}: {name} {_percentiles(values)}")
    return lines


def _percentiles(values: LatencyNumbers) -> str:
    return ", ".join(f"{name} {getattr(values, name) / 1e6:.3f} ms" for name in SHOWN)
