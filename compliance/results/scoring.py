"""The scores of an accuracy run: rescored from its responses if possible, otherwise read from accuracy.txt."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from compliance.accuracy.accuracy_text import read_scores
from compliance.accuracy.accuracy_verdict import targets_that_apply
from compliance.accuracy.metrics import Scores, metric_of
from compliance.accuracy.scores import OnProgress
from compliance.judge.verdict import Finding
from compliance.results.scorer import Scored, Scorer, local_model
from compliance.results.truncate import is_truncated
from qsl.dataset import References
from qsl.embedded.articles import bundled_dataset
from runs.benchmark import Target
from runs.errors import ExecutionError, HarnessError, InputError, names_its_file
from runs.files.reading import read_record
from runs.files.writing import sha256_of
from runs.loadgen.replay import expected_samples
from runs.record.finished_run import ACCURACY, FinishedRun

_MAX_TEXT_BYTES = 1024 * 1024


@dataclass(frozen=True)
class ScoreSources:
    """Dataset, model and scorer to rescore responses. Default: the dataset and the model that the manifest names.

    `scorer` caches scores within a command. Default: a new scorer for this run.
    """

    dataset_path: Path | None = None
    model_path: str | None = None
    progress: OnProgress | None = None
    scorer: Scorer | None = None


@dataclass(frozen=True)
class FoundScores:
    """The scores of a run.

    Attributes:
        path: Source of the scores: the accuracy log or accuracy.txt.
        stated: Scores in accuracy.txt, if it exists.
        findings: Findings on the responses, if they were rescored.
        not_again: Reason why the responses of a whole log were not rescored.
    """

    scores: Scores
    path: Path
    stated: Scores | None
    findings: tuple[Finding, ...] = ()
    not_again: str = ""


@contextmanager
def with_scorer(sources: ScoreSources | None) -> Iterator[tuple[ScoreSources, Scorer]]:
    """Yield score sources that have a scorer, and this scorer. A new scorer is closed at the end of the block."""
    sources = sources or ScoreSources()
    if sources.scorer is not None:
        yield sources, sources.scorer
        return
    with Scorer() as scorer:
        yield replace(sources, scorer=scorer), scorer


def expect_scoring(runs: Iterable[FinishedRun], sources: ScoreSources) -> None:
    """Begin to score the responses of accuracy runs in worker processes."""
    for run in runs:
        if sources.scorer is not None and run.mode == ACCURACY and not is_truncated(run.dir):
            recorded = Path(run.manifest.plan.dataset_path) if run.manifest else None
            sources.scorer.expect(expected_samples(run.detail) or 0, sources.dataset_path or recorded)
            with suppress(HarnessError, OSError):  # the verification reports the error later
                _scoring(run, sources)


@names_its_file
def read_accuracy_text(path: Path) -> str:
    """Return the content of an accuracy.txt.

    Raises:
        InputError: If the file is too large or not text.
    """
    fix = "restore the accuracy.txt that the evaluation wrote, or rescore with --dataset-path and --model-path"
    try:
        return read_record(path, fix, max_bytes=_MAX_TEXT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text (byte {error.start})", fix) from error


def find_scores(run: FinishedRun, sources: ScoreSources, text: str | None, *, is_complete: bool) -> FoundScores:
    """Return the scores of an accuracy run.

    Args:
        text: Content of accuracy.txt.
        whole: True if the log has all responses.

    Raises:
        InputError: If no scores are available. ExecutionError: If expected responses are missing in the log.
    """
    log, path, stated, why = run.dir.accuracy_log, run.dir.accuracy_text, None, ""
    if text is not None:
        stated = read_scores(metric_of(run.benchmark), text, str(path), expected_samples(run.detail))
    if is_complete:
        _ = run.entries  # A damaged log is an error, even if accuracy.txt has scores.
        if sources.dataset_path is not None:
            references_of(run, sources)  # A named dataset must be readable.
        try:
            with with_scorer(sources) as (scorer_sources, _):
                scored = _scoring(run, scorer_sources)(sources.progress)
            return FoundScores(scored.scores, log, stated, scored.findings)
        except HarnessError as error:
            if isinstance(error, ExecutionError) or (
                sources.dataset_path is not None and sources.model_path is not None
            ):
                raise
            why = error.message
    if stated is None:
        raise InputError(
            f"{path} is missing, and the responses cannot be scored",
            "rescore mlperf_log_accuracy.json with --dataset-path FILE --model-path DIR",
            path=path,
            missing=True,
        )
    return FoundScores(stated, path, stated, not_again=why)


def _scoring(run: FinishedRun, sources: ScoreSources) -> Callable[[OnProgress | None], Scored]:
    references, model = references_of(run, sources), model_folder_of(run, sources)
    with with_scorer(sources) as (_, scorer):
        count = expected_samples(run.detail)
        return scorer.scoring(run.benchmark.metric, run.entries, references, model, expected_count=count)


def references_of(run: FinishedRun, sources: ScoreSources) -> References:
    """Return the dataset of a run.

    Raises:
        InputError: If the dataset is unknown, unreadable or not the dataset of the run.
    """
    plan = run.manifest.plan if run.manifest else None
    path = sources.dataset_path or (Path(plan.dataset_path) if plan else None)
    if path is None:
        raise InputError(f"{run.dir.root}: the dataset of the run is unknown", "add --dataset-path FILE")
    if sources.dataset_path is None and not path.is_file():
        path = _bundled(run) or path
    with with_scorer(sources) as (_, scorer):
        references = scorer.references(path)
    if plan is not None and references.sha256 != plan.dataset_sha256:
        raise InputError(
            f"{path} is not the dataset of this run: its SHA-256 is {references.sha256}, "
            f"the manifest has {plan.dataset_sha256}",
            "give the dataset that the run used: --dataset-path FILE",
        )
    return references


def model_folder_of(run: FinishedRun, sources: ScoreSources) -> str:
    """Return the model folder of a run on this machine, or "bytes" for runs whose tokens are bytes.

    Raises:
        InputError: If the model is unknown or unavailable.
    """
    recorded = run.manifest.plan.model_path if run.manifest else None
    name = sources.model_path or recorded
    if name is None:
        raise InputError(f"{run.dir.root}: the model of the run is unknown", "add --model-path DIR")
    return local_model(name, run.manifest.model.revision if run.manifest and name == recorded else None)


def target_of(run: FinishedRun) -> tuple[Mapping[str, Target] | None, str]:
    """Return the targets that apply to a run, and their name; None and the reason if no target applies."""
    model = run.manifest.model if run.manifest else None
    return targets_that_apply(
        run.benchmark,
        expected_samples(run.detail),
        lambda: _bundled(run) is not None,
        lambda: model.sha256.get("model.safetensors") if model else None,
        model.weights if model else None,
    )


def _bundled(run: FinishedRun) -> Path | None:
    """Return the path of the bundled articles on this machine if the run used them, otherwise None."""
    if run.manifest is None:
        return None
    plan = run.manifest.plan
    try:
        path = bundled_dataset(local_model(plan.model_path))
        return path if sha256_of(path) == plan.dataset_sha256 else None
    except (HarnessError, OSError):
        return None
