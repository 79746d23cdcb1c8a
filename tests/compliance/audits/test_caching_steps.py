"""The decision procedure of output_caching, on runs of given speeds without files."""

from collections import Counter
from collections.abc import Callable
from itertools import permutations

import pytest

from compliance.audits.caching_steps import (
    FEW,
    MAX_ROUNDS,
    MAX_RUNS,
    REFERENCE,
    CachingOutcome,
    CachingRun,
    Measurement,
    Plan,
    chance,
    next_step,
    spread_rows,
)
from compliance.audits.pace import Pace

Seconds = Callable[[CachingRun, int], float]  # run, index of the run → seconds per sample
Lengths = Callable[[int], tuple[int, float]]  # row → prompt tokens, output tokens


def simulate_audit(
    seconds: Seconds,
    *,
    rows: int = 13_368,
    samples: int = 64,
    lengths: Lengths = lambda row: (100, 50.0),
    threshold: float = 0.1,
    **plan: object,
) -> tuple[CachingOutcome, list[Measurement]]:
    """Simulate an audit of SingleStream. Return its outcome and its runs."""
    done: list[Measurement] = []
    audit_plan = Plan(samples, rows, threshold, **plan)  # type: ignore[arg-type]
    while isinstance(step := next_step(audit_plan, done), CachingRun):
        taken_ns = seconds(step, len(done)) * 1e9
        if step.kind == REFERENCE:
            issued = list(step.rows)
        elif step.kind == FEW:
            issued = [step.rows[place % len(step.rows)] for place in range(step.queries)]
        else:
            issued = [step.rows[int(step.kind.partition("-")[2])]] * step.queries
        label = f"{step.kind} {step.samples} {step.number}"
        pace = Pace(
            label, "SingleStream", 1e9 / taken_ns, taken_ns, None, {row: lengths(row) for row in issued}, issued
        )
        done.append(Measurement(step, pace, step.rows))
    return step, done


def labels(done: list[Measurement]) -> list[str]:
    return [value.pace.label for value in done]


def references(done: list[Measurement]) -> list[Measurement]:
    return [value for value in done if value.run.kind == REFERENCE]


def saving(share: float, noise: Seconds = lambda run, place: 1.0) -> Seconds:
    """Return the seconds of a system that saves a share of the time of each sample that it computed before."""
    seen: Counter[tuple[int, int]] = Counter()  # (engine, row)

    def seconds(run: CachingRun, place: int) -> float:
        keys = [(run.engine, row) for row in run.rows]
        new = sum(seen[key] == 0 for key in keys) / len(keys) if run.kind == REFERENCE else 0.0
        seen.update(keys if run.kind == REFERENCE else [])
        return 0.1 * (1 - share * (1 - new)) * noise(run, place)

    return seconds


def test_an_honest_system_passes_after_one_round() -> None:
    outcome, done = simulate_audit(saving(0))
    assert outcome.verdict == "PASS"
    assert labels(done) == ["reference 64 1", "repeat-0 64 1", "few 64 1", "reference 64 2"]


@pytest.mark.parametrize("rows", [64, 400, 5_000])
@pytest.mark.parametrize("share", [0.12, 0.15, 0.25, 0.4, 0.9])
def test_a_cache_fails_for_each_size_of_the_dataset(share: float, rows: int) -> None:
    outcome, done = simulate_audit(saving(share), rows=rows, samples=32)
    assert outcome.verdict == "FAIL"
    assert len(done) <= 19


@pytest.mark.parametrize("share", [0.0, 0.05, 0.08])
def test_a_saving_below_the_threshold_passes(share: float) -> None:
    assert simulate_audit(saving(share))[0].verdict == "PASS"


@pytest.mark.parametrize(("rows", "engines"), [(64, 4), (400, 1), (5_000, 1)])
def test_reference_runs_use_samples_that_are_new_to_the_engine(rows: int, engines: int) -> None:
    """A dataset with too few new samples requires new engines."""
    _, done = simulate_audit(saving(0.15), rows=rows, samples=32)
    issued: Counter[tuple[int, int]] = Counter()
    for measurement in done:
        if measurement.run.kind == REFERENCE:
            assert not any(issued[measurement.run.engine, row] for row in measurement.pace.issued)
            assert len(set(measurement.pace.issued)) == measurement.run.samples
        issued.update((measurement.run.engine, row) for row in measurement.pace.issued)
    assert done[-1].run.engine == engines


def test_a_server_without_enough_new_samples_has_no_verdict() -> None:
    outcome, done = simulate_audit(saving(0.15), rows=64, samples=32, starts_engine=False)
    assert (outcome.verdict, len(references(done))) == ("NONE", 2)
    assert "the dataset is too small: 0 of 64 rows are new to the server" in outcome.reason
    assert simulate_audit(saving(0.15), rows=400, samples=32, starts_engine=False)[0].verdict == "FAIL"


def test_a_strong_cache_fails_after_one_round() -> None:
    outcome, done = simulate_audit(saving(0.9))
    assert (outcome.verdict, len(done)) == ("FAIL", 4)


def test_one_disturbed_reference_run_does_not_decide() -> None:
    outcome, _ = simulate_audit(saving(0, lambda run, place: 3.0 if place == 0 else 1.0))
    assert outcome.verdict == "PASS"


def test_a_cache_fails_although_a_disturbance_hides_it_in_one_round() -> None:
    """The repeating runs of the first round are slow, because the system was stopped."""
    outcome, _ = simulate_audit(saving(0.25, lambda run, place: 2.0 if place in (1, 2) else 1.0))
    assert outcome.verdict == "FAIL"


def test_a_cache_on_disk_does_not_pass() -> None:
    """A new engine does not help, because the samples are stored on disk."""
    seen: set[int] = set()

    def seconds(run: CachingRun, place: int) -> float:
        new = sum(row not in seen for row in run.rows) / len(run.rows) if run.kind == REFERENCE else 0.0
        seen.update(run.rows)
        return 0.1 * (0.6 + 0.4 * new)

    assert simulate_audit(seconds, rows=64, samples=32)[0].verdict == "NONE"
    seen.clear()
    assert simulate_audit(seconds, rows=400, samples=32)[0].verdict == "FAIL"


# Limits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.1, 0.2])
@pytest.mark.parametrize("share", [0.5, 0.93, 1.0, 1.07, 2.0])
def test_the_limit_for_a_shorter_sample_is_raised_by_at_most_half_of_the_threshold(
    share: float, threshold: float
) -> None:
    """The repeated sample has this share of the lengths of all others. A shorter sample has a higher limit."""
    outcome, _ = simulate_audit(
        lambda run, place: 0.2, indices=(0,), samples=15, threshold=threshold,
        lengths=lambda row: (round(1_000 * share) if row == 0 else 1_000, 50.0),
    )  # fmt: skip
    if outcome.verdict == "NONE":
        assert share in (0.5, 2.0)
        return
    (pace,) = (finding.numbers for finding in outcome.findings if finding.rule == "caching-pace")
    assert abs(pace["correction"]) <= threshold / 2
    assert pace["limit"] == pytest.approx(1 + threshold + pace["correction"])
    assert (pace["correction"] > 1e-9) == (share < 1)
    assert (pace["correction"] < -1e-9) == (share > 1)
    assert "lengths" in next(finding.required for finding in outcome.findings if finding.rule == "caching-pace")


def test_repeated_samples_have_lengths_near_both_means() -> None:
    def lengths(row: int) -> tuple[int, float]:
        return 40 + row * 37 % 200, 20.0 + row * 53 % 100

    _, done = simulate_audit(saving(0), lengths=lengths)
    means = done[0].pace.mean_lengths
    for measurement in done[1:3]:
        for mean, mean_of_test in zip(means, measurement.pace.mean_lengths, strict=True):
            assert mean_of_test == pytest.approx(mean, rel=0.15)


def test_samples_far_from_the_mean_are_not_repeated_alone() -> None:
    """Half of the prompts are short and half are long. A verdict on one sample would compare lengths."""
    outcome, done = simulate_audit(saving(0.25), lengths=lambda row: (100 if row % 2 else 1_000, 50.0))
    assert outcome.verdict == "FAIL"
    assert {value.run.kind for value in done} == {REFERENCE, FEW}
    assert "repeat-" in outcome.notes[0]


# Bounds --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample_s", "verdict", "used"),
    [(0.001, "NONE", 64), (0.007, "NONE", 64), (0.009, "PASS", 64), (0.04, "PASS", 64)],
)
def test_the_number_of_samples_is_limited_by_the_dataset(sample_s: float, verdict: str, used: int) -> None:
    outcome, done = simulate_audit(lambda run, place: sample_s, rows=64, samples=32)
    assert (outcome.verdict, done[-1].run.samples) == (verdict, used)


def test_samples_are_added_until_a_run_is_long_enough() -> None:
    outcome, done = simulate_audit(lambda run, place: 0.001)
    assert outcome.verdict == "PASS"
    assert labels(done)[:2] == ["reference 64 1", "reference 1024 1"]
    assert done[-1].run.samples == 3072


def test_the_number_of_runs_and_the_duration_are_limited() -> None:
    chaos = [1.0, 0.3, 0.3, 0.1, 0.7, 0.2, 0.5]
    for start in range(7):
        _, done = simulate_audit(lambda run, place, start=start: chaos[(place * 3 + start) % 7])  # type: ignore[misc]
        assert len(done) <= MAX_RUNS
        assert max(value.run.number for value in done) <= MAX_ROUNDS + 1
    outcome, done = simulate_audit(lambda run, place: 100.0 if run.kind == REFERENCE else 85.0)
    assert (outcome.verdict, len(done)) == ("NONE", 3)
    assert "differ too much" in outcome.reason


def test_the_error_probability_counts_the_orders_of_the_runs() -> None:
    orders = [
        sum(test < reference for test in order[:3] for reference in order[3:]) for order in permutations(range(7))
    ]
    for misses in range(13):
        assert chance(3, 4, misses) == pytest.approx(sum(order <= misses for order in orders) / len(orders))


@pytest.mark.parametrize("count", [1, 2, 3, 64, 400, 13_368])
def test_rows_of_each_run_are_spread_over_the_dataset(count: int) -> None:
    rows = spread_rows(count)
    assert sorted(rows) == list(range(count))
    if count >= 64:
        for start in range(0, count - 31, 32):
            assert sum(rows[start : start + 32]) / 32 == pytest.approx(count / 2, rel=0.1)
