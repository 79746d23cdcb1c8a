"""The verdict on one run: the checks for its mode, and the numbers shown with the findings."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from compliance.accuracy.accuracy_verdict import score_line
from compliance.judge.check import Check, check_of, judge
from compliance.judge.finding import Finding
from compliance.judge.verdict import LOGS, Verdict
from compliance.results import accuracy, input_checks, logged_responses, official_rules, performance, plausibility
from compliance.results.attestation_check import unchanged
from compliance.results.run_evidence import RunEvidence
from runs.record.finished_run import ACCURACY, PERFORMANCE

# Checks in the order of their findings. Each module lists its own checks.
CLAIMS = {PERFORMANCE: performance.CLAIM, ACCURACY: accuracy.CLAIM}
CHECKS: dict[str, tuple[Check, ...]] = {
    PERFORMANCE: (
        *performance.OF_ANY,
        *performance.OF_OURS,
        check_of(unchanged),
        *plausibility.PERFORMANCE,
        *official_rules.PERFORMANCE,
        *official_rules.PERFORMANCE_SEEDS,
        *input_checks.OF_OURS,
    ),
    ACCURACY: (
        *accuracy.OF_ANY,
        check_of(performance.detail_against_summary),
        check_of(unchanged),
        *logged_responses.ACCURACY,
        *official_rules.ACCURACY,
        *official_rules.ACCURACY_SEEDS,
        *input_checks.OF_OURS,
        *accuracy.OF_OURS,
    ),
}


@dataclass
class RunVerdict(Verdict):
    """The verdict on one run."""

    mode: Literal["performance", "accuracy"]
    directory: str
    scenario: str
    loadgen_key: str
    loadgen_version: str
    claims_official: bool
    rule: str  # sentence with the rule that decides the verdict
    notes: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # numbers as lines of text
    details: dict[str, Any] = field(default_factory=dict)  # numbers for programs
    reference_score: float | None = None
    test_score: float | None = None
    round: str | None = None  # round whose rules apply; None: the seeds name no supported round
    round_from_seeds: bool = False
    scored_again: bool = False  # False: the scores come from accuracy.txt

    @property
    def title(self) -> str:
        return f"{self.mode}: "

    @property
    def misplaced(self) -> bool:
        """True if the mode of the log differs from the mode that its directory claims."""
        return any(one.rule in ("perf-mode", "accuracy-mode") for one in self.violated)

    @property
    def has_target(self) -> bool:
        """False for an accuracy run whose dataset or model has no reference scores."""
        return all(finding.rule != "accuracy-no-target" for finding in self.violated)

    @property
    def checks(self) -> list[Finding]:
        """Findings on rules, met or violated, without contradictions."""
        return [finding for finding in self.findings if finding.kind != "contradiction"]

    def as_json(self) -> dict[str, Any]:
        """Return the verdict in plain types, for programs."""
        plain = asdict(replace(self, findings=[], error=None))
        left_out = ("applied", "outcome_policy", "held_official", "declared", "scored_again", "round_from_seeds")
        return {name: value for name, value in plain.items() if name not in left_out} | {
            "declared_unofficial": self.declared,
            "findings": [finding.as_json() for finding in self.findings],
        }


def judge_run(run: RunEvidence, *, official: bool = False) -> RunVerdict:
    """Return the verdict on a performance or accuracy run.

    Args:
        official: True if the official rules count even if the manifest marks the run as not eligible for submission.

    Raises:
        InputError: If a file is damaged, or no scores are available. ExecutionError: If LoadGen did not finish.
        SetupError: If accuracy.txt exists and the accuracy log is missing.
    """
    mode = run.claimed_mode or run.mode
    judgement = judge(run, CLAIMS[mode])
    of_its_mode = mode == run.mode
    if of_its_mode:
        if mode == ACCURACY:
            accuracy.require_responses(run)
        judgement.take(judge(run, CHECKS[mode]))
    if judgement.error is not None:
        raise judgement.error
    verdict = RunVerdict(
        mode="performance" if mode == PERFORMANCE else "accuracy",
        directory=str(run.dir.root),
        scenario=run.scenario,
        loadgen_key=run.benchmark.loadgen_key,
        loadgen_version=str(run.detail.get("loadgen_version", "")),
        claims_official=run.claims_official,
        rule="",
        findings=judgement.findings,
        applied=frozenset(judgement.applied),
        not_judged=judgement.not_judged,
        outcome_policy=LOGS,
        held_official=official or run.claims_official,
        declared=run.manifest.unofficial_reasons if run.manifest else [],
    )
    if not of_its_mode:
        verdict.rule = "the mode of the log must be the mode that its directory claims"
    elif mode == PERFORMANCE:
        _add_numbers(verdict, run)
    else:
        _add_scores(verdict, run)
    return verdict


def _add_numbers(verdict: RunVerdict, run: RunEvidence) -> None:
    result, scenario = run.result, run.detail.scenario
    source = f"per-sample times in {'the trace' if result.derived_from == 'trace' else 'requests.jsonl'}"
    if not result.derived:
        source = "summary, because per-sample times are missing"
    verdict.rule = (
        f"the reported score (test score) must agree with the score from the {source} (reference score), "
        "LoadGen's verdict must be VALID, and every rule below must be met"
    )
    if result.reported is not None:
        verdict.test_score = performance.score_of(scenario, result.reported)
        verdict.reference_score = (
            performance.score_of(scenario, result.derived)
            if result.derived is not None
            else performance.printed_score(run)
        )
        verdict.lines += performance.number_lines(
            result.reported, result.counts.samples or result.counts.samples_expected
        )
    verdict.details = result.model_dump(mode="json")


def _add_scores(verdict: RunVerdict, run: RunEvidence) -> None:
    targets = ", ".join(run.benchmark.targets)
    verdict.rule = f"one response to every sample, no error records, and {targets} meet their targets"
    scored = run.accuracy
    verdict.scored_again = run.scores.path == run.dir.accuracy_log
    verdict.details = {
        "scores_from": run.scores.path.name,
        "label": scored.label,
        "metric": scored.metric.name,
        "scores": scored.scores,
        "target": scored.references,
    }
    if scored.targets is None:
        verdict.lines += [f"{name:<18}{value:g}" for name, value in scored.scores.items()]
    else:
        verdict.lines.append(f"reference: {scored.label}")
        for finding, reference in zip(scored.findings, (scored.references or {}).values(), strict=True):
            verdict.lines.append(f"{score_line(finding)}  (reference {reference:.10g})")
    if run.absent("responses") and (run.sources.dataset_path or run.sources.model_path):
        verdict.notes.append("--dataset-path and --model-path were not used, because the accuracy log is truncated")
