"""output_consistency and output_length: a performance run, compared with an accuracy run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from compliance.audits.base import AuditResult, RunSpec
from compliance.audits.discovery import find_audit
from compliance.audits.options import AuditRequest
from compliance.audits.run_artifacts import RunArtifacts
from runs.errors import ExecutionError, InputError
from tests.support.runs.audit_runs import entry, request_of, write_run

RESPONSES = [[sample + 1, *range(100, 119)] for sample in range(20)]  # 20 samples of 20 tokens


def request(name: str, **more: object) -> AuditRequest[Any]:
    return request_of(name, loadgen_key="", loaded_count=20, **more)


def runs(
    folder: Path,
    performance: Sequence[tuple[int, Sequence[int]]],
    *,
    logged: int | None = None,
    accuracy: Sequence[Sequence[int]] = RESPONSES,
) -> list[RunArtifacts]:
    """Write an accuracy run with the responses and a performance run of (sample, response).

    The log has the first `logged`.
    """
    first_run = write_run(
        folder / "accuracy",
        RunSpec("accuracy", "accuracy"),
        samples=[(index, 9, len(ids)) for index, ids in enumerate(accuracy)],
        outputs=accuracy,
        entries=[entry(ids, seq=index, index=index) for index, ids in enumerate(accuracy)],
    )
    second_run = write_run(
        folder / "performance",
        RunSpec("performance"),
        samples=[(index, 9, len(ids)) for index, ids in performance],
        outputs=[ids for _, ids in performance],
        entries=[entry(ids, seq=seq, index=index) for seq, (index, ids) in enumerate(performance)][:logged],
    )
    return [first_run, second_run]


def judge(name: str, finished: list[RunArtifacts], **more: object) -> AuditResult:
    return find_audit(name).verify(request(name, **more), finished)


SAME = list(enumerate(RESPONSES))


def changed_responses(count: int, at: int) -> list[tuple[int, Sequence[int]]]:
    """Return responses of which the first `count` differ from token `at` on."""
    return [(i, [*ids[:at], *[9] * (len(ids) - at)] if i < count else ids) for i, ids in SAME]


@pytest.mark.parametrize("name", ["output_consistency", "output_length"])
def test_equal_responses_pass_in_any_order_and_number(tmp_path: Path, name: str) -> None:
    assert judge(name, runs(tmp_path / "1", SAME)).passed
    assert judge(name, runs(tmp_path / "2", [*SAME[::-1], *SAME[:7]], logged=5)).passed
    assert judge(name, runs(tmp_path / "3", SAME, logged=0)).passed


@pytest.mark.parametrize(
    ("responses", "passed"),
    [
        (changed_responses(1, 0), True),  # 5 % of the tokens
        (changed_responses(2, 0), False),
        (changed_responses(2, 10), True),
        (changed_responses(4, 16), True),  # 4 % of the tokens, 20 % of the responses
        (changed_responses(5, 19), False),  # 25 % of the responses
        ([(i, ids[:10]) for i, ids in SAME], False),
        ([(i, [*ids, 257]) for i, ids in SAME], False),
        ([(i, ids[::-1]) for i, ids in SAME], False),
    ],
)
def test_the_share_of_different_responses_decides_output_consistency(
    tmp_path: Path, responses: list[tuple[int, list[int]]], passed: bool
) -> None:
    assert judge("output_consistency", runs(tmp_path, responses)).passed is passed


def test_responses_outside_the_log_are_compared_by_hash(tmp_path: Path) -> None:
    result = judge("output_consistency", runs(tmp_path, [*SAME[:10], *changed_responses(20, 0)[10:]], logged=10))
    assert not result.passed
    assert "by hash" in result.reason


def test_the_requested_consistency_threshold_is_applied(tmp_path: Path) -> None:
    finished = runs(tmp_path, changed_responses(2, 0))
    assert judge("output_consistency", finished, threshold=0.11).passed
    assert not judge("output_consistency", finished, threshold=0.09).passed


def test_a_response_log_that_contradicts_the_request_log_fails(tmp_path: Path) -> None:
    finished = runs(tmp_path, SAME)
    finished[1].dir.accuracy_log.write_bytes(runs(tmp_path / "other", SAME[::-1])[1].dir.accuracy_log.read_bytes())
    result = judge("output_consistency", finished)
    assert not result.passed
    assert "differ from the request log" in result.reason


@pytest.mark.parametrize("name", ["output_consistency", "output_length"])
def test_samples_missing_from_the_accuracy_run_fail(tmp_path: Path, name: str) -> None:
    assert not judge(name, runs(tmp_path, SAME, accuracy=RESPONSES[:10])).passed


@pytest.mark.parametrize(("length", "passed"), [(18, True), (22, True), (17, False), (23, False)])
def test_output_lengths_may_differ_by_a_tenth(tmp_path: Path, length: int, passed: bool) -> None:
    responses = [(i, [*ids, 7, 7, 7][:length]) for i, ids in SAME]
    assert judge("output_length", runs(tmp_path, responses)).passed is passed


def test_output_lengths_are_compared_sample_by_sample(tmp_path: Path) -> None:
    accuracy = [[5] * 10, [6] * 100]
    assert judge("output_length", runs(tmp_path, [(0, [5] * 10)] * 9 + [(1, [6] * 100)], accuracy=accuracy)).passed


@pytest.mark.parametrize("name", ["output_consistency", "output_length"])
def test_runs_without_request_log_are_judged_by_the_logged_responses(tmp_path: Path, name: str) -> None:
    finished = runs(tmp_path / "1", SAME)
    finished[1].dir.requests.unlink()
    assert judge(name, finished).passed
    empty = runs(tmp_path / "2", SAME, logged=0)
    empty[1].dir.requests.unlink()
    with pytest.raises(ExecutionError, match="are missing"):
        judge(name, empty)


@pytest.mark.parametrize("name", ["output_consistency", "output_length"])
def test_runs_in_the_wrong_mode_are_refused(tmp_path: Path, name: str) -> None:
    accuracy, performance = runs(tmp_path, SAME)
    with pytest.raises(InputError, match="must be an accuracy run"):
        judge(name, [performance, accuracy])
    with pytest.raises(InputError, match="must be a performance run"):
        judge(name, [accuracy, accuracy])
    with pytest.raises(ExecutionError, match="1 finished runs, required: at least 2"):
        judge(name, [accuracy])


def test_an_accuracy_run_without_responses_prevents_a_verdict(tmp_path: Path) -> None:
    finished = runs(tmp_path, SAME, accuracy=[])
    with pytest.raises(ExecutionError, match="responses are missing"):
        judge("output_consistency", finished)


@pytest.mark.parametrize("name", ["output_consistency", "output_length"])
def test_the_plan_has_an_accuracy_run_and_a_logged_performance_run(name: str) -> None:
    first, second = find_audit(name).runs(request(name, samples=7))
    assert (first.mode, first.render()) == ("accuracy", None)
    assert second.settings["min_query_count"] == second.settings["accuracy_log_sampling_target"] == 7
    assert second.in_force["accuracy_log_rng_seed"] == second.settings["accuracy_log_rng_seed"]
    second_of_default = find_audit(name).runs(request(name, samples=7))[1]
    assert second_of_default.settings["accuracy_log_rng_seed"] != second.settings["accuracy_log_rng_seed"]


@pytest.mark.parametrize("name", ["output_consistency", "output_length"])
def test_invalid_audit_options_are_refused(name: str) -> None:
    test = find_audit(name)
    with pytest.raises(InputError, match="must be at most 20"):
        test.validate(request(name, samples=21))
    with pytest.raises(InputError, match="--sample-index"):
        test.validate(request(name, sample_index=(3,)))
    with pytest.raises(InputError, match="must be between"):
        test.validate(request(name, threshold=1.5))
