"""The policy of `verify` for LoadGen's runs and results: the checks of each kind of subject, in their order."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from compliance.judge.rule import Check, check_of
from compliance.judge.verdict import Finding, Policy, Subject, in_turn, judge
from compliance.results import accuracy, input_checks, logged_responses, official_rules, performance, plausibility
from compliance.results.attestation_check import unchanged
from compliance.results.details import ResultVerdict, RunVerdict, result_details, run_details
from compliance.results.find_results import find_results
from compliance.results.heartbeat import last_heartbeat
from compliance.results.loadgen_build import loadgen_sources
from compliance.results.recorded_facts import recorded_dates, recorded_facts
from compliance.results.result import AFTER_ERROR, Result
from compliance.results.result import CHECKS as RESULT_CHECKS
from compliance.results.run_evidence import RunEvidence
from compliance.results.scoring import ScoreSources, expect_scoring, with_scorer
from compliance.results.text import RESULT
from compliance.sources import Case, VerdictRequest
from runs.errors import HarnessError
from runs.record.layout import RunDir
from runs.rounds import Round

# Checks in the order of their findings. Each module lists its own checks.
CLAIMS = {"performance": performance.CLAIM, "accuracy": (*accuracy.CLAIM, accuracy.RESPONSES)}
CHECKS: dict[str, tuple[Check, ...]] = {
    "performance": (
        *performance.OF_ANY,
        *performance.OF_OURS,
        check_of(unchanged),
        *plausibility.PERFORMANCE,
        *official_rules.PERFORMANCE,
        *official_rules.PERFORMANCE_SEEDS,
        check_of(loadgen_sources),
        *input_checks.OF_OURS,
        check_of(recorded_facts),
        check_of(recorded_dates),
        check_of(last_heartbeat),
    ),
    "accuracy": (
        *accuracy.OF_ANY,
        check_of(performance.detail_against_summary),
        check_of(unchanged),
        *logged_responses.ACCURACY,
        *official_rules.ACCURACY,
        *official_rules.ACCURACY_SEEDS,
        check_of(loadgen_sources),
        *input_checks.OF_OURS,
        *accuracy.OF_OURS,
        check_of(recorded_facts),
        check_of(recorded_dates),
        check_of(last_heartbeat),
    ),
    "result": RESULT_CHECKS,
}


def _damage(subject: RunEvidence | Result, _: Check, error: Exception) -> Finding | None:
    """Raise the error of a check on a run. A check that cannot compare both runs is not applied."""
    if isinstance(subject, Result) and isinstance(error, HarnessError):
        return None
    raise error


VERIFY = Policy(
    checks=CHECKS,
    claims=CLAIMS,
    on_error={"result": AFTER_ERROR},
    damage=_damage,
    details={"performance": run_details, "accuracy": run_details, "result": result_details},
    contradictions_end=True,
    warnings_flag=False,
)
OFFICIAL = replace(VERIFY, official=True)


def result_cases(paths: Sequence[Path], request: VerdictRequest) -> list[Case]:
    """Return the results in paths, for `verify`.

    Raises:
        InputError: If a path has no logs, or no run is left to verify.
    """
    policy, cases = OFFICIAL if request.official else VERIFY, []
    for result in find_results(list(paths), request.scenario, request.only):
        subject = replace(result, sources=request.scores, requested_round=request.round)
        is_own = all(RunDir(path).manifest.is_file() for path in result.directories)
        cases.append(Case(subject, policy, RESULT, _scored_in_turn, home=result.home, is_own=is_own))
    return cases


def verify_result(
    result: Result, *, official: bool = False, sources: ScoreSources | None = None, in_round: Round | None = None
) -> ResultVerdict:
    """Return the verdict on one result. A damaged file causes a verdict with an error, not an exception.

    Args:
        official: True if the official rules count even if the manifest marks the run as not eligible for submission.
        sources: Dataset and model for rescoring.
        in_round: Round whose seeds, limits and sample counts apply. Default: the round that the seeds name.
    """
    with with_scorer(sources) as (scored_with, _):
        return judge_result(replace(result, sources=scored_with, requested_round=in_round), official=official)


def judge_result(result: Result, *, official: bool = False) -> ResultVerdict:
    """Return the verdict on a result whose sources have a scorer. Its runs keep the files that the rules read."""
    return judge(result, OFFICIAL if official else VERIFY, _scored_in_turn)


def _scored_in_turn(runs: Sequence[Subject], policy: Policy) -> Iterator[RunVerdict]:
    """Begin to score the accuracy run, then check each run."""
    scored = [run for run in runs if isinstance(run, RunEvidence)]
    for run in scored:
        expect_scoring([run], run.sources)
    return in_turn(scored, policy)


def judge_run(run: RunEvidence, *, official: bool = False) -> RunVerdict:
    """Return the verdict on a performance or accuracy run.

    Args:
        official: True if the official rules count even if the manifest marks the run as not eligible for submission.

    Raises:
        InputError: If a file is damaged, or no scores are available. ExecutionError: If LoadGen did not finish.
        SetupError: If accuracy.txt exists and the accuracy log is missing.
    """
    verdict = judge(run, OFFICIAL if official else VERIFY)
    if verdict.error is not None:
        raise verdict.error
    return verdict
