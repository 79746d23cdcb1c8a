"""LoadGen's random choices and counts before its start. test_loadgen_runs compares the replay with LoadGen."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.benchmark import LOADGEN_SCENARIO, Scenario
from runs.benchmarks import BENCHMARKS
from runs.loadgen import schedule
from runs.loadgen.counts import CountSettings, count_run, settings_of
from runs.loadgen.schedule import OrderSettings, issue_order, poisson_offsets_ns, shuffled_library
from runs.rounds import CURRENT_ROUND
from tests.conftest import ROOT

SEEDS = CURRENT_ROUND.seeds


def test_the_shuffled_library_equals_that_of_loadgen() -> None:
    assert shuffled_library(SEEDS.qsl_rng_seed, 100)[:8].tolist() == [1, 5, 13, 64, 11, 37, 58, 70]


@given(count=st.integers(0, 400), seed=st.integers(0, 2**64 - 1))
def test_a_shuffled_library_has_each_sample_once(count: int, seed: int) -> None:
    assert sorted(shuffled_library(seed, count).tolist()) == list(range(count))


@settings(max_examples=50)
@given(
    scenario=st.sampled_from(["Offline", "Server", "SingleStream"]), size=st.integers(1, 60), repeats=st.integers(1, 4)
)
def test_permutations_issue_every_sample_equally_often(scenario: str, size: int, repeats: int) -> None:
    loaded = np.arange(size, dtype=np.int32) * 3
    order = issue_order(loaded, size * repeats, OrderSettings(scenario, False, SEEDS.sample_index_rng_seed, 100, True))
    assert [int(np.count_nonzero(order == index)) for index in loaded] == [repeats] * size


def test_only_the_lower_half_of_a_seed_matters() -> None:
    low = SEEDS.schedule_rng_seed & 0xFFFFFFFF
    assert np.array_equal(poisson_offsets_ns(low, 10, 50), poisson_offsets_ns(SEEDS.schedule_rng_seed, 10, 50))
    assert not np.array_equal(poisson_offsets_ns(low + 1, 10, 50), poisson_offsets_ns(low, 10, 50))


@given(qps=st.floats(0.01, 1e5), count=st.integers(0, 500))
def test_offsets_rise_from_zero(qps: float, count: int) -> None:
    offsets_ns = poisson_offsets_ns(SEEDS.schedule_rng_seed, qps, count)
    assert len(offsets_ns) == count
    assert count == 0 or offsets_ns[0] == 0
    assert np.all(np.diff(offsets_ns) >= 0)


def test_a_shorter_schedule_is_the_beginning_of_a_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result does not depend on earlier calls, or on the kept part of a schedule."""
    seed, longest = SEEDS.schedule_rng_seed, 3000
    offsets_ns = poisson_offsets_ns(seed, 22.5, longest)
    for count in (2, 3, 1000, 1024, 1025, 1026):
        assert np.array_equal(poisson_offsets_ns(seed, 22.5, count), offsets_ns[:count])
    monkeypatch.setattr(schedule, "_KEPT_GAPS", 1000)
    assert np.array_equal(poisson_offsets_ns(seed, 22.5, longest), offsets_ns)


def test_cached_orders_cannot_be_changed_by_a_caller() -> None:
    library = shuffled_library(SEEDS.qsl_rng_seed, 50)
    with pytest.raises(ValueError, match="read-only"):
        library[0] = 0
    settings_ = OrderSettings("Server", False, SEEDS.sample_index_rng_seed, 100, True)
    order = issue_order(library, 100, settings_)
    expected = order.tolist()
    order[:] = 0
    assert issue_order(library, 100, settings_).tolist() == expected
    offsets_ns = poisson_offsets_ns(SEEDS.schedule_rng_seed, 10, 50)
    last_ns = int(offsets_ns[-1])
    offsets_ns[:] = 0
    assert poisson_offsets_ns(SEEDS.schedule_rng_seed, 10, 50)[-1] == last_ns


def settings_for(scenario: Scenario, key: str, rows: int | None = None, **values: float) -> CountSettings:
    benchmark = BENCHMARKS[key]
    return settings_of(scenario, benchmark, CURRENT_ROUND, rows or benchmark.performance_samples, values.get)


# 22.5 queries/s was run completely. The other counts are those where the schedule of the round exceeds complete
# datasets.
@pytest.mark.parametrize(
    ("target_qps", "samples", "expected_s"),
    [(22, 13_368, 602), (22.075, 13_368, 600), (22.0752, 26_736, 1_199), (22.5, 26_736, 1_176), (44.1, 40_104, 906)],
)
def test_server_issues_complete_datasets(target_qps: float, samples: int, expected_s: float) -> None:
    count = count_run(settings_for("Server", "llama3_1-8b", target_qps=target_qps), "performance")
    assert count.samples == samples
    assert count.expected_s == pytest.approx(expected_s, abs=3)
    assert f"{samples // 13_368} whole dataset" in count.why


def test_offline_samples_follow_from_rate_and_minimum() -> None:
    def samples(key: str = "llama3_1-8b", rows: int | None = None, **values: float) -> int:
        return count_run(settings_for("Offline", key, rows, **values), "performance").samples

    assert samples(target_qps=20) == 13_368  # 13,200 wanted, below the minimum
    assert samples(target_qps=20.26) == 26_736  # 13,371 wanted
    assert samples("llama3_1-8b-edge", target_qps=1) == 5_000
    assert samples(rows=100) == 13_400
    assert samples(rows=100, min_query_count=10) == 700  # 1.1 × 600 s × 1/s = 660
    assert samples(rows=100, min_query_count=10, sample_concatenate_permutation=0) == 660


@pytest.mark.parametrize(("target_latency", "samples"), [(300, 5_000), (241, 5_000), (240, 10_000), (10, 125_000)])
def test_single_stream_adds_a_query_to_an_exact_multiple(target_latency: int, samples: int) -> None:
    count = count_run(settings_for("SingleStream", "llama3_1-8b-edge", target_latency=target_latency), "performance")
    assert count.samples == samples
    assert ("adds one to a whole number" in count.why) == (target_latency in (240, 10))


def test_an_accuracy_run_issues_each_sample_once() -> None:
    count = count_run(settings_for("Server", "llama3_1-8b", target_qps=66), "accuracy")
    assert (count.samples, round(count.expected_s)) == (13_368, 203)
    assert "target_qps" in count.why
    assert count_run(settings_for("SingleStream", "llama3_1-8b-edge", target_latency=100), "accuracy").expected_s == 500


def test_an_audit_without_duration_issues_its_minimum() -> None:
    values = {"min_duration": 0, "min_query_count": 100, "sample_concatenate_permutation": 0}
    keys: dict[Scenario, str] = {
        "Offline": "llama3_1-8b", "Server": "llama3_1-8b", "SingleStream": "llama3_1-8b-edge",
    }  # fmt: skip
    for scenario, key in keys.items():
        assert count_run(settings_for(scenario, key, **values), "performance").samples == 100


READ_SETTINGS = """
import json, sys
import mlperf_loadgen as lg
key, scenario, conf = sys.argv[1:]
settings = lg.TestSettings()
settings.scenario = getattr(lg.TestScenario, scenario)
assert settings.FromConfig(conf, key, scenario, 1) == 0
print(json.dumps({
    "min_duration_ms": settings.min_duration_ms,
    "min_query_count": settings.min_query_count,
    "override": settings.performance_sample_count_override,
    "permutation": bool(settings.sample_concatenate_permutation),
    "offline_qps": settings.offline_expected_qps,
    "server_qps": settings.server_target_qps,
    "latency_ms": settings.single_stream_expected_latency_ns / 1e6,
    "seed": settings.schedule_rng_seed,
}))
"""


@pytest.mark.parametrize(
    ("scenario", "key"), [(scenario, key) for key, value in BENCHMARKS.items() for scenario in value.scenarios]
)
def test_defaults_equal_those_compiled_into_loadgen(scenario: Scenario, key: str, tmp_path: Path) -> None:
    conf = tmp_path / "user.conf"
    conf.write_text("")
    done = subprocess.run(
        [sys.executable, "-c", READ_SETTINGS, key, LOADGEN_SCENARIO[scenario], str(conf)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    compiled = json.loads(done.stdout)
    loadgen_settings = settings_for(scenario, key)
    assert loadgen_settings.min_duration_ms == compiled["min_duration_ms"]
    assert loadgen_settings.min_query_count == compiled["min_query_count"]
    assert loadgen_settings.set_size == compiled["override"]
    assert loadgen_settings.equal_issue == compiled["permutation"]
    assert loadgen_settings.schedule_rng_seed == compiled["seed"]
    if LOADGEN_SCENARIO[scenario] == "SingleStream":
        assert loadgen_settings.target_latency_ms == compiled["latency_ms"]
    else:
        assert loadgen_settings.target_qps == compiled["offline_qps" if scenario == "Offline" else "server_qps"]
