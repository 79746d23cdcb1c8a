"""Accuracy verdict of a run, and the two files that hold it.

`accuracy.json` is the full record. `accuracy.txt` is for the official submission checker, which looks for the
scores with regular expressions in every line: it holds the reference evaluation's result and nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, FiniteFloat

from compliance.accuracy.metrics import Metric, Scores
from compliance.judge.check import decides
from compliance.judge.finding import Finding, applied
from compliance.judge.rule import RERUN
from compliance.judge.verdict import Verdict
from runs.benchmark import Benchmark, Target
from runs.files import write_atomic, write_json
from runs.reading import read_as
from runs.record.layout import RunDir
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
    ("accuracy-count", "error", "[rules] accuracy mode", "as many answers were scored as the target has", RERUN),
)  # fmt: skip
def judge(metric: Metric, scores: Scores, targets: Mapping[str, Target] | None, label: str) -> AccuracyVerdict:
    """Compare scores with their targets as the official checker does, which reads means with four decimals.

    The share of the reference is not rounded, so 38.3914 misses 99 % of 38.7792. The number of answers must be the
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
        numbers = {"metric": name, "measured": measured, "low": low, "high": high}
        verdict.findings.append(applied(rule, name, passed, f"{measured:.10g}", required, **numbers))
    return verdict


def write_reports(run: RunDir, verdict: AccuracyVerdict) -> None:
    """Write the record, then the text: where `accuracy.txt` exists, `accuracy.json` does too."""
    write_json(run.accuracy_json, scores_record(verdict).model_dump())
    write_atomic(run.accuracy_text, accuracy_text(verdict))


def accuracy_text(verdict: AccuracyVerdict) -> str:
    """The content of accuracy.txt, without the `hash=` line that the official truncation tool appends."""
    return f"Results\n\n{verdict.metric.text(verdict.scores)}\n"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class ScoreCheck(_Record):
    """A score against its target."""

    name: str
    measured: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat | None
    passed: bool


class ScoresRecord(_Record):
    """The content of an `accuracy.json`; the names are those of `AccuracyVerdict`."""

    label: str
    metric: str
    scores: dict[str, int | FiniteFloat]
    target: dict[str, int | FiniteFloat] | None
    checks: list[ScoreCheck]
    passed: bool | None


def scores_record(verdict: AccuracyVerdict) -> ScoresRecord:
    """What is written of a verdict."""
    checks = []
    for check in verdict.findings:
        numbers = dict(check.numbers)
        checks.append(ScoreCheck(name=numbers.pop("metric"), **numbers, passed=check.passed))
    return ScoresRecord(
        label=verdict.label,
        metric=verdict.metric.name,
        scores=verdict.scores,
        target=verdict.references,
        checks=checks,
        passed=verdict.passed,
    )


def read_scores_record(run: RunDir) -> ScoresRecord:
    """The scores of a finished accuracy leg as they were judged.

    Raises:
        InputError: its accuracy.json is missing or damaged.
    """
    return read_as(run.accuracy_json, ScoresRecord, "build it again with verify", within=run.root, strict=True)


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
    nothing = f"no reference scores for {count:,} samples of this data set"
    from qsl.embedded.articles import bundled_baseline

    baseline = bundled_baseline()
    targets = benchmark.targets_for(baseline.scores) if baseline else None
    if baseline is None or targets is None or count != baseline.gen_num or not is_bundled():
        return None, nothing
    if not baseline.is_of(weights_sha256(), weights):
        return None, f"{nothing}, or of this model"
    return targets, f"bundled articles, {baseline.model} (transformers float32 baseline)"
