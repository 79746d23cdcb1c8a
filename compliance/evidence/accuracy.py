"""The accuracy part of a result: its answers are scored again where they are at hand; else accuracy.txt counts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from compliance.accuracy.accuracy_text import misread_scores, read_scores
from compliance.accuracy.accuracy_verdict import judge, score_line, targets_that_apply
from compliance.accuracy.metrics import Scores, metric_of
from compliance.accuracy.scores import Progress
from compliance.evidence.input_checks import add_model_on_record, official_inputs
from compliance.evidence.log_arithmetic import detail_contradictions
from compliance.evidence.logged_answers import as_issued, whole_log
from compliance.evidence.official_rules import official_rules
from compliance.evidence.plausibility import scores_within_reach
from compliance.evidence.scorer import Scored, Scorer, local_model
from compliance.evidence.truncate import is_truncated
from compliance.evidence.whole_record import record_findings
from compliance.finding import OURS, RERUN, LegVerdict, applied, decides, fail
from qsl.dataset import References
from qsl.embedded.articles import bundled_dataset
from runs.benchmark import Target
from runs.errors import ExecutionError, HarnessError, InputError, SetupError, names_its_file
from runs.files import sha256_of
from runs.loadgen.accuracy_log import AccuracyEntry
from runs.loadgen.replay import expected_samples
from runs.loadgen.summary_log import cross_check
from runs.numbers.invalid import errors_found
from runs.reading import read_record
from runs.record.leg import ACCURACY, FinishedLeg
from runs.rounds import Round

_MAX_TEXT_BYTES = 1024 * 1024


@dataclass(frozen=True)
class ScoreSources:
    """What the answers are scored with. None: what the leg's manifest names, if it is still there.

    `scorer` keeps what was scored before in the same command; None: one for this leg alone.
    """

    dataset_path: Path | None = None
    model_path: str | None = None
    progress: Progress | None = None
    scorer: Scorer | None = None


@contextmanager
def with_scorer(sources: ScoreSources | None) -> Iterator[tuple[ScoreSources, Scorer]]:
    """Sources with a scorer, and that scorer: their own, or a new one that ends with the block."""
    sources = sources or ScoreSources()
    if sources.scorer is not None:
        yield sources, sources.scorer
        return
    with Scorer() as scorer:
        yield replace(sources, scorer=scorer), scorer


def expect_scoring(legs: Iterable[FinishedLeg], sources: ScoreSources) -> None:
    """Have the answers of accuracy legs scored from now on, in other processes, while the caller does other work."""
    for leg in legs:
        if sources.scorer is not None and leg.mode == ACCURACY and not is_truncated(leg.run):
            recorded = Path(leg.manifest.plan.dataset_path) if leg.manifest else None
            sources.scorer.expect(expected_samples(leg.detail) or 0, sources.dataset_path or recorded)
            with suppress(HarnessError, OSError):  # reported when the leg is verified
                _scoring(leg, sources)


@decides(
    "result",
    ("accuracy-errors", "error", "[checker] accuracy_check.loadgen_errors_check", "no error records", RERUN),
)  # fmt: skip
def verify_accuracy(leg: FinishedLeg, sources: ScoreSources, in_round: Round | None = None) -> LegVerdict:
    """Judge an accuracy leg, as one of a round if one is named.

    Raises:
        InputError: a file is damaged, or there is nothing to take scores from.
        ExecutionError: LoadGen did not finish. SetupError: there are scores, and no log of the answers.
    """
    detail, run = leg.detail, leg.run
    if not detail.finished:
        raise ExecutionError(f"LoadGen did not finish: {detail.path} breaks off", "run the leg again", path=run.detail)
    if not run.accuracy_log.is_file():
        if run.accuracy_text.is_file():
            raise SetupError(
                f"{run.accuracy_log} is missing: {run.accuracy_text.name} alone does not tell what was answered",
                "put LoadGen's own log there",
                path=run.accuracy_log,
                missing=True,
            )
        missing = f"{run.accuracy_log} is missing: LoadGen did not finish, or the copy is incomplete"
        raise ExecutionError(missing, path=run.accuracy_log, missing=True)
    text = _read_text(run.accuracy_text) if run.accuracy_text.exists() else None
    truncated = is_truncated(run)
    entries = None if truncated else leg.entries
    targets = ", ".join(leg.benchmark.targets)
    rule = f"every sample was answered once, without error records, and {targets} are within their targets"
    part = LegVerdict.begin(leg, rule)
    for sentence in cross_check(leg.summary, detail):
        part.findings.append(fail("log-summary", sentence, run.summary, run.detail))
    part.findings += detail_contradictions(detail, None)
    part.findings += record_findings(leg)
    part.findings += as_issued(leg, entries)
    said = errors_found(detail) if detail.error_count else "none"
    part.findings.append(applied("accuracy-errors", "errors", not detail.error_count, said, "none", run.detail))
    part.findings += official_inputs(leg)
    add_model_on_record(part, leg)
    part.findings += official_rules(leg, None, in_round)
    if entries is not None:
        part.findings += whole_log(leg, entries, text)
    scores = _scores(leg, part, entries, text, sources)
    if scores is not None:
        _judge(leg, part, scores)
    if leg.manifest is None:
        part.notes.append("no manifest.json: nothing tells which model, data set and engine options were used")
    return part


@names_its_file
def _read_text(path: Path) -> str:
    fix = "give the accuracy.txt that the evaluation wrote, or --dataset-path and --model-path to score again"
    try:
        return read_record(path, fix, max_bytes=_MAX_TEXT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text (byte {error.start})", fix) from error


@decides(
    "contradiction",
    ("accuracy-text-differs", "error", OURS, "accuracy.txt has the scores of these answers", "score the answers again"),
)  # fmt: skip
def _scores(
    leg: FinishedLeg, part: LegVerdict, entries: list[AccuracyEntry] | None, text: str | None, sources: ScoreSources
) -> Scores | None:
    """The leg's scores, and in `part` where they come from."""
    log, path = leg.run.accuracy_log, leg.run.accuracy_text
    beside, metric = None, metric_of(leg.benchmark)
    if text is not None:
        part.notes += misread_scores(metric, text)
        beside = read_scores(metric, text, str(path), expected_samples(leg.detail))
    if entries is None:
        part.notes.append(
            f"{log.name} is truncated for submission: the answers cannot be scored again, "
            "the scores are those of accuracy.txt"
        )
        if sources.dataset_path or sources.model_path:
            part.notes.append("--dataset-path and --model-path are not used for it")
    elif (scored := _score_again(leg, part, sources)) is not None:
        part.details["scores_from"] = log.name
        differ = [(name, value, scored.get(name)) for name, value in (beside or {}).items()]
        wrong = [f"{name} {there} there, {again} scored again" for name, there, again in differ if there != again]
        if wrong:
            said = f"{path.name} does not belong to these answers: {', '.join(wrong)}"
            part.findings.append(fail("accuracy-text-differs", said, path, log))
        return scored
    if beside is None:
        raise InputError(
            f"{leg.run.root} has no accuracy.txt, and the answers cannot be scored",
            "give --dataset-path and --model-path to score mlperf_log_accuracy.json",
            path=path,
            missing=True,
        )
    part.details["scores_from"] = path.name
    return beside


@decides(
    "result",
    ("accuracy-scored-again", "error", OURS, "the answers were scored again, with the data set of the leg",
     "name the data set and the model: --dataset-path, --model-path"),
)  # fmt: skip
def _score_again(leg: FinishedLeg, part: LegVerdict, sources: ScoreSources) -> Scores | None:
    try:
        with with_scorer(sources) as (given, _):
            scored = _scoring(leg, given)(sources.progress)
    except HarnessError as error:
        if isinstance(error, ExecutionError) or (sources.dataset_path is not None and sources.model_path is not None):
            raise
        found = f"nobody scored the answers, the scores are those of accuracy.txt: {error.message}"
        required = "scores of these answers with the leg's data set and tokenizer"
        rule, where = "accuracy-scored-again", leg.run.accuracy_log
        part.findings.append(applied(rule, "scored again", False, found, required, where))
        return None
    part.findings += scored.findings
    return scored.scores


def _scoring(leg: FinishedLeg, sources: ScoreSources) -> Callable[[Progress | None], Scored]:
    references, model = references_of(leg, sources), model_of(leg, sources)
    with with_scorer(sources) as (_, scorer):
        count = expected_samples(leg.detail)
        return scorer.scoring(leg.benchmark.metric, leg.entries, references, model, expected_count=count)


def references_of(leg: FinishedLeg, sources: ScoreSources) -> References:
    """The data set that a leg was run on.

    Raises:
        InputError: nothing names it, it cannot be read, or it is another one.
    """
    plan = leg.manifest.plan if leg.manifest else None
    path = sources.dataset_path or (Path(plan.dataset_path) if plan else None)
    if path is None:
        raise InputError(f"{leg.run.root}: nothing names the data set", "name it with --dataset-path")
    if sources.dataset_path is None and not path.is_file():
        path = _bundled(leg) or path
    with with_scorer(sources) as (_, scorer):
        found = scorer.references(path)
    if plan is not None and found.sha256 != plan.dataset_sha256:
        raise InputError(
            f"{path} has SHA-256 {found.sha256}, the leg used one with {plan.dataset_sha256}",
            "give the data set that the leg used",
        )
    return found


def model_of(leg: FinishedLeg, sources: ScoreSources) -> str:
    """Where the files of a leg's model lie on this machine, or "bytes".

    Raises:
        InputError: nothing names it, or they are not at hand.
    """
    recorded = leg.manifest.plan.model_path if leg.manifest else None
    name = sources.model_path or recorded
    if name is None:
        raise InputError(f"{leg.run.root}: nothing names the model", "name it with --model-path")
    return local_model(name, leg.manifest.model.revision if leg.manifest and name == recorded else None)


@decides(
    "result",
    ("accuracy-no-target", "error", OURS, "there are reference scores to compare with",
     "run the whole data set with the benchmark's model"),
)  # fmt: skip
def _judge(leg: FinishedLeg, part: LegVerdict, scores: Scores) -> None:
    metric = metric_of(leg.benchmark)
    targets, label = target_of(leg)
    verdict = judge(metric, scores, targets, label)
    part.details |= {"label": label, "metric": metric.name, "scores": scores, "target": verdict.references}
    if targets is None:
        required = "reference scores to compare with"
        part.findings.append(applied("accuracy-no-target", "target", False, label, required, leg.run.accuracy_text))
        part.lines += [f"{name:<18}{value:g}" for name, value in scores.items()]
        return
    part.lines.append(f"reference: {label}")
    references = (verdict.references or {}).values()
    for check, reference in zip(verdict.findings, references, strict=True):
        part.lines.append(f"{score_line(check)}  (reference {reference:.10g})")
    part.findings.append(scores_within_reach(metric, scores, targets))
    part.findings += verdict.findings


def target_of(leg: FinishedLeg) -> tuple[Mapping[str, Target] | None, str]:
    """Which targets apply, and their name; None where there are none."""
    model = leg.manifest.model if leg.manifest else None
    return targets_that_apply(
        leg.benchmark,
        expected_samples(leg.detail),
        lambda: _bundled(leg) is not None,
        lambda: model.sha256.get("model.safetensors") if model else None,
        model.weights if model else None,
    )


def _bundled(leg: FinishedLeg) -> Path | None:
    """The bundled articles, wherever they lie now, where the leg was run on them."""
    if leg.manifest is None:
        return None
    plan = leg.manifest.plan
    try:
        path = bundled_dataset(local_model(plan.model_path))
        return path if sha256_of(path) == plan.dataset_sha256 else None
    except (HarnessError, OSError):
        return None
