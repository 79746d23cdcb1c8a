"""Values of the first benchmark and of the current round, for many tests."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from compliance.accuracy.metrics import Scores
from runs.benchmark import Benchmark, Target
from runs.benchmarks import BENCHMARKS
from runs.record.layout import RunDir
from runs.rounds import CURRENT_ROUND, ROUNDS, ScoreLimits

DATACENTER, EDGE = BENCHMARKS["llama3_1-8b"], BENCHMARKS["llama3_1-8b-edge"]
INTERACTIVE = BENCHMARKS["llama3_1-8b-interactive"]
SAMPLING = DATACENTER.sampling["performance"]
SEEDS = CURRENT_ROUND.seeds


def changed_benchmark(benchmark: Benchmark, samples: int | None = None, **changes: Any) -> Benchmark:
    """Return a benchmark with other numbers, also in the requirements of the round.

    Args:
        samples: Number of samples of the dataset.
    """
    required: dict[str, Any] = {}
    if samples is not None:
        required |= dict.fromkeys(("performance_samples", "data_set", "offline_min_samples"), samples)
        required["accuracy_samples"] = {"any": samples}
    if targets := changes.get("targets"):
        judged = benchmark.entry.targets_of(benchmark.scenarios[0])
        limits = {name.upper(): ScoreLimits(low=target.low, high=target.high) for name, target in targets.items()}
        required["targets"] = {"any": {name: limit for name, limit in limits.items() if name in judged}}
    return replace(benchmark, entry=benchmark.entry.model_copy(update=required), **changes)


def change_benchmarks(monkeypatch: pytest.MonkeyPatch, samples: int | None = None, **changes: Any) -> None:
    """Give each registered benchmark, and each round, other numbers, for runs that take seconds."""
    tables = [value.table for value in ROUNDS.values()]
    for key, benchmark in BENCHMARKS.items():
        monkeypatch.setitem(BENCHMARKS, key, changed_benchmark(benchmark, samples, **changes))
        for entries in (table.benchmarks for table in tables if benchmark.submission_name in table.benchmarks):
            entry = changed_benchmark(
                replace(benchmark, entry=entries[benchmark.submission_name]), samples, **changes
            ).entry
            monkeypatch.setitem(entries, benchmark.submission_name, entry)
    for table in tables if "min_duration_ms" in changes else ():
        monkeypatch.setitem(vars(table), "min_duration_ms", changes["min_duration_ms"])


def shorten_benchmarks(monkeypatch: pytest.MonkeyPatch, samples: int, min_duration_ms: int) -> None:
    """Let short runs on a small dataset be complete."""
    change_benchmarks(monkeypatch, samples, min_duration_ms=min_duration_ms, data_sha256=None)


def rouge(rouge1: float, rouge2: float, rougeL: float, rougeLsum: float, gen_len: float, gen_num: float) -> Scores:
    """Return scores of the metric of the first benchmark."""
    return {
        "rouge1": rouge1, "rouge2": rouge2, "rougeL": rougeL, "rougeLsum": rougeLsum, "gen_len": gen_len,
        "gen_num": gen_num,
    }  # fmt: skip


def targets_at(scores: Mapping[str, float]) -> Mapping[str, Target]:
    """Return the targets of the first benchmark with other reference scores."""
    targets = DATACENTER.targets_for(scores)
    assert targets is not None
    return targets


def targets_with_share(run: RunDir, share: float) -> Mapping[str, Target]:
    """Return reference scores of which a run reaches this share."""
    scores = orjson.loads(run.accuracy_json.read_bytes())["scores"]
    rouge = {name: scores[name] / share for name in ("rouge1", "rouge2", "rougeL", "rougeLsum")}
    return targets_at({**scores, **rouge})
