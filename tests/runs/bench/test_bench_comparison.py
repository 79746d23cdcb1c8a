"""Comparisons of benches: conditions, changes, the sentence, and noise in many pairs."""

import random
from typing import Any

import pytest

from runs.bench.bench_comparison import UNDECLARED, ComparedBench, compare_benches
from runs.bench.bench_record import BenchRecord, Best, Conditions
from tests.support.runs.bench_records import bench_record, bench_run
from tests.support.simulated.simulated_bench import simulate_bench

EQUAL = {"data": "synthetic", "limits": "TTFT 2000 ms"}
RATES = (10.0, 20.0, 30.0, 36.0)


def bench(label: str, speed: float = 40.0, *, system: dict[str, Any] | None = None, **fields: Any) -> BenchRecord:
    """Return a bench at RATES with this speed. Its last rate is repeated."""
    runs = [bench_run(1, None, speed), *(bench_run(place, rate, speed) for place, rate in enumerate(RATES, start=2))]
    runs.append(bench_run(6, RATES[-1], speed, again=True))
    conditions = Conditions(equal=EQUAL, system=system or {"engine": "vllm"})
    return bench_record(label, **{"runs": runs, "conditions": conditions, **fields})


def compare_pair(base: BenchRecord, candidate: BenchRecord) -> ComparedBench:
    (comparison,) = compare_benches([base, candidate]).against
    return comparison


def test_benches_with_different_conditions_are_not_compared() -> None:
    with_own_data = bench("b").model_copy(update={"conditions": Conditions(equal={**EQUAL, "data": "own"}, system={})})
    comparison = compare_benches([bench("a"), with_own_data, bench("c")])
    assert not comparison.is_comparable
    assert comparison.unequal == {"data": ["synthetic", "own", "synthetic"]}
    assert comparison.against == []


def test_benches_without_an_equal_load_are_not_comparable() -> None:
    first, second = (bench(label, best=None, runs=[bench_run(1, rate)]) for label, rate in (("a", 10.0), ("b", 12.0)))
    assert compare_benches([first, second]).unequal == {"loads": ["10 queries/s", "12 queries/s"]}
    failed = bench_run(1, 10.0).model_copy(update={"verdict": "failed"})
    assert not compare_benches([first, bench("c", best=None, runs=[failed])]).is_comparable


def test_changed_options_are_listed_once_with_their_ratio() -> None:
    system = {"engine_options.slots": 4, "resolved.slots": 4, "resolved.blocks": 1}
    comparison = compare_pair(bench("a", system=system), bench("b", 54, best=None, system=dict.fromkeys(system, 16)))
    assert comparison.changed == [("slots", 4, 16), ("blocks", 1, 16)]
    assert comparison.change_text == "slots 4 → 16; blocks 1 → 16"
    assert compare_pair(bench("a"), bench("b")).change_text == "nothing in the recorded system"


def test_unrecorded_server_options_are_not_called_unchanged() -> None:
    server = bench("a", system={"engine": "endpoint", "engine_options.serve": None, "resolved.declared": None})
    assert compare_pair(server, server).change_text == f"nothing in the recorded system; {UNDECLARED}"
    named = [server.model_copy(update={"metadata": {"slots": value}}) for value in ("4", "2")]
    assert compare_pair(*named).change_text == "slots 4 → 2"


def test_saturated_runs_are_omitted_and_a_lost_best_rate_is_slower() -> None:
    slow = bench("slow", best=Best(low=None, high=10))
    runs = [run if run.kind == "offline" else run.model_copy(update={"verdict": "saturated"}) for run in slow.runs]
    slow = slow.model_copy(update={"runs": runs})
    fast = bench("fast", best=Best(low=36, high=None))
    comparison = compare_pair(fast, slow)
    assert comparison.lines[0] == (
        "best rate within limits: 36 → none queries/s: slower; slow is saturated at 10 queries/s"
    )
    assert [measure.name for measure in comparison.measures] == ["Offline"]
    omitted = "latencies at 10, 20, 30, 36 queries/s are not compared, because slow is saturated"
    assert any(line.startswith(omitted) for line in comparison.lines)
    assert [value.name for value in comparison.slower_than(0.99)] == ["best rate within limits"]
    assert compare_pair(slow, fast).slower_than(0.0) == []


def test_equal_best_rates_are_not_slower() -> None:
    runs = [bench_run(1, None), bench_run(2, 10.0)]
    same, none = (bench("a", runs=runs, best=Best(low=low, high=20)) for low in (10, None))
    assert "10 → 10 queries/s (+0.0%): not distinguishable" in compare_pair(same, same).lines[0]
    assert compare_pair(none, none).lines[0] == "best rate within limits: none in both"
    untried = bench("a", best=Best(low=36, high=None))
    assert compare_pair(untried, untried).lines[0] == (
        "best rate within limits: at least 36 → at least 36 queries/s: not compared; no measured rate is too high"
    )


def test_conditions_are_named_as_the_options() -> None:
    equal = {"loadgen.target_latency_percentile": 0.3898, "loadgen.requested_server_ttft_latency": 3600000000000}
    first, second = (
        bench(label, percentile=percentile, conditions=Conditions(equal=equal | {"duration_s": duration}, system={}))
        for label, percentile, duration in (("a", None, 10.0), ("b", "p90", 60.0))
    )
    assert compare_benches([first, second.model_copy(update={"limits": None})]).unequal_texts() == {
        "percentile of the limits": ["none", "p90"], "duration of a run": ["10 s", "60 s"],
        "limits": [str(first.limits), "none"],
    }  # fmt: skip


def test_only_runs_at_equal_loads_are_paired() -> None:
    candidate = bench("b", 50)
    candidate = candidate.model_copy(update={"runs": [*candidate.runs[:2], bench_run(9, 21.0, 50)]})
    assert compare_pair(bench("a"), candidate).pairs == [
        {"load": "Offline", "base": 1, "other": 1}, {"load": "10 queries/s", "base": 2, "other": 2},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "noise", "sentence"),
    [
        (Best(low=36, high=38), Best(low=48, high=50), 1.0,
         "36 → 48 queries/s (+33.3%): faster; mean TPOT of 4 equal runs at 36 queries/s (a and b) differs by 0.0%; "
         "a change counts from +1.0%"),
        (Best(low=36, high=38), Best(low=36, high=38), 1.04,
         "36 → 36 queries/s (+0.0%): not distinguishable; mean TPOT of 4 equal runs at 36 queries/s (a and b) differs "
         "by 2.8%; a change counts from +27.9%"),
        (Best(low=36, high=38), Best(low=37.5, high=39), 1.0,
         "36 → 37.5 queries/s (+4.2%): not distinguishable; it is within the distance of the measured rates"),
    ],
)  # fmt: skip
def test_the_sentence_states_whether_the_candidate_is_faster(
    first: Best, second: Best, noise: float, sentence: str
) -> None:
    def with_slower_repetition(record: BenchRecord) -> BenchRecord:
        again = record.runs[-1]
        assert again.tpot is not None
        slower = again.tpot.model_copy(update={"mean": again.tpot.mean * noise})
        return record.model_copy(update={"runs": [*record.runs[:-1], again.model_copy(update={"tpot": slower})]})

    comparison = compare_pair(with_slower_repetition(bench("a", best=first)), bench("b", best=second))
    assert comparison.lines[0] == f"best rate within limits: {sentence}"
    assert comparison.sentence == f"b against a: {'; '.join(comparison.lines)}"


def test_single_runs_are_not_tested_against_noise() -> None:
    first, second = (bench(label, runs=[bench_run(1, None, speed)], best=Best(low=1, high=None))
                for label, speed in (("slow", 40), ("fast", 20)))  # fmt: skip
    comparison = compare_pair(first, second)
    assert comparison.sentence.startswith(
        "fast against slow: Offline: 5,120 → 2,560 tokens/s (-50.0%): slower; "
        "not tested against noise, because neither bench repeats a run"
    )
    assert (len(comparison.slower_than(0.49)), len(comparison.slower_than(0.51))) == (1, 0)


def test_rates_are_compared_per_accelerator_if_their_number_differs() -> None:
    comparison = compare_pair(
        bench("a", best=Best(low=36, high=38)), bench("b", accelerators=2, best=Best(low=60, high=62))
    )
    assert "36 → 30 queries/s per accelerator (-16.7%): slower" in comparison.sentence
    assert comparison.measures == []
    assert comparison.best is not None
    assert comparison.best.is_different
    assert comparison.slower_than(0.16) == [comparison.best]


def test_a_faster_first_token_is_an_improvement() -> None:
    def with_faster_first_token(record: BenchRecord) -> BenchRecord:
        runs = list(record.runs)
        for place, run in enumerate(runs):
            if run.ttft is not None:
                ttft = run.ttft.model_copy(update={"mean": run.ttft.mean / 1.2})
                runs[place] = run.model_copy(update={"ttft": ttft})
        return record.model_copy(update={"runs": runs})

    comparison = compare_pair(bench("a"), with_faster_first_token(bench("b")))
    assert [measure.name for measure in comparison.measures if measure.is_different] == ["mean TTFT at 4 equal loads"]
    assert "ms (-16.7%; median +0.0%): faster; mean TTFT of 4 equal runs" in comparison.sentence
    assert comparison.slower_than(0) == []


def test_benches_that_began_at_other_times_and_under_other_load_state_it() -> None:
    def with_circumstances(record: BenchRecord, minutes: int, contention: float) -> BenchRecord:
        update = {"start_time_ns": 1 + minutes * 60_000_000_000, "contention": contention}
        return record.model_copy(update={"runs": [run.model_copy(update=update) for run in record.runs]})

    base = with_circumstances(bench("a"), 0, 0.05)
    assert "the benches began 15 min apart" in compare_pair(base, with_circumstances(bench("b"), 15, 0.05)).sentence
    loaded = compare_pair(base, with_circumstances(bench("b"), 5, 0.40)).sentence
    assert "other processes used 5% of the cores' time in a and 40% in b" in loaded
    assert "apart" not in loaded


def test_an_undecided_change_names_the_command_that_decides() -> None:
    targets = (bench("a", target="http://a"), bench("b", target="http://b"))
    assert compare_pair(*targets).lines[-1].endswith(" ab http://a http://b")
    served = (bench("a", metadata={"serve": "one"}), bench("b", metadata={"serve": "two"}))
    assert compare_pair(*served).lines[-1].endswith(' ab --serve "one" --serve "two"')


def count_different_pairs(speed: float, *, of_run: float, like: bool, repeats: int) -> int:
    """Count the pairs of ten that are called different, if the second engine has this speed."""
    rng, count = random.Random(f"{speed} {of_run}"), 0
    for _ in range(10):
        base = simulate_bench("a", speed=1, noise=0.05, rng=rng, of_run=of_run, repeats=repeats)
        rates = list(dict.fromkeys(run.asked_qps for run in base.runs)) if like else ()
        candidate = simulate_bench("b", speed=speed, noise=0.05, rng=rng, of_run=of_run, like=rates, repeats=repeats)
        comparison = compare_pair(base, candidate)
        count += any(
            measure is not None and measure.is_different for measure in (comparison.best, *comparison.measures)
        )
    return count


@pytest.mark.parametrize(
    ("of_run", "like", "repeats"), [(0.0, False, 1), (0.02, True, 3)], ids=["one-repeated-rate", "noisy-runs"]
)
def test_noise_is_not_reported_and_a_difference_of_a_tenth_is(of_run: float, like: bool, repeats: int) -> None:
    """The noise is 5% per query, and optionally 2% per run."""
    assert count_different_pairs(1.0, of_run=of_run, like=like, repeats=repeats) <= 1
    assert count_different_pairs(0.9, of_run=of_run, like=like, repeats=repeats) >= 9
    assert count_different_pairs(1.1, of_run=of_run, like=like, repeats=repeats) >= 9


def test_noise_of_runs_is_not_reported_with_one_repeated_rate() -> None:
    assert count_different_pairs(1.0, of_run=0.02, like=True, repeats=1) <= 1


def with_tpot(record: BenchRecord, factors: dict[int, float]) -> BenchRecord:
    """Return a bench whose runs have their mean TPOT multiplied by the factor of their number."""
    runs = [
        run if run.tpot is None else run.model_copy(
            update={"tpot": run.tpot.model_copy(update={"mean": run.tpot.mean * factors.get(run.number, 1.0)})}
        )
        for run in record.runs
    ]  # fmt: skip
    return record.model_copy(update={"runs": runs})


def test_noise_at_another_load_does_not_count() -> None:
    """Both benches repeat 36 queries/s with 0% noise. The base also repeats 99 queries/s, with much noise."""
    runs = [*bench("a").runs, bench_run(7, 99.0), bench_run(8, 99.0)]
    comparison = compare_pair(with_tpot(bench("a", runs=runs), {7: 2.0}), bench("b"))
    (tpot,) = (measure for measure in comparison.measures if measure.name.startswith("mean TPOT"))
    assert tpot.noise == pytest.approx(0.01, abs=1e-3)
    assert "equal runs at 36 queries/s" in tpot.reason
