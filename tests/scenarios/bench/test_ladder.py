"""The ladder of a bench, on systems whose boundary is known."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.bench.bench_record import NEEDED, BenchRecord, BenchRun, RateVerdict
from runs.bench.best_rate import best_rate
from runs.errors import ExitCode
from scenarios.bench.ladder import (
    LadderPlan,
    LoadStep,
    PlannedBenchRun,
    choose_percentile,
    next_run,
)
from tests.support.runs.bench_records import LIMITS, bench_record

OFFLINE_QPS = 40.0


def steps(*shares: float) -> tuple[LoadStep, ...]:
    return (LoadStep("offline"), *(LoadStep("server", share=share) for share in shares))


PLAN = LadderPlan(
    steps(0.25, 0.5, 0.75, 0.9), is_adaptive=True, duration_s=60, longest_s=180, max_runs=8, percentile="p99"
)


def measured_run(spec: PlannedBenchRun, verdict: RateVerdict) -> BenchRun:
    return BenchRun(
        number=spec.number,
        kind=spec.kind,
        repetition=spec.repetition,
        again=spec.again,
        share=spec.share,
        asked_qps=spec.asked_qps,
        concurrency=spec.concurrency,
        scenario="Server",
        verdict=verdict,
        queries=spec.queries,
        done_qps=OFFLINE_QPS if spec.kind == "offline" else spec.asked_qps,
    )


def climb(plan: LadderPlan, verdict: Callable[[PlannedBenchRun], RateVerdict]) -> list[BenchRun]:
    runs: list[BenchRun] = []
    while (spec := next_run(plan, runs)) is not None:
        assert len(runs) < 100
        assert spec.number == len(runs) + 1
        runs.append(measured_run(spec, "maximum" if spec.kind == "offline" else verdict(spec)))
    return runs


def up_to(boundary: float) -> Callable[[PlannedBenchRun], RateVerdict]:
    return lambda spec: "within" if (spec.asked_qps or 0) <= boundary * OFFLINE_QPS else "saturated"


@pytest.mark.parametrize(
    ("boundary", "shares"),
    [
        (1.5, [0.25, 0.5, 0.75, 0.9, 0.97, 1.02, 1.02]),
        (0.93, [0.25, 0.5, 0.75, 0.9, 0.97, 0.935, 0.9]),
        (0.6, [0.25, 0.5, 0.75, 0.625, 0.5625, 0.5625]),
        (0.2, [0.25, 0.125, 0.1875, 0.1875]),
        (0.01, [0.25, 0.125]),
    ],
)
def test_the_ladder_ends_at_the_boundary_and_refines_it(boundary: float, shares: list[float]) -> None:
    runs = climb(PLAN, up_to(boundary))
    assert [run.share for run in runs] == [None, *shares]
    assert [run.again for run in runs[1:]] == [False] * (len(shares) - 1) + [boundary > 0.1]


def test_a_rate_that_takes_too_long_for_the_percentile_is_omitted() -> None:
    runs = climb(replace(PLAN, longest_s=120), up_to(0.01))  # 662 queries at 5 queries/s take 132 s
    assert [run.share for run in runs] == [None, 0.25]


@given(boundary=st.floats(0.0, 1.3), most=st.integers(1, 10))
def test_the_best_rate_encloses_the_boundary(boundary: float, most: int) -> None:
    plan = replace(PLAN, max_runs=most)
    runs = climb(plan, up_to(boundary))
    best = best_rate(runs)
    assert len(runs) <= most
    if best is None:
        assert most == 1
        return
    assert (best.low or 0) <= boundary * OFFLINE_QPS < (best.high or 1e9)
    if most >= 8 and best.low and best.high:
        assert best.high - best.low <= 0.0701 * OFFLINE_QPS
        assert best.again == runs[-1].number
    assert all(run.queries >= NEEDED["p99"] for run in runs[1:])


def test_a_bench_continues_after_each_of_its_runs() -> None:
    runs = climb(PLAN, up_to(0.8))
    for done in range(len(runs)):
        spec = next_run(PLAN, runs[:done])
        assert spec is not None
        assert measured_run(spec, runs[done].verdict) == runs[done]
    # A failed run that was removed is repeated first.
    spec = next_run(PLAN, [run for run in runs if run.share != 0.5])
    assert spec is not None
    assert (spec.share, spec.number) == (0.5, len(runs) + 1)


def test_an_unclear_or_failed_run_does_not_end_the_ladder() -> None:
    for verdict in ("unclear", "failed"):
        odd: RateVerdict = verdict  # type: ignore[assignment]
        runs = climb(PLAN, lambda spec, odd=odd: odd if spec.share in (0.25, 0.9) else "within")
        assert [run.share for run in runs[1:]] == [0.25, 0.5, 0.75, 0.9, 0.75]
        best = best_rate(runs)
        assert best is not None
        assert (best.low, best.high) == (30.0, None)


def bench(verdicts: dict[float, RateVerdict], **fields: Any) -> BenchRecord:
    """Return a bench with one run of 8 queries at each rate."""
    runs = [
        measured_run(PlannedBenchRun(number, "server", 8, 0, qps), verdict).model_copy(update={"reasons": ["a reason"]})
        for number, (qps, verdict) in enumerate(verdicts.items(), start=1)
    ]
    return bench_record(**{"runs": runs, "best": best_rate(runs), "limits": LIMITS, "percentile": "p90"} | fields)


@pytest.mark.parametrize(
    ("verdicts", "low", "exit_code"),
    [
        ({5: "within"}, 5, ExitCode.OK),
        ({5: "within", 9: "unchecked"}, 5, ExitCode.OK),
        ({5: "unclear", 9: "within"}, 9, ExitCode.OK),
        ({5: "outside", 9: "within"}, None, ExitCode.NEGATIVE),
        ({5: "outside", 9: "unchecked"}, None, ExitCode.NEGATIVE),
        ({5: "unchecked"}, None, ExitCode.REFUSED),
        ({5: "unclear"}, None, ExitCode.REFUSED),
        ({5: "unchecked", 9: "saturated"}, None, ExitCode.REFUSED),
        ({5: "unclear", 9: "outside"}, None, ExitCode.REFUSED),
        ({5: "within", 9: "failed"}, 5, ExitCode.FAILED),
        ({5: "unchecked", 9: "failed"}, None, ExitCode.FAILED),
    ],
)  # fmt: skip
def test_a_bench_without_a_decided_rate_has_no_best_rate(
    verdicts: dict[float, RateVerdict], low: float | None, exit_code: ExitCode
) -> None:
    record = bench(verdicts)
    assert (record.best and record.best.low, record.exit_code) == (low, exit_code)
    assert bench(verdicts, limits=None).exit_code in (ExitCode.OK, ExitCode.FAILED)


def test_a_missing_best_rate_has_its_reason() -> None:
    few = bench({5: "unclear", 9: "unchecked"}, percentile=None)
    assert few.undecided == "limits not checked: 8 queries, 64 are needed for p90"
    assert bench({5: "unclear", 9: "unchecked"}).undecided == "run 2 is unchecked: a reason"


@pytest.mark.parametrize(
    ("verdicts", "exit_code"),
    [
        (["outside", "outside"], ExitCode.NEGATIVE),
        (["within", "outside"], ExitCode.OK),
        (["unchecked", "outside"], ExitCode.REFUSED),
        (["unclear"], ExitCode.REFUSED),
    ],
)
def test_the_exit_code_of_a_closed_loop_follows_from_its_verdicts(
    verdicts: list[RateVerdict], exit_code: ExitCode
) -> None:
    runs = [
        measured_run(PlannedBenchRun(number, "concurrency", 70, 0, concurrency=number), verdict).model_copy(
            update={"reasons": ["a reason"]}
        )
        for number, verdict in enumerate(verdicts, start=1)
    ]
    assert bench({}, runs=runs, best=best_rate(runs)).exit_code == exit_code


def test_a_violated_limit_does_not_end_the_curve() -> None:
    runs = climb(PLAN, lambda spec: "within" if (spec.share or 0) <= 0.4 else "outside")
    assert [run.share for run in runs[1:]] == [0.25, 0.5, 0.75, 0.9, 0.375, 0.4375, 0.375]


def test_all_requested_loads_are_measured() -> None:
    plan = replace(PLAN, steps=tuple(LoadStep("server", qps=qps) for qps in (10.0, 20.0, 80.0)), is_adaptive=False)
    runs = climb(plan, up_to(0.3))
    assert [run.asked_qps for run in runs] == [10, 20, 80, 10]
    assert runs[-1].again
    closed = replace(plan, steps=(LoadStep("concurrency", concurrency=1), LoadStep("concurrency", concurrency=8)))
    assert [run.concurrency for run in climb(closed, lambda _: "measured")] == [1, 8]


def test_a_repetition_has_the_rates_of_the_first_pass() -> None:
    runs = climb(replace(PLAN, repeats=3), up_to(0.8))
    first = [(run.asked_qps, run.queries) for run in runs if run.repetition == 1]
    assert len(first) == 7
    for repetition in (2, 3):
        assert [(run.asked_qps, run.queries) for run in runs if run.repetition == repetition] == first
    assert not any(run.again for run in runs)


def test_a_rate_meets_the_limits_if_most_of_its_runs_do() -> None:
    plan = replace(PLAN, steps=(LoadStep("server", qps=10.0),), is_adaptive=False)
    once = climb(plan, lambda spec: "outside" if spec.again else "within")
    best = best_rate(once)
    assert best is not None
    assert (best.low, best.high) == (None, 10.0)
    best = best_rate(climb(replace(plan, repeats=3), lambda spec: "outside" if spec.repetition == 2 else "within"))
    assert best is not None
    assert (best.low, best.high) == (10.0, None)


@pytest.mark.parametrize(
    ("lowest", "queries", "percentile", "reason"),
    [
        (4.0, 0, "p99", "each run has at least 662 queries"),
        (3.0, 0, "p95", "540 queries in 180 s at 3 queries/s, but p99 needs 662 queries"),
        (0.5, 0, "p90", "90 queries in 180 s at 0.5 queries/s, but p95 needs 130 queries"),
        (0.5, 700, "p99", "each run has at least 662 queries"),
        (0.1, 0, None, "18 queries in 180 s at 0.1 queries/s, but p90 needs 64 queries"),
        (None, 0, None, "no run has measured a rate"),
    ],
)
def test_the_percentile_follows_from_the_number_of_queries(
    lowest: float | None, queries: int, percentile: str | None, reason: str
) -> None:
    assert choose_percentile(replace(PLAN, queries=queries), lowest) == (percentile, reason)
