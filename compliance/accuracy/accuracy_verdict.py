"""The accuracy verdict of a run: its scores compared with their targets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from compliance.accuracy.metrics import Metric, Scores
from compliance.judge.rule import RERUN, decides
from compliance.judge.verdict import Finding, compared
from runs.benchmark import Benchmark, Target
from runs.record.observed import Weights


@dataclass
class AccuracyVerdict:
    """Scores of a run, with a finding for each score that has a target. `label` names the source of the targets."""

    label: str
    metric: Metric
    scores: Scores
    targets: Mapping[str, Target] | None
    findings: list[Finding] = field(default_factory=list)

    @property
    def passed(self) -> bool | None:
        """True if all targets are met, None if no target applies."""
        return None if self.targets is None else all(finding.passed for finding in self.findings)

    @property
    def references(self) -> dict[str, float] | None:
        """Scores of the reference implementation."""
        return None if self.targets is None else {name: target.reference for name, target in self.targets.items()}


@decides(
    "result",
    ("accuracy-target", "error", "[checker] accuracy_check.accuracy_result_check", "accuracy scores",
     "correct the system and rerun; at least 99% of the reference score is needed"),
    ("accuracy-count", "error", "[rules] accuracy mode", "number of scored responses", RERUN),
)  # fmt: skip
def judge_scores(metric: Metric, scores: Scores, targets: Mapping[str, Target] | None, label: str) -> AccuracyVerdict:
    """Compare scores with their targets as the official checker does, with four decimals for means.

    The share of the reference is not rounded: 38.3914 is below 99% of 38.7792. The number of responses must equal the
    target, which the checker does not check.
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
        verdict.findings.append(compared(rule, passed, f"{measured:.10g}", required, **numbers, text=name))
    return verdict


def score_line(check: Finding) -> str:
    """Return the finding on a score as a line of text."""
    return f"{check.text} {check.found}, required {check.required}: {'pass' if check.passed else 'FAIL'}"


def targets_that_apply(
    benchmark: Benchmark,
    count: int | None,
    is_bundled: Callable[[], bool],
    weights_sha256: Callable[[], str | None],
    weights: Weights | None,
) -> tuple[Mapping[str, Target] | None, str]:
    """Return the targets that apply to a run, and their name; None and the reason if no target applies.

    Args:
        count: Number of samples with a response.
        is_bundled: Function that returns whether the dataset is the bundled articles; called only if needed.
        weights_sha256: Function that returns the hash of the model weights; called only if needed.
        weights: Headers of the weight files, or None if unknown.
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
        return None, f"{nothing} or for this model"
    return targets, f"bundled articles, {baseline.model} (transformers float32 baseline)"
