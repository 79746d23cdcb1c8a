"""Every scenario and mode through the front door with the real vLLM, each leg started as a user starts it."""

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from compliance.report.leg_section import leg_section
from qsl.dataset import Dataset
from runs.benchmark import LOADGEN_SCENARIO
from runs.benchmarks import default_benchmark
from runs.errors import ExitCode
from runs.record.manifest import read_manifest
from runs.record.observed import QueryTimes
from runs.rounds import CURRENT_ROUND
from tests.support.greedy import TIE, Answer
from tests.support.official import SAMPLING
from tests.support.vllm_legs import leg_command, run_leg
from tests.vllm.legs import LEGS, OFFLINE, PERFORMANCE, WITHOUT_CACHING, Legs, each

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


# The verdict ---------------------------------------------------------------------------------------------------------


@each(LEGS)
def test_exit_code_and_result_agree(legs: Legs, name: str) -> None:
    leg = legs[name]
    good = {False: "VALID", True: "DONE"}[LEGS[name].accuracy]
    assert leg.result["verdict"] in (good, "INVALID")
    assert (leg.exit_code == ExitCode.OK) == (leg.result["verdict"] == good)
    assert bool(leg.result["reasons"]) == (leg.result["verdict"] == "INVALID")
    assert leg.manifest["exit_code"] == leg.exit_code
    assert leg.manifest["status"] == "finished"
    assert leg.manifest["error"] is None


@each(LEGS)
def test_no_two_records_of_a_leg_disagree(legs: Legs, name: str) -> None:
    result = legs[name].result
    assert result["disagreements"] == []
    assert result["counts"]["errors"] == 0


@each(PERFORMANCE)
def test_the_numbers_are_both_reported_and_derived(legs: Legs, name: str) -> None:
    result = legs[name].result
    assert result["derived_from"] == "requests"
    for source in ("reported", "derived"):
        # Under SingleStream LoadGen reports a latency; its samples/s is the inverse of it.
        rate = "samples_per_second_without_overhead" if LEGS[name].scenario == "SingleStream" else "samples_per_second"
        assert result[source][rate] > 0
        assert result[source]["tokens_per_second"] > 0
        assert result[source]["latency_ns"]["p99"] > 0


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
    rows = dict(row for _, table in leg_section(leg.run.root, "leg", name, None).tables for row in table)
    assert all(rows[part].endswith(" ms a query") for part in ("waiting for vLLM", "prefill", "decode"))


def test_variables_that_shape_the_arithmetic_are_on_record(legs: Legs) -> None:
    manifest = legs["offline"].manifest
    assert manifest["engine"]["configuration"]["environment"]["OMP_NUM_THREADS"] == "1"  # the user's wins


# The samples ---------------------------------------------------------------------------------------------------------


@each(LEGS)
def test_every_sample_is_answered(legs: Legs, name: str) -> None:
    leg, spec = legs[name], LEGS[name]
    counts, requests = leg.result["counts"], leg.requests
    issued = len(requests)
    assert issued == counts["samples"] == counts["samples_expected"]
    assert set(requests.sample_index.tolist()) == set(range(spec.samples))
    assert issued % spec.samples == 0, "each sample equally often"
    assert requests.seq.tolist() == list(range(issued))


@each(LEGS)
def test_token_counts_keep_the_limits(legs: Legs, dataset: Dataset, name: str) -> None:
    requests = legs[name].requests
    assert requests.output_tokens.min() >= 2
    assert requests.output_tokens.max() == SAMPLING.max_tokens
    assert requests.output_tokens.min() < SAMPLING.max_tokens, "no answer ended at a stop id"
    prompts = [len(dataset.prompts[index]) for index in requests.sample_index]
    assert requests.prompt_tokens.tolist() == prompts
    at_limit = requests.output_tokens == SAMPLING.max_tokens
    assert all(reason == "stop" or full for reason, full in zip(requests.finish_reason, at_limit.tolist(), strict=True))


@each(LEGS)
def test_answers_are_those_of_greedy_decoding(legs: Legs, answers: list[Answer], name: str) -> None:
    """By hash, as performance legs keep no ids; answers with a tie on their way are left to the accuracy legs."""
    requests = legs[name].requests
    clear = {index for index, answer in enumerate(answers) if min(answer.margins) >= TIE}
    expected = {index: sha256(np.array(answers[index].ids, "<i4").tobytes()).hexdigest() for index in clear}
    compared = 0
    for index, digest in zip(requests.sample_index.tolist(), requests.output_sha256, strict=True):
        if index in clear:
            compared += 1
            assert digest == expected[index], f"sample {index}"
    assert compared >= len(requests) / 2


@each(LEGS)
def test_first_tokens_are_there_except_in_offline(legs: Legs, name: str) -> None:
    leg = legs[name]
    requests = leg.requests
    if LEGS[name].scenario == "Offline":
        assert (requests.first_token_ns == -1).all()
        return
    assert (requests.first_token_ns > requests.issue_ns).all()
    assert (requests.complete_ns > requests.first_token_ns).all()
    if not LEGS[name].accuracy:
        assert leg.result["reported"]["ttft_ns"]["p99"] > 0
        assert leg.result["reported"]["tpot_ns"]["p99"] > 0


def test_offline_reports_no_first_token_latency(legs: Legs) -> None:
    assert legs["offline"].result["reported"]["ttft_ns"] is None


# What was in force ---------------------------------------------------------------------------------------------------


@each(LEGS)
def test_loadgen_ran_what_was_asked(legs: Legs, name: str) -> None:
    leg, spec = legs[name], LEGS[name]
    assert leg.result["scenario"] == spec.scenario
    assert leg.manifest["plan"]["loadgen_scenario"] == LOADGEN_SCENARIO[spec.scenario]
    assert leg.result["mode"] == ("AccuracyOnly" if spec.accuracy else "PerformanceOnly")
    assert leg.manifest["plan"]["loadgen_key"] == default_benchmark(spec.scenario).loadgen_key
    seeds, in_force = CURRENT_ROUND.seeds, leg.result["in_force"]
    assert in_force["qsl_rng_seed"] == seeds.qsl_rng_seed
    assert in_force["sample_index_rng_seed"] == seeds.sample_index_rng_seed
    assert in_force["schedule_rng_seed"] == seeds.schedule_rng_seed


@pytest.mark.parametrize(
    ("name", "limits_ms"), [("server", (2000, 100)), ("interactive-with-caching", (500, 30)), ("offline", None)]
)
def test_the_limits_are_the_scenarios(legs: Legs, name: str, limits_ms: tuple[int, int] | None) -> None:
    in_force = legs[name].result["in_force"]
    found = in_force["ttft_limit_ns"], in_force["tpot_limit_ns"]
    assert found == (tuple(limit * 1_000_000 for limit in limits_ms) if limits_ms else (None, None))


@each(LEGS)
def test_engine_options_are_in_force(legs: Legs, name: str) -> None:
    manifest = read_manifest(legs[name].run.manifest)
    plan, configuration = manifest.plan, manifest.engine.configuration
    given = {"model": plan.model_path, **plan.engine_options}
    assert plan.engine == "vllm"
    assert {option: configuration[option] for option in given} == given
    assert plan.sampling == vars(SAMPLING)


@each(WITHOUT_CACHING)
def test_nothing_is_cached_across_queries(legs: Legs, name: str) -> None:
    manifest = legs[name].manifest
    assert manifest["engine"]["configuration"]["enable_prefix_caching"] is False
    assert manifest["observed"]["cached_prompt_tokens"] == 0


def test_prefix_caching_is_given_to_who_asks_and_makes_the_leg_unofficial(legs: Legs) -> None:
    leg = legs["interactive-with-caching"]
    assert leg.manifest["engine"]["configuration"]["enable_prefix_caching"] is True
    # Every article comes at least twice, so a cache must have been of use.
    assert len(leg.requests) >= 2 * 64
    assert leg.manifest["observed"]["cached_prompt_tokens"] > 0
    reasons = [reason for reason in leg.manifest["unofficial_reasons"] if "prefix caching" in reason]
    assert len(reasons) == 1
    assert reasons[0] in leg.stdout


@each(LEGS)
def test_a_try_out_is_never_official(legs: Legs, name: str) -> None:
    leg = legs[name]
    assert leg.manifest["official"] is False
    reasons = " ".join(leg.manifest["unofficial_reasons"])
    assert "bundled articles" in reasons
    assert "not Llama-3.1-8B" in reasons
    assert ("prefix caching" in reasons) == (name not in WITHOUT_CACHING)
    assert "not official" in leg.stdout


@each(LEGS)
def test_the_manifest_describes_model_and_data(legs: Legs, tiny_model: Path, dataset: Dataset, name: str) -> None:
    manifest = legs[name].manifest
    weights = tiny_model / "model.safetensors"
    assert manifest["observed"]["model"]["sha256"]["model.safetensors"] == sha256(weights.read_bytes()).hexdigest()
    assert manifest["plan"]["dataset_sha256"] == dataset.sha256
    assert manifest["plan"]["sample_count"] == LEGS[name].samples


# Refused before an engine starts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", ["nonsense=1", "max_num_seqs=many"])
def test_an_engine_argument_that_vllm_refuses_is_bad_input(tiny_model: Path, tmp_path: Path, argument: str) -> None:
    run_dir = tmp_path / "run"
    arguments = ["--scenario", "Offline", "--engine-arg", argument]
    leg = run_leg(leg_command(tiny_model, run_dir, OFFLINE, arguments), run_dir)
    assert leg.exit_code == ExitCode.BAD_INPUT, leg
    assert argument.partition("=")[0] in leg.stderr
    assert "Traceback" not in leg.stdout + leg.stderr
    assert leg.manifest["error"]["exit_code"] == ExitCode.BAD_INPUT
    assert leg.claims() == []
    assert not leg.run.detail.exists(), "LoadGen was never started"


@pytest.mark.parametrize("argument", ["tensor_parallel_size=many", "data_parallel_size=0", "model=elsewhere"])
def test_values_that_the_plan_depends_on_are_checked_before_anything_starts(
    tiny_model: Path, tmp_path: Path, argument: str
) -> None:
    run_dir = tmp_path / "run"
    arguments = ["--scenario", "Offline", "--engine-arg", argument]
    leg = run_leg(leg_command(tiny_model, run_dir, OFFLINE, arguments), run_dir)
    assert leg.exit_code == ExitCode.BAD_INPUT, leg
    assert argument in leg.stderr
    assert "Traceback" not in leg.stderr
    assert not run_dir.exists()
