"""Rules on the scores of an accuracy run and their origin."""

from collections.abc import Iterator
from dataclasses import replace

from compliance.judge.rule import OURS, Check, check_of, decides
from compliance.judge.verdict import Finding, compared, stated
from compliance.results import performance
from compliance.results.plausibility import scores_within_reach
from compliance.results.run_evidence import RunEvidence, ids_unknown
from runs.errors import ExecutionError, SetupError
from runs.record.finished_run import FinishedRun


def require_responses(run: FinishedRun) -> None:
    """Refuse an accuracy run without a log of its responses.

    Raises:
        ExecutionError: If LoadGen did not finish. SetupError: If accuracy.txt exists and the accuracy log is missing.
    """
    detail, run_dir = run.detail, run.dir
    if not detail.finished:
        raise ExecutionError(f"LoadGen did not finish: {detail.path} is incomplete", "rerun", path=run_dir.detail)
    if run_dir.accuracy_log.is_file():
        return
    if run_dir.accuracy_text.is_file():
        raise SetupError(
            f"{run_dir.accuracy_log} is missing; {run_dir.accuracy_text.name} does not contain the responses",
            f"copy the {run_dir.accuracy_log.name} that LoadGen wrote into this directory",
            path=run_dir.accuracy_log,
            missing=True,
        )
    missing = f"{run_dir.accuracy_log} is missing: LoadGen did not finish, or the copy is incomplete"
    raise ExecutionError(missing, path=run_dir.accuracy_log, missing=True)


@decides(
    "contradiction",
    ("accuracy-text-differs", "error", OURS, "scores in accuracy.txt, compared with the rescored responses",
     "restore the accuracy.txt of this run, or rerun"),
    needs=("log", "responses", "text"),
)  # fmt: skip
def stated_scores(run: RunEvidence) -> Iterator[Finding]:
    """Compare the scores in accuracy.txt with the rescored responses."""
    scores = run.scores
    if scores.path != run.dir.accuracy_log:
        return
    differ = [(name, value, scores.scores.get(name)) for name, value in (scores.stated or {}).items()]
    wrong = [
        f"{name} {stated_value}, rescored {again}" for name, stated_value, again in differ if stated_value != again
    ]
    if wrong:
        sentence = f"{run.dir.accuracy_text.name} does not match the logged responses: {', '.join(wrong)}"
        yield stated("accuracy-text-differs", sentence, run.dir.accuracy_text, run.dir.accuracy_log)


@decides(
    "result",
    ("accuracy-scored-again", "error", OURS, "origin of the scores",
     "give the dataset and the model: --dataset-path FILE --model-path DIR"),
    needs=("log", "responses"),
    also=("plausible-shared-answers", "plausible-reference-texts"),
)  # fmt: skip
def scored_again(run: RunEvidence) -> Iterator[Finding]:
    """Check that the responses were rescored, and yield the findings on the content of the responses."""
    if run.scores.not_again:
        source = f"accuracy.txt; the responses were not rescored ({run.scores.not_again})"
        required = "rescored with the dataset and tokenizer of the run"
        yield compared("accuracy-scored-again", False, source, required, run.dir.accuracy_log)
    yield from (finding for finding in run.scores.findings if finding.rule != "plausible-padding")


@decides("result", needs=("log", "responses"), applies=ids_unknown, also=("plausible-padding",))
def padding(run: RunEvidence) -> Iterator[Finding]:
    """Yield the finding on padded outputs."""
    yield from (finding for finding in run.scores.findings if finding.rule == "plausible-padding")


@decides(
    "official",
    ("accuracy-no-target", "error", OURS, "reference scores for this dataset and model",
     "run the whole dataset with the benchmark's model"),
    needs=("log",),
    also=("accuracy-target", "accuracy-count", "plausible-scores"),
)  # fmt: skip
def scores(run: RunEvidence) -> Iterator[Finding]:
    """Compare the scores with their targets and with the highest plausible scores."""
    verdict = run.accuracy
    if verdict.targets is None:
        required = "reference scores of the benchmark"
        yield compared(
            "accuracy-no-target", False, verdict.label, required, run.dir.accuracy_text, text="target scores"
        )
        return
    yield scores_within_reach(verdict.metric, verdict.scores, verdict.targets)
    for finding in verdict.findings:
        rule = f"accuracy-target {str(finding.numbers['metric']).upper()}"
        yield replace(finding, required=finding.required + run.claim.limit_in_rules(rule))


# performance.py explains the lists CLAIM, OF_ANY and OF_OURS.
CLAIM = (check_of(performance.mode, rules=("accuracy-mode",)),)
RESPONSES = Check(require_responses, (), applies=lambda run: "the run has another mode" if run.is_performance else "")
ERRORS = check_of(performance.errors, rules=("accuracy-errors",))
OF_ANY = (ERRORS, check_of(performance.audit_settings, rules=("accuracy-audit-settings",)))
OF_OURS = tuple(map(check_of, (stated_scores, scored_again, padding, scores)))
