"""Every scenario and mode through the front door with the real vLLM, each leg started as a user starts it."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from compliance.report.leg_section import leg_section
from qsl.dataset import Dataset
from runs.benchmark import LOADGEN_SCENARIO
from runs.benchmarks import default_benchmark
from runs.errors import ExitCode
from runs.loadgen.detail_log import read_detail
from runs.record.manifest import read_manifest
from runs.record.observed import QueryTimes
from runs.rounds import CURRENT_ROUND
from tests.conftest import ROOT, run_here
from tests.support.greedy import Answer
from tests.support.official import SAMPLING
from tests.vllm.legs import (
    LEGS,
    OFFLINE,
    PERFORMANCE,
    WITHOUT_CACHING,
    Legs,
    check_responses,
    each,
    leg_command,
    run_leg,
)  # fmt: skip

pytestmark = pytest.mark.vllm
LIMITS_MS = {"Server": (2000, 100), "Interactive": (500, 30)}


@each(LEGS)
def test_a_leg_says_the_same_everywhere(legs: Legs, name: str) -> None:
    leg, spec = legs[name], LEGS[name]
    good = "DONE" if spec.accuracy else "VALID"
    assert leg.result["verdict"] in (good, "INVALID")
    assert (leg.exit_code == ExitCode.OK) == (leg.result["verdict"] == good)
    assert bool(leg.result["reasons"]) == (leg.result["verdict"] == "INVALID")
    assert leg.result["disagreements"] == []
    assert read_detail(leg.run.detail).error_count == 0
    manifest = leg.manifest
    assert (manifest["exit_code"], manifest["status"], manifest["error"]) == (leg.exit_code, "finished", None)
    assert manifest["official"] is False
    reasons = " ".join(manifest["unofficial_reasons"])
    assert "bundled articles" in reasons
    assert "not Llama-3.1-8B" in reasons
    assert ("prefix caching" in reasons) == (name not in WITHOUT_CACHING)
    assert "not official" in leg.stdout


@each(LEGS)
def test_what_was_asked_was_in_force(legs: Legs, tiny_model: Path, dataset: Dataset, name: str) -> None:
    leg, spec = legs[name], LEGS[name]
    manifest = read_manifest(leg.run.manifest)
    plan, configuration = manifest.plan, manifest.engine.configuration
    assert (plan.engine, plan.sampling, plan.sample_count) == ("vllm", vars(SAMPLING), spec.samples)
    assert plan.loadgen_scenario == LOADGEN_SCENARIO[spec.scenario]
    assert plan.loadgen_key == default_benchmark(spec.scenario).loadgen_key
    assert plan.dataset_sha256 == dataset.sha256
    assert leg.result["scenario"] == spec.scenario
    assert leg.result["mode"] == ("AccuracyOnly" if spec.accuracy else "PerformanceOnly")
    in_force = leg.result["in_force"]
    for seed in ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed"):
        assert in_force[seed] == getattr(CURRENT_ROUND.seeds, seed)
    limits = [limit and limit * 1_000_000 for limit in LIMITS_MS.get(spec.scenario, (None, None))]
    assert [in_force["ttft_limit_ns"], in_force["tpot_limit_ns"]] == limits
    given = {"model": plan.model_path, **plan.engine_options}
    assert {option: configuration[option] for option in given} == given
    assert configuration["environment"]["OMP_NUM_THREADS"] == "1"  # the user's wins
    assert configuration["enable_prefix_caching"] is (name not in WITHOUT_CACHING)
    # Every article comes at least twice, so a cache must have been of use.
    assert (manifest.observed.cached_prompt_tokens > 0) is (name not in WITHOUT_CACHING)
    weights = sha256((tiny_model / "model.safetensors").read_bytes()).hexdigest()
    assert leg.manifest["observed"]["model"]["sha256"]["model.safetensors"] == weights


@each(LEGS)
def test_every_sample_has_the_answer_of_greedy_decoding(
    legs: Legs, dataset: Dataset, answers: list[Answer], name: str
) -> None:
    check_responses(legs[name], dataset, answers, LEGS[name].samples)
    times = legs[name].requests
    if LEGS[name].scenario == "Offline":
        assert (times.first_token_ns == -1).all()
    else:
        assert (times.first_token_ns > times.issue_ns).all()
        assert (times.complete_ns > times.first_token_ns).all()


@each(PERFORMANCE)
def test_the_numbers_are_both_reported_and_derived(legs: Legs, name: str) -> None:
    result, scenario = legs[name].result, LEGS[name].scenario
    assert result["derived_from"] == "requests"
    for source in ("reported", "derived"):
        # Under SingleStream LoadGen reports a latency; its samples/s is the inverse of it.
        rate = "samples_per_second_without_overhead" if scenario == "SingleStream" else "samples_per_second"
        assert result[source][rate] > 0
        assert result[source]["tokens_per_second"] > 0
        assert result[source]["latency_ns"]["p99"] > 0
    for times in ("ttft_ns", "tpot_ns"):
        assert scenario == "Offline" or result["reported"][times]["p99"] > 0
    assert scenario != "Offline" or result["reported"]["ttft_ns"] is None


def test_few_server_queries_are_invalid_and_the_reason_says_how_many_are_needed(legs: Legs) -> None:
    leg = legs["interactive-with-caching"]
    assert leg.exit_code == ExitCode.NEGATIVE
    assert "459" in " ".join(leg.result["reasons"])
    assert "INVALID" in leg.stdout


@pytest.mark.parametrize("name", ["interactive-with-caching", "single-stream"])
def test_vllms_own_statistics_tell_prefill_from_decode(legs: Legs, name: str) -> None:
    leg = legs[name]
    times = QueryTimes(**leg.manifest["observed"]["engines"][0]["query_times"])
    assert times.queries == len(leg.requests)
    ours_s = float((leg.requests.complete_ns - leg.requests.issue_ns).sum()) / 1e9
    assert min(times.prefill_s, times.decode_s) > 0
    assert times.queued_s + times.prefill_s + times.decode_s < ours_s
    assert leg_section(leg.run.root, "leg", name).manifest.observed.query_times == times


@pytest.mark.parametrize(
    ("argument", "starts"),
    [("nonsense=1", True), ("tensor_parallel_size=many", False), ("data_parallel_size=0", False), ("model=x", False)],
)
def test_an_engine_argument_that_is_none_is_bad_input(
    tiny_model: Path, tmp_path: Path, argument: str, starts: bool
) -> None:
    """Those that the plan depends on are checked before anything starts; the others vLLM refuses."""
    run_dir = tmp_path / "run"
    arguments = ["--scenario", "Offline", "--engine-arg", argument]
    leg = run_leg(leg_command(tiny_model, run_dir, OFFLINE, arguments), run_dir)
    assert leg.exit_code == ExitCode.BAD_INPUT, leg
    assert (argument.partition("=")[0] if starts else argument) in leg.stderr
    assert "Traceback" not in leg.stdout + leg.stderr
    assert run_dir.exists() is starts
    if starts:
        assert leg.manifest["error"]["exit_code"] == ExitCode.BAD_INPUT
        assert not leg.run.detail.exists(), "LoadGen was never started"


def test_configuration_to_gate(legs: Legs, tmp_path: Path) -> None:
    run, db, rows = legs["offline"].run.root, tmp_path / "results.sqlite", tmp_path / "rows.json"
    declaration = ("--declaration", ROOT / "configs" / "mechanism-baseline.yaml")
    assert run_here("store", "ingest", "--db", db, run, *declaration).code == ExitCode.OK
    rows.write_text(run_here("store", "export", "--db", db, "--format", "json").stdout)
    (row,) = json.loads(rows.read_text())
    assert row["kv_cache_dtype"] == "auto"
    for words in ((rows,), (run, *declaration)):
        judged = run_here("gate", *words, "--strict")
        assert judged.code == ExitCode.OK, judged.stdout
