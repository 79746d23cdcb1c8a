"""The scores of an accuracy run: its responses are scored again where they are at hand; else accuracy.txt counts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from compliance.accuracy.accuracy_text import read_scores
from compliance.accuracy.accuracy_verdict import targets_that_apply
from compliance.accuracy.metrics import Scores, metric_of
from compliance.accuracy.scores import Progress
from compliance.evidence.scorer import Scored, Scorer, local_model
from compliance.evidence.truncate import is_truncated
from compliance.judge.finding import Finding
from qsl.dataset import References
from qsl.embedded.articles import bundled_dataset
from runs.benchmark import Target
from runs.errors import ExecutionError, HarnessError, InputError, names_its_file
from runs.files import sha256_of
from runs.loadgen.replay import expected_samples
from runs.reading import read_record
from runs.record.finished_run import ACCURACY, FinishedRun

_MAX_TEXT_BYTES = 1024 * 1024


@dataclass(frozen=True)
class ScoreSources:
    """What the responses are scored with. None: what the run's manifest names, if it is still there.

    `scorer` keeps what was scored before in the same command; None: one for this run alone.
    """

    dataset_path: Path | None = None
    model_path: str | None = None
    progress: Progress | None = None
    scorer: Scorer | None = None


@dataclass(frozen=True)
class FoundScores:
    """The scores of a run.

    Attributes:
        path: the file that they come from: the accuracy log, or accuracy.txt.
        stated: those of accuracy.txt, if there is one.
        findings: on the responses themselves, where they were scored again.
        not_again: why they were not, though the whole log is there.
    """

    scores: Scores
    path: Path
    stated: Scores | None
    findings: tuple[Finding, ...] = ()
    not_again: str = ""


@contextmanager
def with_scorer(sources: ScoreSources | None) -> Iterator[tuple[ScoreSources, Scorer]]:
    """Sources with a scorer, and that scorer: their own, or a new one that ends with the block."""
    sources = sources or ScoreSources()
    if sources.scorer is not None:
        yield sources, sources.scorer
        return
    with Scorer() as scorer:
        yield replace(sources, scorer=scorer), scorer


def expect_scoring(runs: Iterable[FinishedRun], sources: ScoreSources) -> None:
    """Have the responses of accuracy runs scored from now on, in other processes, while the caller does other work."""
    for run in runs:
        if sources.scorer is not None and run.mode == ACCURACY and not is_truncated(run.dir):
            recorded = Path(run.manifest.plan.dataset_path) if run.manifest else None
            sources.scorer.expect(expected_samples(run.detail) or 0, sources.dataset_path or recorded)
            with suppress(HarnessError, OSError):  # reported when the run is verified
                _scoring(run, sources)


@names_its_file
def read_text(path: Path) -> str:
    """The content of an accuracy.txt.

    Raises:
        InputError: it is too large, or no text.
    """
    fix = "give the accuracy.txt that the evaluation wrote, or --dataset-path and --model-path to score again"
    try:
        return read_record(path, fix, max_bytes=_MAX_TEXT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text (byte {error.start})", fix) from error


def find_scores(run: FinishedRun, sources: ScoreSources, text: str | None, *, whole: bool) -> FoundScores:
    """The scores of an accuracy run.

    Args:
        text: the content of accuracy.txt.
        whole: the log has all responses.

    Raises:
        InputError: there are none. ExecutionError: the log does not hold what it should.
    """
    log, path, stated, why = run.dir.accuracy_log, run.dir.accuracy_text, None, ""
    if text is not None:
        stated = read_scores(metric_of(run.benchmark), text, str(path), expected_samples(run.detail))
    if whole:
        try:
            with with_scorer(sources) as (given, _):
                scored = _scoring(run, given)(sources.progress)
            return FoundScores(scored.scores, log, stated, scored.findings)
        except HarnessError as error:
            if isinstance(error, ExecutionError) or (
                sources.dataset_path is not None and sources.model_path is not None
            ):
                raise
            why = error.message
    if stated is None:
        raise InputError(
            f"{run.dir.root} has no accuracy.txt, and the responses cannot be scored",
            "give --dataset-path and --model-path to score mlperf_log_accuracy.json",
            path=path,
            missing=True,
        )
    return FoundScores(stated, path, stated, not_again=why)


def _scoring(run: FinishedRun, sources: ScoreSources) -> Callable[[Progress | None], Scored]:
    references, model = references_of(run, sources), model_of(run, sources)
    with with_scorer(sources) as (_, scorer):
        count = expected_samples(run.detail)
        return scorer.scoring(run.benchmark.metric, run.entries, references, model, expected_count=count)


def references_of(run: FinishedRun, sources: ScoreSources) -> References:
    """The dataset that a run was run on.

    Raises:
        InputError: nothing names it, it cannot be read, or it is another one.
    """
    plan = run.manifest.plan if run.manifest else None
    path = sources.dataset_path or (Path(plan.dataset_path) if plan else None)
    if path is None:
        raise InputError(f"{run.dir.root}: nothing names the dataset", "name it with --dataset-path")
    if sources.dataset_path is None and not path.is_file():
        path = _bundled(run) or path
    with with_scorer(sources) as (_, scorer):
        found = scorer.references(path)
    if plan is not None and found.sha256 != plan.dataset_sha256:
        raise InputError(
            f"{path} has SHA-256 {found.sha256}, the run used one with {plan.dataset_sha256}",
            "give the dataset that the run used",
        )
    return found


def model_of(run: FinishedRun, sources: ScoreSources) -> str:
    """Where the files of a run's model lie on this machine, or "bytes".

    Raises:
        InputError: nothing names it, or they are not at hand.
    """
    recorded = run.manifest.plan.model_path if run.manifest else None
    name = sources.model_path or recorded
    if name is None:
        raise InputError(f"{run.dir.root}: nothing names the model", "name it with --model-path")
    return local_model(name, run.manifest.model.revision if run.manifest and name == recorded else None)


def target_of(run: FinishedRun) -> tuple[Mapping[str, Target] | None, str]:
    """Which targets apply, and their name; None where there are none."""
    model = run.manifest.model if run.manifest else None
    return targets_that_apply(
        run.benchmark,
        expected_samples(run.detail),
        lambda: _bundled(run) is not None,
        lambda: model.sha256.get("model.safetensors") if model else None,
        model.weights if model else None,
    )


def _bundled(run: FinishedRun) -> Path | None:
    """The bundled articles, wherever they lie now, where the run used them."""
    if run.manifest is None:
        return None
    plan = run.manifest.plan
    try:
        path = bundled_dataset(local_model(plan.model_path))
        return path if sha256_of(path) == plan.dataset_sha256 else None
    except (HarnessError, OSError):
        return None
