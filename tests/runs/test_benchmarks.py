"""The benchmarks' numbers against the official files themselves, where there is a checkout of mlcommons/inference."""

import re
from pathlib import Path

import pytest

from runs.benchmark import SCENARIOS, Target
from runs.benchmarks import BENCHMARKS, DIRECTORIES, SUBMISSIONS, default_benchmark, submitted_benchmark
from runs.rounds import CURRENT_ROUND, ROUNDS
from tests.support.published import CHECKOUT, needs_checkout


def test_a_round_names_our_benchmarks_too() -> None:
    for directory, name in DIRECTORIES.items():
        rounds = [one for one in ROUNDS.values() if name in one.benchmarks]
        assert rounds
        assert [one for one in ROUNDS.values() if directory in one.benchmarks] == rounds


@needs_checkout
@pytest.mark.parametrize("key", BENCHMARKS)
def test_numbers_of_loadgens_own_settings(key: str) -> None:
    text = (Path(CHECKOUT) / "loadgen/mlperf.conf").read_text()
    lines = re.findall(rf"^{re.escape(key)}\.(\S+?)\s*=\s*(\d+)", text, re.MULTILINE)
    settings, benchmark = {name: int(value) for name, value in lines}, BENCHMARKS[key]
    assert settings["*.performance_sample_count_override"] == benchmark.performance_samples
    assert settings.get("Offline.min_query_count") == benchmark.offline_min_samples
    assert (settings["*.use_token_latencies"], settings["*.sample_concatenate_permutation"]) == (1, 1)
    limits = benchmark.limits
    in_file = (settings.get("Server.ttft_latency"), settings.get("Server.tpot_latency"))
    assert in_file == ((limits.ttft_ms, limits.tpot_ms) if limits else (None, None))
    for name, seed in vars(CURRENT_ROUND.seeds).items():
        assert re.search(rf"^\*\.\*\.{name} = {seed}$", text, re.MULTILINE)


def test_a_scenario_without_a_key_is_the_first_benchmarks() -> None:
    assert default_benchmark("Interactive").loadgen_key == "llama3_1-8b-interactive"
    assert submitted_benchmark("llama2-70b-99.9", "Interactive").loadgen_key == "llama2-70b-interactive"
    assert submitted_benchmark("llama3_1-8b", "Server").loadgen_key == "llama3_1-8b"


def test_directories_name_one_benchmark_each() -> None:
    assert set(DIRECTORIES.values()) == set(SUBMISSIONS)
    for name, entry in SUBMISSIONS.items():
        assert {
            submitted_benchmark(name, scenario).submission_name for scenario in SCENARIOS if scenario in entry.scenarios
        } == {name}


def test_shares_follow_another_reference() -> None:
    targets = {"score": Target(40.0, 0.99, None), "length": Target(100.0, 0.9, 1.1), "count": Target(7)}
    assert [(one.low, one.high) for one in targets.values()] == [(39.6, None), (90.0, 110.00000000000001), (7, 7)]
