"""Comparisons: conditions first, what changed, one sentence, and its noise over many pairs."""

import random
from typing import Any

import pytest

from runs.bench.bench_record import BenchRecord, Best, Conditions
from runs.bench.compare import Against, compare
from tests.support.bench_records import bench_record, bench_run
from tests.support.simulated_bench import simulated

EQUAL = {"data": "synthetic", "limits": "TTFT 2000 ms"}
RATES = (10.0, 20.0, 30.0, 36.0)


def bench(label: str, speed: float = 40.0, *, system: dict[str, Any] | None = None, **fields: Any) -> BenchRecord:
    """A bench at RATES, whatever the speed, with the last rate again."""
    runs = [bench_run(1, None, speed), *(bench_run(place, rate, speed) for place, rate in enumerate(RATES, start=2))]
    runs.append(bench_run(6, RATES[-1], speed, again=True))
    conditions = Conditions(equal=EQUAL, system=system or {"engine": "vllm"})
    return bench_record(label, **{"runs": runs, "conditions": conditions, **fields})


def against(base: BenchRecord, other: BenchRecord) -> Against:
    (found,) = compare([base, other]).against
    return found


def test_no_sentence_is_made_if_a_condition_differs() -> None:
    other = bench("b").model_copy(update={"conditions": Conditions(equal={**EQUAL, "data": "own"}, system={})})
    found = compare([bench("a"), other, bench("c")])
    assert not found.is_comparable
    assert found.unequal == {"data": ["synthetic", "own", "synthetic"]}
    assert found.against == []


def test_benches_without_an_equal_load_are_not_comparable() -> None:
    one, two = (bench(label, best=None, runs=[bench_run(1, rate)]) for label, rate in (("a", 10.0), ("b", 12.0)))
    assert compare([one, two]).unequal == {"loads": ["10 queries/s", "12 queries/s"]}
    failed = bench_run(1, 10.0).model_copy(update={"verdict": "failed"})
    assert not compare([one, bench("c", best=None, runs=[failed])]).is_comparable


def test_what_changed_is_listed_once_with_the_ratio() -> None:
    system = {"engine_options.slots": 4, "resolved.slots": 4, "resolved.blocks": 1}
    found = against(bench("a", system=system), bench("b", 54, best=None, system=dict.fromkeys(system, 16)))
    assert found.changed == [("slots", 4, 16), ("blocks", 1, 16)]
    assert found.change_text == "slots 4 → 16; blocks 1 → 16: 1.5 × tokens/s"
    assert against(bench("a"), bench("b")).change_text == "nothing in the recorded system: 1 × tokens/s"


def test_only_equal_loads_are_paired() -> None:
    other = bench("b", 50)
    other = other.model_copy(update={"runs": [*other.runs[:2], bench_run(9, 21.0, 50)]})
    assert against(bench("a"), other).pairs == [
        {"load": "Offline", "base": 1, "other": 1}, {"load": "10 queries/s", "base": 2, "other": 2},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "two", "noise", "sentence"),
    [
        (Best(low=36, high=38), Best(low=48, high=50), 1.0,
         "best rate within limits 36 → 48 queries/s (+33%), more than twice the difference between equal runs (0.0%)"),
        (Best(low=36, high=38), Best(low=36, high=38), 1.04,
         "(+0%), not distinguishable from the difference between two equal runs (6.0%)"),
        (Best(low=36, high=38), Best(low=37.5, high=39), 1.0,
         "(+4%), not distinguishable from the distance of the measured rates"),
    ],
)  # fmt: skip
def test_the_sentence(one: Best, two: Best, noise: float, sentence: str) -> None:
    def changed(record: BenchRecord) -> BenchRecord:
        again = record.runs[-1]
        assert again.tpot is not None
        slower = again.tpot.model_copy(update={"mean": again.tpot.mean * noise})
        return record.model_copy(update={"runs": [*record.runs[:-1], again.model_copy(update={"tpot": slower})]})

    found = against(changed(bench("a", best=one)), bench("b", best=two))
    assert found.sentence == f"b against a: {found.sentence[13:]}"
    assert found.sentence.endswith(sentence)


def test_single_runs_are_not_tested_against_noise() -> None:
    one, two = (bench(label, runs=[bench_run(1, None, speed)], best=Best(low=1, high=None))
                for label, speed in (("slow", 40), ("fast", 20)))  # fmt: skip
    found = against(one, two)
    assert found.sentence == (
        "fast against slow: 5,120 → 2,560 output tokens/s; speed at 1 equal load -50%; "
        "one run each: not tested against noise"
    )
    assert found.slower_by == pytest.approx(0.5)


def test_rates_are_per_accelerator_if_the_numbers_differ() -> None:
    found = against(bench("a", best=Best(low=36, high=38)), bench("b", accelerators=2, best=Best(low=60, high=62)))
    assert "36 → 30 queries/s per accelerator (-17%)" in found.sentence
    assert found.measures == []
    assert found.best is not None
    assert found.best.is_different
    assert found.slower_by == pytest.approx(1 / 6)


def test_a_faster_first_token_counts_even_if_the_speed_is_equal() -> None:
    def quicker(record: BenchRecord) -> BenchRecord:
        runs = list(record.runs)
        for place, run in enumerate(runs):
            if run.ttft is not None:
                ttft = run.ttft.model_copy(update={"mean": run.ttft.mean / 1.2})
                runs[place] = run.model_copy(update={"ttft": ttft})
        return record.model_copy(update={"runs": runs})

    found = against(bench("a"), quicker(bench("b")))
    assert [one.name for one in found.measures if one.is_different] == ["1 / TTFT"]
    assert found.sentence.endswith("; 1 / TTFT at 4 equal loads +20.0%, more than twice its noise (0.0%)")
    assert found.slower_by == 0


def told_apart(speed: float, *, of_run: float, like: bool) -> int:
    """How many of ten pairs of benches are called different, if the second engine has this speed."""
    rng, count = random.Random(f"{speed} {of_run}"), 0
    for _ in range(10):
        base = simulated("a", speed=1, noise=0.05, rng=rng, of_run=of_run)
        rates = list(dict.fromkeys(run.asked_qps for run in base.runs)) if like else ()
        found = against(base, simulated("b", speed=speed, noise=0.05, rng=rng, of_run=of_run, like=rates))
        count += any(one is not None and one.is_different for one in (found.best, *found.measures))
    return count


@pytest.mark.parametrize(("of_run", "like"), [(0.0, False), (0.02, True)], ids=["queries", "runs"])
def test_equal_benches_are_not_told_apart_and_a_tenth_is(of_run: float, like: bool) -> None:
    """Noise of 5% per query, or also of 2% per run."""
    assert told_apart(1.0, of_run=of_run, like=like) <= 1
    assert told_apart(0.9, of_run=of_run, like=like) >= 9
    assert told_apart(1.1, of_run=of_run, like=like) >= 9
