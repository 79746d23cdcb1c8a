"""Reasons against the eligibility of a run, and the reference scores that apply to it."""

from dataclasses import replace
from pathlib import Path

import pytest

from qsl.embedded import articles
from qsl.embedded.articles import Baseline
from qsl.model_files import ModelFacts
from runs.benchmark import Benchmark, Scenario
from runs.benchmarks import BENCHMARKS
from runs.files.writing import sha256_of
from runs.loadgen.conf_lines import Setting
from runs.loadgen.user_conf import check_conf, read_conf_text
from runs.record.official_inputs import model_reasons
from scenarios.launch.loadgen_conf import settings_reasons
from scenarios.launch.manifest_writer import target_for
from scenarios.launch.plan import PreparedRun, data_reasons, prepare
from scenarios.launch.run_config import make_config

DATACENTER = BENCHMARKS["llama3_1-8b"]
EDGE = BENCHMARKS["llama3_1-8b-edge"]
INTERACTIVE = BENCHMARKS["llama3_1-8b-interactive"]
ROOT = Path(__file__).resolve().parents[3]

LLAMA = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def settings_of(name: str, benchmark: Benchmark, scenario: Scenario) -> list[Setting]:
    judged = check_conf(read_conf_text(ROOT / name, ""), ROOT / name, benchmark, scenario)
    judged.refuse()
    return judged.settings


def test_the_shipped_user_conf_is_eligible() -> None:
    for benchmark in BENCHMARKS.values():
        for scenario in benchmark.scenarios:
            assert list(settings_reasons(settings_of("user.conf", benchmark, scenario), benchmark, scenario)) == []


def test_the_embedded_conf_is_not_eligible() -> None:
    assert list(settings_reasons(settings_of("configs/embedded.conf", DATACENTER, "Offline"), DATACENTER, "Offline"))


@pytest.mark.parametrize(
    ("benchmark", "scenario", "setting", "value", "reason"),
    [
        (DATACENTER, "Offline", "*.*.min_duration", "600000.0", None),
        (DATACENTER, "Server", "*.*.min_duration", "599999", "599,999 ms is below the required 600,000 ms"),
        (DATACENTER, "Offline", "*.Server.min_duration", "1", None),  # only settings that apply count
        (DATACENTER, "Offline", "llama3_1-8b-edge.*.min_duration", "1", None),
        (INTERACTIVE, "Interactive", "*.Server.min_duration", "1", "1 ms is below"),  # Server of LoadGen
        (DATACENTER, "Offline", "*.*.min_query_count", "13368", None),
        (EDGE, "Offline", "*.*.min_query_count", "5000", None),
        (DATACENTER, "Offline", "*.*.min_query_count", "5000", "5,000 samples is below the required 13,368 samples"),
        (DATACENTER, "Server", "*.*.min_query_count", "100", None),
        (EDGE, "SingleStream", "*.SingleStream.target_latency", "300", None),
        # The defaults, stricter values, and relaxed ones
        (DATACENTER, "Server", "*.*.performance_sample_count_override", "13368", None),
        (DATACENTER, "Server", "*.*.performance_sample_count_override", "20000", None),
        (DATACENTER, "Server", "*.*.performance_sample_count_override", "0", None),  # the complete dataset
        (EDGE, "Offline", "*.*.performance_sample_count_override", "4999", "4,999 samples is below"),
        (DATACENTER, "Server", "*.*.sample_concatenate_permutation", "1", None),
        (DATACENTER, "Server", "*.*.sample_concatenate_permutation", "0", "sample_concatenate_permutation is off"),
        (DATACENTER, "Server", "*.*.sample_concatenate_permutation", "2", "sample_concatenate_permutation is off"),
        (DATACENTER, "Server", "*.*.use_token_latencies", "1", None),
        (DATACENTER, "Server", "*.*.infer_token_latencies", "0", None),
        (DATACENTER, "Server", "*.*.infer_token_latencies", "1", "infer_token_latencies is 1"),
        (DATACENTER, "Server", "*.*.token_latency_scaling_factor", "69", None),  # no effect alone
        (DATACENTER, "Server", "*.Server.ttft_latency", "2000", None),
        (DATACENTER, "Server", "*.Server.ttft_latency", "1500", None),
        (DATACENTER, "Server", "*.Server.ttft_latency", "2001", "2,001 ms is above the limit of 2,000 ms"),
        (INTERACTIVE, "Interactive", "*.Server.tpot_latency", "31", "31 ms is above the limit of 30 ms"),
        (DATACENTER, "Offline", "*.*.tpot_latency", "5000", None),
        (DATACENTER, "Server", "*.Server.target_latency", "20000", None),
        (DATACENTER, "Server", "*.Server.target_latency", "20001", "above the limit of 20,000 ms"),
        (DATACENTER, "Server", "*.Server.target_latency_percentile", "99", None),
        (DATACENTER, "Server", "*.Server.target_latency_percentile", "99.9", None),
        (DATACENTER, "Server", "*.Server.target_latency_percentile", "97", "97% is below the required 99%"),
        (EDGE, "SingleStream", "*.*.target_latency_percentile", "89", "89% is below the required 90%"),
        (DATACENTER, "Server", "*.MultiStream.samples_per_query", "4", None),
        (DATACENTER, "Server", "*.*.performance_issue_same_index", "3", None),
        (DATACENTER, "Offline", "*.*.accuracy_sample_count_override", "5", None),  # no effect in a performance run
        *(
            (DATACENTER, "Server", f"*.*.{key}", value, reason and f"{key} is {value}")
            for key in ("performance_issue_unique", "performance_issue_same", "max_duration", "max_query_count",
                        "accuracy_log_sampling_target")
            for value, reason in (("0", None), ("1", "off"))
        ),
    ],
)  # fmt: skip
def test_each_relaxed_setting_is_a_reason(
    benchmark: Benchmark, scenario: Scenario, setting: str, value: str, reason: str | None
) -> None:
    model, of_scenario, key = setting.split(".")
    reasons = list(settings_reasons([Setting(1, model, of_scenario, key, value)], benchmark, scenario))
    assert [(reason or "") in text for text in reasons] == [True] * (reason is not None), reasons


@pytest.mark.parametrize(
    "change", [{"temperature": 0.1}, {"top_p": 0.9}, {"top_k": 5}, {"seed": 1}, {"min_tokens": 2}, {"max_tokens": 64}]
)
def test_changed_sampling_is_a_reason(change: dict[str, float]) -> None:
    settings = {"scenario": "Offline", "engine": "dummy"}
    assert not any("sampling" in reason for reason in prepare(make_config(settings)).unofficial_reasons)
    run = prepare(make_config({**settings, "sampling_arg": change}))
    assert any("sampling differs" in reason for reason in run.unofficial_reasons)


@pytest.mark.parametrize(
    ("benchmark", "scenario", "samples", "bundled", "reason"),
    [
        (DATACENTER, "Offline", 13_368, False, None),
        (EDGE, "SingleStream", 5_000, False, None),
        (DATACENTER, "Offline", 13_367, False, "13,367 samples"),
        (DATACENTER, "Offline", 13_368, True, "the bundled articles instead of CNN-DailyMail"),
        (DATACENTER, "SingleStream", 13_368, False, "has no SingleStream"),
        (EDGE, "Server", 5_000, False, "has no Server"),
    ],
)
def test_another_dataset_is_a_reason(
    benchmark: Benchmark, scenario: Scenario, samples: int, bundled: bool, reason: str | None
) -> None:
    plan = prepare(make_config({"scenario": "Offline", "engine": "dummy"})).plan.model_copy(
        update={"scenario": scenario, "sample_count": samples, "dataset_sha256": benchmark.data_sha256 or ""}
    )
    reasons = data_reasons(benchmark, plan, bundled=bundled)
    assert reason in reasons[0] if reason else reasons == []


def test_another_model_shape_is_a_reason() -> None:
    assert model_reasons(DATACENTER.model, LLAMA) == []
    for key in LLAMA:
        (reason,) = model_reasons(DATACENTER.model, LLAMA | {key: 7})
        assert f"{key} 7" in reason
        assert model_reasons(DATACENTER.model, {name: value for name, value in LLAMA.items() if name != key})


@pytest.fixture
def run() -> PreparedRun:
    return prepare(make_config({"scenario": "Offline", "engine": "dummy", "accuracy": True}), lambda text: None)


@pytest.fixture
def model(tmp_path: Path) -> ModelFacts:
    """Return the embedded model with the parts that scoring reads."""
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return ModelFacts("small", tmp_path, None, 300, 200, "LlamaForCausalLM", {})


@pytest.fixture
def baseline(model: ModelFacts, monkeypatch: pytest.MonkeyPatch) -> Baseline:
    """Return recorded scores of that model."""
    digest = sha256_of(model.folder / "model.safetensors")
    baseline = Baseline(30.0, 10.0, 20.0, 25.0, 9_000, 64, "small", digest, "", "", {})
    monkeypatch.setattr(articles, "bundled_baseline", lambda: baseline)
    return baseline


def test_the_complete_dataset_has_the_official_target(run: PreparedRun) -> None:
    for key, benchmark in BENCHMARKS.items():
        plan = run.plan.model_copy(update={"sample_count": benchmark.accuracy_samples, "loadgen_key": key})
        target, label = target_for(replace(run, plan=plan, benchmark=benchmark, bundled=False))
        assert target is benchmark.targets
        assert benchmark.submission_name in label


def test_part_of_a_dataset_has_no_target(run: PreparedRun) -> None:
    plan = run.plan.model_copy(update={"sample_count": 13_367})
    target, label = target_for(replace(run, plan=plan, bundled=False))
    assert target is None
    assert "13,367 samples" in label


def test_the_embedded_model_has_its_baseline_as_target(run: PreparedRun, model: ModelFacts, baseline: Baseline) -> None:
    target, label = target_for(replace(run, model=model))
    assert tuple(target[name].reference for name in ("rouge1", "gen_len", "gen_num")) == (30.0, 9_000, 64)
    assert "baseline" in label


def test_other_models_on_the_bundled_articles_have_no_target(
    run: PreparedRun, model: ModelFacts, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert target_for(replace(run, model=None))[0] is None
    part = run.plan.model_copy(update={"sample_count": 63})
    assert target_for(replace(run, model=model, plan=part))[0] is None
    (model.folder / "model.safetensors").write_bytes(b"other weights")
    assert target_for(replace(run, model=model))[0] is None
    monkeypatch.setattr(articles, "bundled_baseline", lambda: None)
    assert target_for(replace(run, model=model))[0] is None
