"""Each reason why a leg could not be submitted."""

from dataclasses import replace
from pathlib import Path

import pytest

from runs.benchmark import Scenario
from runs.benchmarks import BENCHMARKS
from runs.loadgen.user_conf import Setting, read_conf
from runs.record.official_inputs import model_reasons
from scenarios.leg.official import data_reasons, sampling_reasons, settings_reasons
from tests.support.official import SAMPLING

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


def one(name: str, value: str) -> tuple[Setting, ...]:
    model, scenario, key = name.split(".")
    return (Setting(1, model, scenario, key, value),)


def test_the_shipped_user_conf_is_official() -> None:
    settings = read_conf(ROOT / "user.conf")
    for benchmark in BENCHMARKS.values():
        for scenario in benchmark.scenarios:
            assert settings_reasons(settings, benchmark, scenario) == []


def test_the_embedded_conf_is_not() -> None:
    settings = read_conf(ROOT / "configs" / "embedded.conf")
    assert settings_reasons(settings, DATACENTER, "Offline")


@pytest.mark.parametrize("scenario", ["Offline", "Server"])
def test_duration(scenario: Scenario) -> None:
    assert settings_reasons(one("*.*.min_duration", "600000"), DATACENTER, scenario) == []
    (reason,) = settings_reasons(one("*.*.min_duration", "599999"), DATACENTER, scenario)
    assert "599999 ms is below the required 600000 ms" in reason


def test_only_settings_that_apply_count() -> None:
    assert settings_reasons(one("*.Server.min_duration", "1"), DATACENTER, "Offline") == []
    assert settings_reasons(one("llama3_1-8b-edge.*.min_duration", "1"), DATACENTER, "Offline") == []
    # Interactive is LoadGen's Server.
    assert settings_reasons(one("*.Server.min_duration", "1"), INTERACTIVE, "Interactive")


def test_offline_needs_the_whole_data_set() -> None:
    assert settings_reasons(one("*.*.min_query_count", "13368"), DATACENTER, "Offline") == []
    assert settings_reasons(one("*.*.min_query_count", "5000"), EDGE, "Offline") == []
    (reason,) = settings_reasons(one("*.*.min_query_count", "5000"), DATACENTER, "Offline")
    assert "5000 is below the 13,368 samples" in reason
    assert settings_reasons(one("*.*.min_query_count", "100"), DATACENTER, "Server") == []


@pytest.mark.parametrize(
    "key",
    ["use_token_latencies", "infer_token_latencies", "token_latency_scaling_factor", "ttft_latency", "tpot_latency",
     "target_latency", "target_latency_percentile", "samples_per_query", "sample_concatenate_permutation",
     "performance_issue_unique", "performance_issue_same", "performance_issue_same_index",
     "performance_sample_count_override", "accuracy_sample_count_override", "max_duration", "max_query_count",
     "accuracy_log_sampling_target"],
)  # fmt: skip
@pytest.mark.parametrize("value", ["0", "1"])
def test_settings_of_the_open_division(key: str, value: str) -> None:
    (reason,) = settings_reasons(one(f"*.Server.{key}", value), DATACENTER, "Server")
    assert key in reason
    assert "open division" in reason


def test_target_latency_is_free_in_single_stream() -> None:
    assert settings_reasons(one("*.SingleStream.target_latency", "300"), EDGE, "SingleStream") == []


@pytest.mark.parametrize(
    "change", [{"temperature": 0.1}, {"top_p": 0.9}, {"top_k": 5}, {"seed": 1}, {"min_tokens": 2}, {"max_tokens": 64}]
)
def test_sampling(change: dict[str, float]) -> None:
    policy = replace(SAMPLING, **change)  # type: ignore[arg-type]  # each field has its own number type
    assert sampling_reasons(SAMPLING, SAMPLING) == []
    assert "sampling differs" in sampling_reasons(policy, SAMPLING)[0]


def test_data_set() -> None:
    assert data_reasons(DATACENTER, "Offline", "performance", 13_368, DATACENTER.data_sha256 or "", bundled=False) == []
    assert data_reasons(EDGE, "SingleStream", "performance", 5_000, EDGE.data_sha256 or "", bundled=False) == []
    assert (
        "13,367 samples"
        in data_reasons(DATACENTER, "Offline", "performance", 13_367, DATACENTER.data_sha256 or "", bundled=False)[0]
    )
    assert (
        "not CNN-DailyMail"
        in data_reasons(DATACENTER, "Offline", "performance", 13_368, DATACENTER.data_sha256 or "", bundled=True)[0]
    )
    assert (
        "has no SingleStream"
        in data_reasons(DATACENTER, "SingleStream", "performance", 13_368, DATACENTER.data_sha256 or "", bundled=False)[
            0
        ]
    )
    assert (
        "has no Server" in data_reasons(EDGE, "Server", "performance", 5_000, EDGE.data_sha256 or "", bundled=False)[0]
    )


def test_model() -> None:
    assert model_reasons(DATACENTER.model, LLAMA) == []
    for key in LLAMA:
        (reason,) = model_reasons(DATACENTER.model, LLAMA | {key: 7})
        assert f"{key} 7" in reason
        assert model_reasons(DATACENTER.model, {name: value for name, value in LLAMA.items() if name != key})
