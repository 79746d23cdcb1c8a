"""Reader of the results file of a quality evaluation that LoadGen does not run, such as RULER.

Two formats are read: the JSON that lm-evaluation-harness 0.4 writes with `--output_path`, and one object
`{"metric", "value", "n", "baseline"}`. All known metrics are scores from 0 to 1 or 0 to 100; higher is better.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from compliance.techniques.declaration import MAX_RESULTS_BYTES
from compliance.techniques.technique_registry import QualityEval
from runs.errors import InputError
from runs.files.reading import first_problem, json_object, read_whole

_FIX = "give --quality-results a JSON file of lm-evaluation-harness, or one with the keys metric, value, n and baseline"
_Score = Annotated[float, Field(ge=0, le=100)]


@dataclass(frozen=True)
class _Suite:
    """Names of an evaluation in lm-evaluation-harness: of its tasks, and of its metrics before the comma."""

    tasks: tuple[str, ...]  # names of the task; the first one in the file counts
    metrics: tuple[str, ...]  # names of the metric, first found counts; empty: mean over all context lengths
    key: str  # name of the metric in the registry


# Source: EleutherAI/lm-evaluation-harness 4e7e0d4, lm_eval/tasks/.
_SUITES = {
    "ruler_v1": _Suite(("ruler",), (), "ruler_avg_score"),
    "longbench_v2": _Suite(("longbench2",), ("acc",), "longbench_avg_f1"),
    "humaneval": _Suite(("humaneval", "humaneval_instruct"), ("pass@1",), "humaneval_pass_at_1"),
    "math_500": _Suite(("minerva_math500", "hendrycks_math500"), ("math_verify", "exact_match"), "math_500_accuracy"),
}
_NOT_MEASURED = -1  # score that RULER states for a context length without samples


class _Plain(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, defer_build=True)

    metric: str
    value: _Score
    n: Annotated[int, Field(ge=1)]
    baseline: _Score | None = None


@dataclass(frozen=True)
class QualityResults:
    """The result of an evaluation, from its file."""

    path: str
    sha256: str
    metric: str
    value: float
    n: int  # number of samples
    baseline: float  # score without the technique
    engine: str | None  # engine and options with which lm-evaluation-harness was started

    @property
    def change(self) -> float:
        """The change from the baseline, in percent."""
        return 100 * (self.value / self.baseline - 1)

    @property
    def text(self) -> str:
        score = f"{self.metric} {self.value:g}, baseline {self.baseline:g} ({self.change:+.2f}%), {self.n:,} samples"
        engine = f", evaluated with {self.engine}" if self.engine else ""
        return f"{score}{engine}, {self.path}, SHA-256 {self.sha256[:16]}…"


def read_results(path: Path, evaluation: QualityEval, declared_baseline: float | None) -> QualityResults:
    """Read the result of an evaluation.

    Args:
        declared_baseline: score without the technique, if the file does not contain it.

    Raises:
        InputError: If the file is unreadable, is of another evaluation or incomplete, or the baseline is missing.
    """
    content = read_whole(path, _FIX, max_bytes=MAX_RESULTS_BYTES)
    content_object = json_object(content, path, _FIX)
    plain = (
        _of_lm_eval(content_object, path, evaluation.quality_eval_id) if "results" in content_object else content_object
    )
    try:
        values = _Plain.model_validate(plain)
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}", _FIX) from error
    if values.metric not in evaluation.metric_keys:
        keys = " or ".join(evaluation.metric_keys)
        raise InputError(
            f"{path}: metric {values.metric[:40]!r}, required for {evaluation.quality_eval_id}: {keys}", _FIX
        )
    baseline = values.baseline if values.baseline is not None else declared_baseline
    if not baseline:
        problem = "the baseline is missing" if baseline is None else "the baseline is 0"
        raise InputError(f"{path}: {problem}", "give the score without the technique with --quality-baseline")
    if (values.value > 1) is not (baseline > 1):
        scales = f"value {values.value:g} and baseline {baseline:g} have different scales"
        raise InputError(f"{path}: {scales}", "give both scores from 0 to 1, or both from 0 to 100")
    digest, engine = hashlib.sha256(content).hexdigest(), _engine_of(_mapping(content_object, "config"))
    return QualityResults(str(path), digest, values.metric, values.value, values.n, float(baseline), engine)


def _of_lm_eval(content_object: Mapping[str, Any], path: Path, evaluation: str) -> dict[str, Any]:
    """Return the result in a file of lm-evaluation-harness, with the keys of the plain format."""
    results, suite = _mapping(content_object, "results"), _SUITES.get(evaluation)
    if suite is None:
        raise InputError(f"{path}: tasks of {evaluation} in lm-evaluation-harness: unknown", _FIX)
    task = next((name for name in suite.tasks if name in results), None)
    if task is None:
        shown = ", ".join(str(name)[:40] for name in list(results)[:5]) or "none"
        raise InputError(f"{path}: tasks: {shown}, required for {evaluation}: {' or '.join(suite.tasks)}", _FIX)
    parts = _mapping(content_object, "group_subtasks").get(task)
    value: Any
    if suite.metrics:
        scores = dict(_scores(results, task))
        value = next((scores[name] for name in suite.metrics if name in scores), None)
    else:  # the entry of the group itself has only one context length
        names = parts if isinstance(parts, list) and parts and all(part in results for part in parts) else [task]
        scored = [_scores(results, name) for name in names]
        measured = [score for scores in scored for name, score in scores if name.isdigit() and score != _NOT_MEASURED]
        value = mean(measured) if measured else None
    if value is None:
        metrics = " or ".join(suite.metrics) or "scores by context length"
        raise InputError(f"{path}: {task} has no numbers for {metrics}", _FIX)
    done, all_samples = _sample_counts(content_object, task)
    if not done or done < all_samples:
        raise InputError(f"{path}: samples of {task}: {done:,} of {all_samples:,}", "evaluate all samples")
    return {"metric": suite.key, "value": value, "n": done}


def _engine_of(config: Mapping[str, Any]) -> str | None:
    options = config.get("model_args")
    if isinstance(options, dict):
        options = ",".join(f"{name}={value}" for name, value in options.items())
    return f"{config['model']} {options or ''}".strip()[:400] if config.get("model") else None


def _mapping(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    return value if isinstance(value, dict) else {}


def _scores(results: Mapping[str, Any], task: str) -> Iterator[tuple[str, float]]:
    """Yield each metric and score of a task. The lowest score of a metric comes last, because it counts."""
    scores = [
        (key.partition(",")[0], value)
        for key, value in _mapping(results, task).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    yield from sorted(scores, key=lambda score: -score[1])


def _sample_counts(content_object: Mapping[str, Any], task: str) -> tuple[int, int]:
    """Return the number of evaluated samples and of all samples of a task or of a group of tasks."""
    counts, groups = _mapping(content_object, "n-samples"), _mapping(content_object, "group_subtasks")
    done = total = 0
    waiting, seen = [task], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        count = _mapping(counts, name)
        effective, original = count.get("effective"), count.get("original")
        if type(effective) is int and type(original) is int:
            done, total = done + effective, total + original
        else:
            parts = groups.get(name)
            waiting += [part for part in parts if isinstance(part, str)] if isinstance(parts, list) else []
    return done, total


def declared_change(summary: str, metric: str) -> tuple[float, float] | None:
    """Return the declared change in percent, and its rounding error; None if the text states no change.

    The change is the first percentage after the name of the metric, or of the text. It needs a sign unless it is 0.
    """
    _, _, after = summary.partition(metric)
    match = re.search(r"([+-]?)(\d{1,4}(?:\.(\d{1,9}))?) ?%", (after or summary).replace("−", "-"))
    if match is None or (not match[1] and float(match[2])):
        return None
    return float(match[1] + match[2]), 0.5 * 10.0 ** -len(match[3] or "")
