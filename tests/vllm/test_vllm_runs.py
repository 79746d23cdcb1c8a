"""Each scenario and mode with the real vLLM, started as by a user."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from compliance.report.run_section import run_section
from qsl.dataset import Dataset
from runs.benchmark import LOADGEN_SCENARIO
from runs.benchmarks import default_benchmark
from runs.errors import ExitCode
from runs.loadgen.detail_log import read_detail
from runs.record.manifest import read_manifest
from runs.record.observed import QueryTimes
from runs.rounds import CURRENT_ROUND
from tests.conftest import ROOT, run_here
from tests.support.engines.greedy import GreedyResponse
from tests.support.official import SAMPLING
from tests.vllm.vllm_runs import (
    OFFLINE,
    PERFORMANCE,
    RUNS,
    WITHOUT_CACHING,
    VllmRuns,
    check_responses,
    execute_run,
    for_each_run,
    run_command,
)  # fmt: skip

pytestmark = pytest.mark.vllm
LIMITS_MS = {"Server": (2000, 100), "Interactive": (500, 30)}


@for_each_run(RUNS)
def test_verdict_exit_code_and_reasons_agree(runs: VllmRuns, name: str) -> None:
    run, spec = runs[name], RUNS[name]
    good = "DONE" if spec.accuracy else "VALID"
    assert run.result["verdict"] in (good, "INVALID")
    assert (run.exit_code == ExitCode.OK) == (run.result["verdict"] == good)
    assert bool(run.result["reasons"]) == (run.result["verdict"] == "INVALID")
    assert run.result["disagreements"] == []
    assert read_detail(run.dir.detail).error_count == 0
    manifest = run.manifest
    assert (manifest["exit_code"], manifest["status"], manifest["error"]) == (run.exit_code, "finished", None)
    assert manifest["official"] is False
    reasons = " ".join(manifest["unofficial_reasons"])
    assert "bundled articles" in reasons
    assert "not Llama-3.1-8B" in reasons
    assert ("prefix caching" in reasons) == (name not in WITHOUT_CACHING)
    assert "not eligible for submission" in run.stdout


@for_each_run(RUNS)
def test_requested_options_are_in_effect(runs: VllmRuns, tiny_model: Path, dataset: Dataset, name: str) -> None:
    run, spec = runs[name], RUNS[name]
    manifest = read_manifest(run.dir.manifest)
    plan, configuration = manifest.plan, manifest.engine.configuration
    assert (plan.engine, plan.sampling, plan.sample_count) == ("vllm", SAMPLING, spec.samples)
    assert plan.loadgen_scenario == LOADGEN_SCENARIO[spec.scenario]
    assert plan.loadgen_key == default_benchmark(spec.scenario).loadgen_key
    assert plan.dataset_sha256 == dataset.sha256
    assert run.result["scenario"] == spec.scenario
    assert run.result["mode"] == ("AccuracyOnly" if spec.accuracy else "PerformanceOnly")
    in_force = run.result["in_force"]
    for seed in ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed"):
        assert in_force[seed] == getattr(CURRENT_ROUND.seeds, seed)
    limits = [limit and limit * 1_000_000 for limit in LIMITS_MS.get(spec.scenario, (None, None))]
    assert [in_force["ttft_limit_ns"], in_force["tpot_limit_ns"]] == limits
    options = {"model": plan.model_path, **plan.engine_options}
    assert {option: configuration[option] for option in options} == options
    assert configuration["environment"]["OMP_NUM_THREADS"] == "1"  # the value of the user takes precedence
    assert configuration["enable_prefix_caching"] is (name not in WITHOUT_CACHING)
    # Each article occurs at least twice, so a cache must have been useful.
    assert (manifest.observed.cached_prompt_tokens > 0) is (name not in WITHOUT_CACHING)
    weights = sha256((tiny_model / "model.safetensors").read_bytes()).hexdigest()
    assert run.manifest["observed"]["model"]["sha256"]["model.safetensors"] == weights


@for_each_run(RUNS)
def test_each_sample_has_the_greedy_response(
    runs: VllmRuns, dataset: Dataset, responses: list[GreedyResponse], name: str
) -> None:
    check_responses(runs[name], dataset, responses, RUNS[name].samples)
    times = runs[name].requests
    if RUNS[name].scenario == "Offline":
        assert (times.first_token_ns == -1).all()
    else:
        assert (times.first_token_ns > times.issue_ns).all()
        assert (times.complete_ns > times.first_token_ns).all()


@for_each_run(PERFORMANCE)
def test_reported_and_recomputed_numbers_exist(runs: VllmRuns, name: str) -> None:
    result, scenario = runs[name].result, RUNS[name].scenario
    assert result["derived_from"] == "requests"
    for source in ("reported", "derived"):
        # In SingleStream, LoadGen reports a latency. Its samples/s is the inverse of it.
        rate = "samples_per_second_without_overhead" if scenario == "SingleStream" else "samples_per_second"
        assert result[source][rate] > 0
        assert result[source]["tokens_per_second"] > 0
        assert result[source]["latency_ns"]["p99"] > 0
    for times in ("ttft_ns", "tpot_ns"):
        assert scenario == "Offline" or result["reported"][times]["p99"] > 0
    assert scenario != "Offline" or result["reported"]["ttft_ns"] is None


def test_a_server_run_with_too_few_queries_states_the_needed_number(runs: VllmRuns) -> None:
    run = runs["interactive-with-caching"]
    assert run.exit_code == ExitCode.NEGATIVE
    assert "459" in " ".join(run.result["reasons"])
    assert "INVALID" in run.stdout


@pytest.mark.parametrize("name", ["interactive-with-caching", "single-stream"])
def test_vllm_statistics_separate_prefill_and_decode(runs: VllmRuns, name: str) -> None:
    run = runs[name]
    times = QueryTimes(**run.manifest["observed"]["engines"][0]["query_times"])
    assert times.queries == len(run.requests)
    ours_s = float((run.requests.complete_ns - run.requests.issue_ns).sum()) / 1e9
    assert min(times.prefill_s, times.decode_s) > 0
    assert times.queued_s + times.prefill_s + times.decode_s < ours_s
    assert run_section(run.dir.root, "leg", name).manifest.observed.query_times == times


@pytest.mark.parametrize(
    ("argument", "starts"),
    [("nonsense=1", True), ("tensor_parallel_size=many", False), ("data_parallel_size=0", False), ("model=x", False)],
)
def test_an_invalid_engine_argument_is_bad_input(tiny_model: Path, tmp_path: Path, argument: str, starts: bool) -> None:
    """Arguments that the plan depends on are checked before the start. vLLM refuses the others."""
    run_dir = tmp_path / "run"
    arguments = ["--scenario", "Offline", "--engine-arg", argument]
    run = execute_run(run_command(tiny_model, run_dir, OFFLINE, arguments), run_dir)
    assert run.exit_code == ExitCode.BAD_INPUT, run
    assert (argument.partition("=")[0] if starts else argument) in run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    assert run_dir.exists() is starts
    if starts:
        assert run.manifest["error"]["exit_code"] == ExitCode.BAD_INPUT
        assert not run.dir.detail.exists(), "LoadGen was never started"


def test_a_run_passes_from_configuration_to_gate(runs: VllmRuns, tmp_path: Path) -> None:
    run, db, rows = runs["offline"].dir.root, tmp_path / "results.sqlite", tmp_path / "rows.json"
    declaration = ("--declaration", ROOT / "configs" / "mechanism-baseline.yaml")
    assert run_here("store", "ingest", "--db", db, run, *declaration).code == ExitCode.OK
    rows.write_text(run_here("store", "export", "--db", db, "--format", "json").stdout)
    (row,) = json.loads(rows.read_text())
    assert row["kv_cache_dtype"] == "auto"
    for words in ((rows,), (run, *declaration)):
        judged = run_here("gate", *words, "--strict")
        assert judged.code == ExitCode.OK, judged.stdout
