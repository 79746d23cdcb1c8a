"""What a step of an engine takes: a linear function of the prompt tokens and the decoding queries in it, fitted."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runs.errors import ExecutionError

STEPS_FOLDER = "BENCH_STEPS_FOLDER"  # environment variable: where engines write down their steps
TIMED_EXECUTOR = "scripts.bench.tools.executors.TimedExecutor"  # the class that writes them
STEP_MODEL = "BENCH_STEP_MODEL"  # environment variable: a model's three numbers
PACED_EXECUTOR = "scripts.bench.tools.executors.PacedExecutor"  # the class whose steps take what it says
FEWEST_STEPS = 20
IDLE_S = 1.0  # a step that seems to take longer was followed by nothing to do


@dataclass(frozen=True)
class StepModel:
    """Seconds of a step: `fixed + per_query × decoding queries + per_token × prompt tokens`."""

    fixed_s: float
    per_query_s: float
    per_token_s: float

    def seconds(self, queries: int, tokens: int) -> float:
        return self.fixed_s + self.per_query_s * queries + self.per_token_s * tokens


@dataclass(frozen=True)
class Step:
    """What is in a step of an engine."""

    computed: dict[str, bool]  # by query in the engine's order: whether it gets a token, all before that being computed
    decoding: int  # queries that get a token of their answer and nothing else
    prompt_tokens: int


class StepReader:
    """Follows an engine's queries through the steps that its scheduler puts together."""

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}  # of each query: prompt and the tokens so far

    def read(self, step: Any) -> Step:
        """The next step, a `SchedulerOutput` of vLLM's."""
        lengths, cached = self._lengths, step.scheduled_cached_reqs
        for name in step.finished_req_ids:
            lengths.pop(name, None)
        before = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for new in step.scheduled_new_reqs:
            before[new.req_id] = new.num_computed_tokens
            lengths.setdefault(new.req_id, new.prompt_len)  # one that was preempted keeps what it had
        computed, decoding, prompt_tokens = {}, 0, 0
        for name, count in step.num_scheduled_tokens.items():
            left = lengths[name] - before[name]
            computed[name] = count >= left
            lengths[name] += computed[name]
            if left > 1:
                prompt_tokens += count
            else:
                decoding += 1
        return Step(computed, decoding, prompt_tokens)


@dataclass(frozen=True)
class Fit:
    """A model and how well it fits."""

    model: StepModel
    steps: int  # that it was fitted to
    explained: float  # share of the variance, R²
    # median_error, p90_error: of a step, as shares of the time that it took
    median_error: float
    p90_error: float
    total_error: float  # of all steps together


def read_steps(folder: Path) -> NDArray[np.float64]:
    """Rows of (seconds, decoding queries, prompt tokens), of all engines that wrote into a folder.

    A step takes until the next one begins; those that were followed by nothing to do are left out.
    """
    rows = [_rows(path) for path in sorted(folder.glob("*.steps"))]
    return np.concatenate(rows) if rows else np.empty((0, 3))


def _rows(path: Path) -> NDArray[np.float64]:
    whole: Iterable[str] = path.read_text().splitlines()
    lines = [line.split() for line in whole if line.count(" ") == 2]
    began = np.array([float(line[0]) for line in lines])
    content = np.array([(float(line[2]), float(line[1])) for line in lines]).reshape(-1, 2)
    seconds = np.diff(began)
    rows = np.column_stack([seconds, content[:-1]]) if len(lines) > 1 else np.empty((0, 3))
    kept: NDArray[np.float64] = rows[(rows[:, 0] < IDLE_S) & (rows[:, 1:].sum(axis=1) > 0)]
    return kept


def fit(rows: NDArray[np.float64]) -> Fit:
    """Least squares of the relative error, so that the many short steps count as the few long ones do.

    Raises:
        ExecutionError: too few steps.
    """
    if len(rows) < FEWEST_STEPS:
        raise ExecutionError(f"{len(rows)} steps are too few to fit a model to; {FEWEST_STEPS} at least")
    seconds = rows[:, 0]
    terms = np.column_stack([np.ones(len(rows)), rows[:, 1:]])
    found, *_ = np.linalg.lstsq(terms / seconds[:, None], np.ones(len(rows)), rcond=None)
    found = np.maximum(found, 0.0)
    expected = terms @ found
    errors = np.abs(expected - seconds) / seconds
    spread = float(((seconds - seconds.mean()) ** 2).sum())
    return Fit(
        StepModel(*map(float, found)),
        len(rows),
        1 - float(((seconds - expected) ** 2).sum()) / spread if spread else 1.0,
        float(np.median(errors)),
        float(np.percentile(errors, 90)),
        float(expected.sum() / seconds.sum() - 1),
    )
