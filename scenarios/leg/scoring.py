"""Scoring an accuracy leg: LoadGen's accuracy log against the data set's targets."""

from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from compliance.accuracy.metrics import metric_of
from compliance.accuracy.report import AccuracyVerdict, judge, targets_that_apply, write_reports
from compliance.accuracy.scores import score_accuracy_log
from qsl.tokenizers import load_tokenizer
from runs.benchmark import Target
from runs.files import sha256_of
from runs.loadgen.accuracy_log import read_accuracy_log
from runs.reading import MAX_WEIGHTS_BYTES
from scenarios.leg.plan import PreparedLeg


def score_leg(leg: PreparedLeg, console: Console) -> AccuracyVerdict:
    """Score, judge against the target that applies (if any), and write accuracy.json and accuracy.txt."""
    entries = read_accuracy_log(leg.run_dir.accuracy_log, leg.benchmark.accuracy_log_bytes)
    tokenizer = load_tokenizer(leg.plan.model_path)
    metric = metric_of(leg.benchmark)
    targets, label = target_for(leg)
    columns = (TextColumn("scoring"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("scoring", total=len(entries))
        scores = score_accuracy_log(
            metric,
            entries,
            leg.dataset.targets,
            tokenizer.batch_decode,
            expected_count=leg.plan.sample_count,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    verdict = judge(metric, scores, targets, label)
    write_reports(leg.run_dir, verdict)
    return verdict


def target_for(leg: PreparedLeg) -> tuple[Mapping[str, Target] | None, str]:
    """Which reference scores apply to a leg's model and data set, and their name."""
    return targets_that_apply(
        leg.benchmark, leg.plan.sample_count, lambda: leg.bundled, lambda: _weights_sha256(leg), leg.weights
    )


def _weights_sha256(leg: PreparedLeg) -> str | None:
    weights = leg.model.folder / "model.safetensors" if leg.model else None
    return sha256_of(weights, max_bytes=MAX_WEIGHTS_BYTES) if weights is not None and weights.is_file() else None
