"""The rules on an accuracy run, besides those of tables: its scores, and where they come from."""

from collections.abc import Iterator

from compliance.evidence import performance
from compliance.evidence.plausibility import scores_within_reach
from compliance.evidence.run_evidence import RunEvidence
from compliance.judge.check import check, decides
from compliance.judge.finding import Finding, compared, fail
from compliance.judge.rule import OURS
from runs.errors import ExecutionError, SetupError
from runs.record.finished_run import FinishedRun


def require_responses(run: FinishedRun) -> None:
    """An accuracy run without the log of its responses cannot be judged.

    Raises:
        ExecutionError: LoadGen did not finish. SetupError: there are scores, and no log of the responses.
    """
    detail, run_dir = run.detail, run.dir
    if not detail.finished:
        raise ExecutionError(f"LoadGen did not finish: {detail.path} breaks off", "rerun", path=run_dir.detail)
    if run_dir.accuracy_log.is_file():
        return
    if run_dir.accuracy_text.is_file():
        raise SetupError(
            f"{run_dir.accuracy_log} is missing: {run_dir.accuracy_text.name} alone does not tell what was answered",
            "put LoadGen's own log there",
            path=run_dir.accuracy_log,
            missing=True,
        )
    missing = f"{run_dir.accuracy_log} is missing: LoadGen did not finish, or the copy is incomplete"
    raise ExecutionError(missing, path=run_dir.accuracy_log, missing=True)


@decides(
    "contradiction",
    ("accuracy-text-differs", "error", OURS, "accuracy.txt has the scores of these responses",
    "score the responses again"),
    needs=("log", "responses", "text"),
)  # fmt: skip
def stated_scores(run: RunEvidence) -> Iterator[Finding]:
    """Are the scores of accuracy.txt those of the responses?"""
    found = run.scores
    if found.path != run.dir.accuracy_log:
        return
    differ = [(name, value, found.scores.get(name)) for name, value in (found.stated or {}).items()]
    wrong = [f"{name} {there} there, {again} scored again" for name, there, again in differ if there != again]
    if wrong:
        said = f"{run.dir.accuracy_text.name} does not belong to these responses: {', '.join(wrong)}"
        yield fail("accuracy-text-differs", said, run.dir.accuracy_text, run.dir.accuracy_log)


@decides(
    "result",
    ("accuracy-scored-again", "error", OURS, "the responses were scored again, with the dataset of the run",
     "name the dataset and the model: --dataset-path, --model-path"),
    needs=("log", "responses"),
    also=("plausible-shared-answers", "plausible-padding", "plausible-reference-texts"),
)  # fmt: skip
def scored_again(run: RunEvidence) -> Iterator[Finding]:
    """Were the responses scored again? And the rules on the responses themselves, applied while they were."""
    if run.scores.not_again:
        found = f"nobody scored the responses, the scores are those of accuracy.txt: {run.scores.not_again}"
        required = "scores of these responses with the run's dataset and tokenizer"
        yield compared("accuracy-scored-again", "scored again", False, found, required, run.dir.accuracy_log)
    yield from run.scores.findings


@decides(
    "result",
    ("accuracy-no-target", "error", OURS, "there are reference scores to compare with",
     "run the whole dataset with the benchmark's model"),
    needs=("log",),
    also=("accuracy-target", "accuracy-count", "plausible-scores"),
)  # fmt: skip
def scores(run: RunEvidence) -> Iterator[Finding]:
    """Are the scores within their targets, and within the model's reach?"""
    verdict = run.accuracy
    if verdict.targets is None:
        required = "reference scores to compare with"
        yield compared("accuracy-no-target", "target", False, verdict.label, required, run.dir.accuracy_text)
        return
    yield scores_within_reach(verdict.metric, verdict.scores, verdict.targets)
    yield from verdict.findings


# As in performance.py.
CLAIM = (check(performance.mode, rules=("accuracy-mode",)),)
ERRORS = check(performance.errors, rules=("accuracy-errors",))
OF_ANY = (ERRORS, check(performance.audit_settings, rules=("accuracy-audit-settings",)))
OF_OURS = tuple(map(check, (stated_scores, scored_again, scores)))
