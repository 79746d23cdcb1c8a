"""Benchmarks of the harness and tables of the rounds. Some tests compare them with mlcommons/inference if it exists."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from runs.benchmark import SCENARIOS, Target
from runs.benchmarks import BENCHMARKS, DIRECTORIES, SUBMISSIONS, default_benchmark, submitted_benchmark
from runs.rounds import CURRENT_ROUND, ROUNDS, TABLES, score_patterns, table_of
from tests.support.published import CHECKOUT, needs_checkout
from tools.make_round_tables import CONF_COMMITS, EQUAL_ISSUE_COMMITS, SUITES, Table, written

ENTRIES = [(name, benchmark) for name in ROUNDS for benchmark in table_of(name).benchmarks]
# Lines of the reference evaluations, by the score in them
LINES = {
    "acc": ("accuracy=76.456%, good=38228, total=50000", '{"accuracy": 76.4, "total": 50000}'),
    "mAP": ("mAP=37.330%", "{'Cyclist': [48.84], 'Total': 54.256218}"),
    "F1": ('{"exact_match": 83.67, "f1": 90.87}',),
    "ACCURACY": ("Word Error Rate: 2.16%, accuracy=97.8339%",),
    "AUC": ("AUC=80.233%, accuracy=96.606%, good=86111793",),
    "DICE": ("Accuracy: mean = 0.86112, kidney = 0.9346, tumor = 0.7877",),
    "ROUGE1": ("{'rouge1': '38.7792'}", "{'rouge1': 44.4312, 'rouge2': 22.0352}"),
    "ROUGE2": ("{'rouge2': '15.9'}",),
    "ROUGEL": ("{'rouge2': 15.9, 'rougeL': 24.5}",),
    "ROUGELSUM": ("{'rougeLsum': '35.793'}",),
    "GEN_LEN": ("{'gen_len': 8167644}",),
    "TOKENS_PER_SAMPLE": ("{'tokens_per_sample': 294.45}",),
    "CLIP_SCORE": ("Accuracy Results: {'FID_SCORE': '23.9', 'CLIP_SCORE': '31.7'}",),
    "FID_SCORE": ("Accuracy Results: {'FID_SCORE': '23.9', 'CLIP_SCORE': '31.7'}",),
    "gsm8k_accuracy": ("{'rouge1': 45.2, 'gsm8k': 73.2, 'mbxp': 59.9}",),
    "mbxp_accuracy": ("{'rouge1': 45.2, 'gsm8k': 73.2, 'mbxp': 59.9}",),
    "exact_match": ("{'exact_match': 81.4, 'tokens_per_sample': 3643.2}",),
    "vbench_score": ("{'vbench_score': 70.5}",),
    "F1_HIERARCHICAL": ('{"precision": 0.8, "f1": 0.7903}',),
    "DLRM_NE": ("metric/lifetime_ne/rating: 0.866",),
    "DLRM_ACC": ("metric/lifetime_accuracy/rating: 0.696",),
    "DLRM_AUC": ("metric/lifetime_gauc/rating: 0.786",),
    "E2E_ACCURACY": ("Accuracy: 33.95",),
}


@pytest.mark.parametrize(("name", "benchmark"), ENTRIES)
def test_each_benchmark_entry_is_complete_with_sources(name: str, benchmark: str) -> None:
    entry = table_of(name).benchmarks[benchmark]
    fields = set(entry.model_fields_set) - {"sources"}
    assert fields == set(entry.sources)
    for source in entry.sources.values():
        for place in source.split():
            file, _, lines = place.partition(":")
            assert file in table_of(name).files
            assert all(int(line) > 0 for line in lines.split(","))
    assert entry.scenarios <= {*SCENARIOS, "MultiStream"}
    assert entry.scenarios
    for scenario in entry.scenarios:
        assert entry.targets_of(scenario)
        assert set(entry.targets_of(scenario)) <= set(score_patterns())
        assert entry.accuracy_samples_of(scenario) > 0


def test_each_supported_round_has_a_table() -> None:
    assert {path.stem for path in TABLES.glob("v*.json")} == set(ROUNDS)
    assert set(CONF_COMMITS) == set(EQUAL_ISSUE_COMMITS) == set(ROUNDS)
    assert all(table_of(name).round == name for name in ROUNDS)


def test_missing_scenarios_of_a_benchmark_are_named() -> None:
    llama = table_of("v6.1").benchmarks["llama2-70b-99.9"]
    assert llama.missing(["Offline"], "datacenter") == ["Interactive or Server"]
    assert llama.missing(["Offline", "Interactive"], "datacenter") == []
    assert table_of("v5.0").benchmarks["llama2-70b-99.9"].missing(["Offline"], "datacenter") == ["Server"]
    yolo = table_of("v6.0").benchmarks["yolo-95"]
    assert yolo.missing(["SingleStream", "Offline"], "edge") == ["MultiStream"]
    assert yolo.model == table_of("v6.0").benchmarks["yolo-99"].model


def test_values_may_differ_by_scenario() -> None:
    qwen = table_of("v6.1").benchmarks["qwen3-vl-235b-a22b"]
    assert (qwen.accuracy_samples_of("Interactive"), qwen.accuracy_samples_of("Offline")) == (8000, 48289)
    assert qwen.targets_of("Interactive") != qwen.targets_of("Server")
    gpt = table_of("v6.0").benchmarks["gpt-oss-120b"]
    assert (gpt.data_set, gpt.accuracy_samples_of("Server")) == (6396, 4395)
    assert gpt.keys_of("Interactive") == ("gpt-oss-120b-interactive",)


@pytest.mark.parametrize("score", LINES)
def test_each_score_line_of_an_evaluation_is_read(score: str) -> None:
    for line in LINES[score]:
        match = score_patterns()[score].match(line)
        assert float(match[1]) > 0
    assert not score_patterns()[score].match(f"x{score}=np.float64(1.0)")


def test_each_score_has_an_example_line() -> None:
    assert set(LINES) == set(score_patterns())


@pytest.mark.parametrize("key", BENCHMARKS)
@pytest.mark.parametrize("name", [name for name in ROUNDS if name != "v5.0"])
def test_registered_benchmarks_equal_their_table_entries(key: str, name: str) -> None:
    """Without a named round, the numbers of the current round judge a result."""
    benchmark, table = BENCHMARKS[key], table_of(name)
    entry = table.benchmarks[benchmark.submission_name]
    # Fields without checked numbers
    unchecked: dict[str, Any] = {"sources": {}, "audit_settings": {}, "rules_differ": {}}
    assert entry.model_copy(update=unchecked) == benchmark.entry.model_copy(update=unchecked)
    assert (table.min_duration_ms, entry.max_tokens["accuracy"]) == (
        benchmark.min_duration_ms,
        benchmark.sampling["accuracy"].max_tokens,
    )
    assert all(key in entry.keys_of(scenario) for scenario in benchmark.scenarios)
    targets = {score.lower(): target for score, target in benchmark.targets.items() if score != "gen_num"}
    of_table = {score.lower(): limits for score, limits in entry.targets_of("Offline").items()}
    assert {score: (value.low, value.high) for score, value in targets.items()} == {
        score: (limits.low, limits.high) for score, limits in of_table.items()
    }


# Comparison with the official files -----------------------------------------------------------------------------------


def constants() -> dict[str, Any]:
    return runpy.run_path(str(Path(CHECKOUT) / "tools/submission/submission_checker/constants.py"))


@needs_checkout
@pytest.mark.parametrize("name", ROUNDS)
def test_each_table_equals_the_output_of_its_script(name: str) -> None:
    path = TABLES / f"{name}.json"
    before = json.loads(path.read_text())
    assert written(Table(name, Path(CHECKOUT), None, before).make()) == path.read_text()


@needs_checkout
@pytest.mark.parametrize("name", ROUNDS)
def test_each_table_equals_the_numbers_of_the_official_checker(name: str) -> None:
    """The script reads the text of the file. This test executes the file."""
    config, table = constants()["MODEL_CONFIG"][name], table_of(name)
    assert set(table.benchmarks) == set(config["models"])
    for model, entry in table.benchmarks.items():
        for suite in SUITES:
            for field, scenarios in (("required", entry.required), ("optional", entry.optional)):
                wanted = config[f"{field}-scenarios-{suite}"].get(model, [])
                assert list(scenarios.get(suite.replace("-", ","), ())) == wanted
        assert entry.performance_samples == config["performance-sample-count"][model]
        limits = config["latency-constraint"].get(model, {})
        assert entry.latency_ns == limits or (model, entry.latency_ns) == ("dlrm-v3", {"Server": 80_000_000})
        assert list(entry.audits) == [f"TEST0{n}" for n in range(10) if model in config.get(f"models_TEST0{n}", ())]
        targets = config["accuracy-target"][model]
        for scenario, flat in (targets if isinstance(targets, dict) else {"Offline": targets}).items():
            low = {score: value.low for score, value in entry.targets_of(scenario).items() if value.low is not None}
            assert low == dict(zip(flat[::2], flat[1::2], strict=True))


@needs_checkout
def test_seeds_of_each_round_equal_those_of_the_official_checker() -> None:
    for name, mlperf_round in ROUNDS.items():
        assert constants()["MODEL_CONFIG"][name]["seeds"] == vars(mlperf_round.seeds)


@needs_checkout
@pytest.mark.parametrize("score", LINES)
def test_scores_are_read_as_by_the_official_checker(score: str) -> None:
    pattern = re.compile(constants()["ACC_PATTERN"][score])
    all_lines = [line for lines in LINES.values() for line in lines]
    for line in (*all_lines, *(line.upper() for line in all_lines), *(f"  {line}" for line in all_lines)):
        match, expected = score_patterns()[score].match(line), pattern.match(line)
        assert (match and match[1]) == (expected and expected[1]), line


def test_each_benchmark_directory_has_a_round() -> None:
    for directory, name in DIRECTORIES.items():
        rounds = [value for value in ROUNDS.values() if name in value.benchmarks]
        assert rounds
        assert [value for value in ROUNDS.values() if directory in value.benchmarks] == rounds


@needs_checkout
@pytest.mark.parametrize("key", BENCHMARKS)
def test_settings_equal_those_of_the_official_mlperf_conf(key: str) -> None:
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


def test_the_default_benchmark_of_a_scenario_is_the_first_one() -> None:
    assert default_benchmark("Interactive").loadgen_key == "llama3_1-8b-interactive"
    assert submitted_benchmark("llama2-70b-99.9", "Interactive").loadgen_key == "llama2-70b-interactive"
    assert submitted_benchmark("llama3_1-8b", "Server").loadgen_key == "llama3_1-8b"


def test_each_directory_name_means_one_benchmark() -> None:
    assert set(DIRECTORIES.values()) == set(SUBMISSIONS)
    for name, entry in SUBMISSIONS.items():
        assert {
            submitted_benchmark(name, scenario).submission_name for scenario in SCENARIOS if scenario in entry.scenarios
        } == {name}


def test_limits_of_scores_are_shares_of_the_reference() -> None:
    targets = {"score": Target(40.0, 0.99, None), "length": Target(100.0, 0.9, 1.1), "count": Target(7)}
    assert [(target.low, target.high) for target in targets.values()] == [
        (39.6, None),
        (90.0, 110.00000000000001),
        (7, 7),
    ]


def test_limits_that_differ_from_the_official_checker_are_named() -> None:
    table = table_of("v6.1")
    llama, unet = (table.benchmarks[name] for name in ("llama3.1-8b", "3d-unet-99"))
    assert "has 42.5566)" in llama.in_rules("Server", "accuracy-target ROUGE1")
    assert llama.in_rules("Server", "accuracy-target ROUGELSUM") == ""
    assert "has 42)" in unet.in_rules("Offline", "perf-sample-count")
