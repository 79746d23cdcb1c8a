"""Accuracy verdict of a run: its scores compared with their targets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from compliance.accuracy.metrics import Metric, Scores
from compliance.judge.check import decides
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import RERUN
from compliance.judge.verdict import Verdict
from runs.benchmark import Benchmark, Target
from runs.record.observed import Weights


@dataclass
class AccuracyVerdict(Verdict):
    """Scores and what they are worth: a finding for each score that has a target, with the numbers metric, measured,
    low and high. `label` names what was scored against what.
    """

    label: str
    metric: Metric
    scores: Scores
    targets: Mapping[str, Target] | None

    @property
    def passed(self) -> bool | None:
        """None without a target: then there is nothing to pass."""
        return None if self.targets is None else self.outcome == "PASS"

    @property
    def references(self) -> dict[str, float] | None:
        """The reference implementation's own scores."""
        return None if self.targets is None else {name: target.reference for name, target in self.targets.items()}


@decides(
    "result",
    ("accuracy-target", "error", "[checker] accuracy_check.accuracy_result_check", "scores reach their targets",
     "correct the system; the model must reach 99 % of the reference"),
    ("accuracy-count", "error", "[rules] accuracy mode", "as many responses were scored as the target has", RERUN),
)  # fmt: skip
def judge(metric: Metric, scores: Scores, targets: Mapping[str, Target] | None, label: str) -> AccuracyVerdict:
    """Compare scores with their targets as the official checker does, which reads means with four decimals.

    The share of the reference is not rounded, so 38.3914 misses 99 % of 38.7792. The number of responses must be the
    target's, which the checker does not look at.
    """
    verdict = AccuracyVerdict(label, metric, scores, targets)
    for name, target in (targets or {}).items():
        measured, low, high = scores[name], target.low, target.high
        if high is None:
            required = f"at least {low:.10g}"
        else:
            required = f"exactly {low:.10g}" if high == low else f"{low:.10g} to {high:.10g}"
        rule = "accuracy-count" if name == metric.count else "accuracy-target"
        passed = low <= measured and (high is None or measured <= high)
        numbers: dict[str, Any] = {"metric": name, "measured": measured, "low": low, "high": high}
        verdict.findings.append(compared(rule, name, passed, f"{measured:.10g}", required, **numbers))
    return verdict


def score_line(check: Finding) -> str:
    """One score as people read it."""
    return f"{check.text} {check.found}, required {check.required}: {'pass' if check.passed else 'FAIL'}"


def targets_that_apply(
    benchmark: Benchmark,
    count: int | None,
    is_bundled: Callable[[], bool],
    weights_sha256: Callable[[], str | None],
    weights: Weights | None,
) -> tuple[Mapping[str, Target] | None, str]:
    """The targets, and their name; None where there are none.

    Args:
        count: samples that were answered.
        is_bundled: whether they are the bundled articles; asked only where that decides.
        weights_sha256: hash of the model's weights; likewise.
        weights: from the headers of the files; None where they are not known.
    """
    if count == benchmark.accuracy_samples:
        return benchmark.targets, f"{benchmark.submission_name} reference"
    nothing = f"no reference scores for {count:,} samples of this dataset"
    from qsl.embedded.articles import bundled_baseline

    baseline = bundled_baseline()
    targets = benchmark.targets_for(baseline.scores) if baseline else None
    if baseline is None or targets is None or count != baseline.gen_num or not is_bundled():
        return None, nothing
    if not baseline.is_of(weights_sha256(), weights):
        return None, f"{nothing}, or of this model"
    return targets, f"bundled articles, {baseline.model} (transformers float32 baseline)"
