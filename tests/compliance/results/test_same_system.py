"""Questions whether runs are of one system: the facts that count, and the runs that are compared."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from compliance.results.same_system import (
    AUDIT,
    BUNDLE,
    CLOSED_TREE,
    DATA_OF_MODES,
    HARNESS,
    MAX_DAYS_APART,
    MODES,
    REPEATS,
    Question,
    too_far_apart,
    unlike,
)
from compliance.signoff.provenance import one_system
from runs.record.fingerprint import Facts
from runs.record.layout import RunDir


@dataclass
class RunWithFacts:
    facts: Facts
    benchmark: "str | RunWithFacts" = "llama"
    mode: str = "performance"
    submission_name: str = "llama"
    dir: RunDir = field(default_factory=lambda: RunDir(Path("leg")))


# Question, a fact that counts, and a fact that does not.
FACTS: dict[str, tuple[Question, str, str]] = {
    "repeats": (REPEATS, "host.cpu", "harness.git_commit"),
    "modes": (MODES, "engine_options.dtype", "loadgen.min_duration_ms"),
    "data of modes": (DATA_OF_MODES, "dataset_sha256", "engine_options.dtype"),
    "audit": (AUDIT, "engine_options.dtype", "loadgen.min_query_count"),
    "harness": (HARNESS, "harness.git_commit", "harness.git_changed"),
    "bundle": (BUNDLE[0], "software.vllm", "sampling.top_k"),
    "benchmark of a bundle": (BUNDLE[1], "model.revision", "software.vllm"),
    "mode of a bundle": (BUNDLE[2], "sampling.top_k", "model.revision"),
    "tree": (CLOSED_TREE[0], "software.vllm", "weights.shape"),
    "benchmark": (CLOSED_TREE[1], "weights.shape", "model.sha256.a"),
    "precision": (CLOSED_TREE[2], "model.sha256.a", "software.vllm"),
}


@pytest.mark.parametrize("case", FACTS)
def test_only_the_facts_of_a_question_make_two_systems(case: str) -> None:
    question, counted, ignored = FACTS[case]
    runs = [
        RunWithFacts(facts, RunWithFacts({})) if question in BUNDLE else RunWithFacts(facts)
        for facts in ({counted: 1, ignored: 1}, {counted: 1, ignored: 2}, {counted: 2, ignored: 1})
    ]
    ((unanswered, first, second, unequal),) = unlike(runs, question)
    assert (unanswered, first, second, unequal) == (question, runs[0], runs[2], {counted: (1, 2)})


def test_only_runs_of_one_kind_are_compared() -> None:
    runs = [RunWithFacts({"sampling.top_k": 1, "dataset_sha256": "a"}, RunWithFacts({}, submission_name=name), mode)
            for name, mode in (("llama", "performance"), ("llama", "accuracy"), ("gpt", "performance"))]  # fmt: skip
    runs[1].facts = {"sampling.top_k": 2, "dataset_sha256": "b"}
    runs[2].facts = {"sampling.top_k": 3, "dataset_sha256": "c"}
    assert [value for *_, value in unlike(runs, *BUNDLE)] == [{"dataset_sha256": ("a", "b")}]


def test_different_free_memory_alone_is_a_warning() -> None:
    runs = [
        RunWithFacts({"resolved.kv_cache_tokens": tokens, "host.cpu": cpu}) for tokens, cpu in ((9, 1), (5, 1), (5, 2))
    ]
    assert [run.severity for run in one_system(cast("Any", runs), REPEATS)] == ["warning", "error"]


def test_the_days_between_the_first_and_the_last_run_are_counted() -> None:
    day_ns = 86_400 * 10**9
    assert too_far_apart([]) is None
    assert too_far_apart([((MAX_DAYS_APART + 1) * day_ns - 1, "late"), (0, "early")]) is None
    span = too_far_apart([(day_ns, "middle"), (200 * day_ns, "late"), (0, "early")])
    assert span == (200, "early", "late")
