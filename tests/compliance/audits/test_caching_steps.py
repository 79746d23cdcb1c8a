"""The decision procedure of output_caching on runs of given speeds, without files."""

from collections.abc import Callable

import pytest

from compliance.audits.caching_steps import (
    CLOSE_ROUNDS,
    MAX_ROUNDS,
    MAX_RUNS,
    REFERENCE,
    Measurement,
    Outcome,
    Plan,
    Run,
    next_step,
)
from compliance.audits.pace import Pace

Seconds = Callable[[Run, int], float]  # run, index of the run → seconds per sample


def play(seconds: Seconds, *, most: int = 13_368, samples: int = 64, **plan: int) -> tuple[Outcome, list[str]]:
    """An audit of SingleStream: its outcome, and the kind, N and round of each run."""
    done: list[Measurement] = []
    while isinstance(step := next_step(Plan(samples, most, 0.2, **plan), done), Run):
        taken_ns = seconds(step, len(done)) * 1e9
        issued = list(range(step.samples)) if step.kind == REFERENCE else [3] * step.queries
        lengths = dict.fromkeys(issued, (100, 50.0))
        label = f"{step.kind} {step.samples} {step.number}"
        pace = Pace(label, "SingleStream", 1e9 / taken_ns, taken_ns, taken_ns, None, lengths, issued)
        done.append(Measurement(step, pace, typical=3))
    return step, [one.pace.label for one in done]


def repeated(run: Run) -> bool:
    return run.kind != REFERENCE


def test_an_honest_system_needs_three_runs() -> None:
    outcome, runs = play(lambda run, place: 0.1)
    assert (outcome.verdict, runs) == ("PASS", ["reference 64 1", "repeat-3 64 1", "few 64 1"])


def test_a_cache_is_over_the_limit_in_two_rounds() -> None:
    outcome, runs = play(lambda run, place: 0.001 if repeated(run) else 0.1)
    assert outcome.verdict == "FAIL"
    assert runs[3:] == ["repeat-3 64 2", "few 64 2", "reference 64 2"]


def test_a_small_gain_must_show_in_more_rounds_beside_references_that_agree() -> None:
    outcome, runs = play(lambda run, place: 0.07 if repeated(run) else 0.1)
    assert (outcome.verdict, len(runs)) == ("FAIL", 3 * CLOSE_ROUNDS)


def test_a_disturbed_reference_is_measured_again_with_samples_that_are_new() -> None:
    """Once more with the same samples, a system that keeps responses would be as fast."""
    outcome, runs = play(lambda run, place: 0.3 if place == 0 else 0.1)
    assert outcome.verdict == "PASS"
    assert runs[5:] == ["reference 64 2", "reference 128 1", "repeat-3 128 1", "few 128 1"]


def test_a_dataset_without_new_samples_gives_no_verdict_on_a_disturbed_reference() -> None:
    outcome, _ = play(lambda run, place: 0.3 if place == 0 else 0.1, most=64)
    assert outcome.verdict == "NONE"
    assert "either it was disturbed, or the system caches responses" in outcome.reason


def test_a_system_that_keeps_responses_for_later_processes_fails() -> None:
    """New samples of each larger N take their time; everything else is there."""
    known: set[int] = set()

    def seconds(run: Run, place: int) -> float:
        samples = set(range(run.samples)) if run.kind == REFERENCE else {3}
        new = len(samples - known) / len(samples)
        known.update(samples)
        return max(0.1 * new, 1e-4)

    outcome, runs = play(seconds)
    assert (outcome.verdict, runs[-1]) == ("FAIL", "few 128 1")
    known.clear()
    assert play(seconds, most=64)[0].verdict == "NONE"


def test_a_cache_behind_a_disturbance_is_measured_again() -> None:
    """The repeating run is slow because the system was stopped."""
    outcome, _ = play(lambda run, place: 0.2 if place in (1, 2) else 0.001 if repeated(run) else 0.1)
    assert outcome.verdict == "FAIL"


def test_repeats_that_are_slower_every_time_pass() -> None:
    outcome, runs = play(lambda run, place: 0.2 if repeated(run) else 0.1)
    assert (outcome.verdict, len(runs)) == ("PASS", 6)


@pytest.mark.parametrize(
    ("sample_s", "verdict", "used"),
    [(0.03, "NONE", 64), (0.001, "NONE", 64), (0.04, "PASS", 64)],
)
def test_no_more_samples_than_there_are(sample_s: float, verdict: str, used: int) -> None:
    outcome, runs = play(lambda run, place: sample_s, most=64, samples=32)
    assert (outcome.verdict, runs[-1].split()[1]) == (verdict, str(used))


def test_samples_are_raised_until_a_run_is_long_enough() -> None:
    outcome, runs = play(lambda run, place: 0.001)
    assert outcome.verdict == "PASS"
    assert runs[:2] == ["reference 64 1", "reference 1024 1"]
    assert runs[-1] == "few 3072 1"


def test_runs_and_time_are_bounded() -> None:
    chaos = [1.0, 0.3, 0.3, 0.1, 0.7, 0.2, 0.5]
    for start in range(7):
        outcome, runs = play(lambda run, place, start=start: chaos[(place * 3 + start) % 7])  # type: ignore[misc]
        assert len(runs) <= MAX_RUNS
        assert max(int(run.split()[2]) for run in runs) <= MAX_ROUNDS
    outcome, runs = play(lambda run, place: 70.0 if repeated(run) else 100.0)
    assert (outcome.verdict, len(runs)) == ("NONE", 3)
    assert "differ too much" in outcome.reason
