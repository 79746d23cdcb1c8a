"""Checks on the requests of one leg: limits, prompts, the batch, LoadGen's settings."""

import os
from pathlib import Path

import orjson
import pytest

from compliance.finding import Finding
from compliance.signoff.levers import asked_options
from compliance.signoff.provenance import leg_proofs
from compliance.signoff.requests import batch_limit
from qsl.embedded.articles import bundled_dataset
from runs.files import sha256_of, write_json
from runs.record.layout import RunDir
from tests.support.mechanism_rows import manifest, weights
from tests.support.signoff_fixtures import FrozenLegs, as_word, evidence
from tests.support.submission_legs import CONFIGURATION


@pytest.fixture(scope="module")
def legs(tmp_path_factory: pytest.TempPathFactory) -> FrozenLegs:
    return FrozenLegs(tmp_path_factory)


def findings(path: Path) -> list[Finding]:
    return [reason for reason in leg_proofs(evidence(path)) if reason.severity != "note"]


@pytest.mark.parametrize(
    "name", ["ss-1", "ss-acc", "srv-1", "srv-trace", "srv-acc", "off-1", "int-1", "vllm-off", "vllm-off-acc"]
)
def test_an_honest_leg_has_nothing(legs: FrozenLegs, name: str) -> None:
    assert findings(legs(name)) == []


@pytest.mark.parametrize(
    ("leg", "faults", "check", "slug", "said"),
    [
        ("off-params", [["set_manifest", "plan.sampling.max_tokens", 128]], "P-4", "other_limit", "has 64"),
        ("ss-acc", [["cap_prompts", 512]], "H-2", "other_prompts", "512 tokens, there"),
        ("off-slots-1", [["set_manifest", "engine.configuration.slots", 4]], "P-7", "more_than_the_batch", "computes"),
        ("srv-1", [["set_detail", "requested_server_target_qps", 201.0]], "P-7", "settings_contradict_record", "200"),
        ("ss-1", [["set_detail", "requested_min_duration_ms", 600000]], "P-7", "settings_contradict_record", "400"),
    ],
)  # fmt: skip
def test_each_fault_is_found_by_its_check(
    legs: FrozenLegs, tmp_path: Path, leg: str, faults: list[list[object]], check: str, slug: str, said: str
) -> None:
    found = findings(legs.copy(tmp_path / "leg", leg, *faults))
    assert [
        one
        for one in found
        if (one.rule.partition("/")[0], as_word(one), one.slug) == (check, "FAIL", slug) and said in one.text
    ]


def test_prompts_are_not_compared_without_the_data_set(legs: FrozenLegs, tmp_path: Path) -> None:
    leg = legs.copy(tmp_path / "leg", "ss-1", ["cap_prompts", 512], ["set_manifest", "plan.dataset_sha256", "0" * 64])
    found = [one for one in leg_proofs(evidence(leg)) if one.rule.partition("/")[0] == "H-2"]
    assert [(as_word(one), one.slug) for one in found] == [("NOTE", "prompts_not_compared")]


def test_prompts_are_compared_where_the_data_set_lies_elsewhere_now(legs: FrozenLegs, tmp_path: Path) -> None:
    leg = legs.copy(tmp_path / "leg", "ss-1", ["set_manifest", "plan.dataset_path", os.fspath(tmp_path / "gone")])
    content = orjson.loads((leg / "manifest.json").read_bytes())
    assert sha256_of(bundled_dataset("bytes")) == content["plan"]["dataset_sha256"]
    assert [one for one in leg_proofs(evidence(leg)) if one.rule.partition("/")[0] == "H-2"] == []


def test_requests_that_an_engine_may_have_set_aside_are_a_flag(legs: FrozenLegs, tmp_path: Path) -> None:
    """Of vLLM, where the tokens in flight may have been more than its cache holds."""
    run = RunDir(legs.copy(tmp_path / "leg", "off-slots-1"))
    content = orjson.loads(run.manifest.read_bytes())
    content["plan"]["engine"] = "vllm"
    content["observed"]["model"] |= {"sha256": {"model.safetensors": "0" * 64}, "weights": weights()}
    content["engine"]["configuration"] = CONFIGURATION | {"max_num_seqs": 2, "data_parallel_size": 2}
    write_json(run.manifest, content)

    def severities() -> set[str]:
        return {as_word(one) for one in findings(run.root) if one.slug == "more_than_the_batch"}

    assert severities() == {"FLAG"}
    run.engine_log.write_text("INFO GPU KV cache size: 1,000,000 tokens\n")
    assert severities() == {"FAIL"}
    run.engine_log.write_text("INFO GPU KV cache size: 9,000 tokens\n")
    assert severities() == {"FLAG"}


def test_how_many_requests_an_engine_computes_at_a_time() -> None:
    assert batch_limit(manifest(configuration={})) is None
    assert batch_limit(manifest(configuration={"max_num_seqs": 256})) == 256
    assert batch_limit(manifest(configuration={"max_num_seqs": 256, "data_parallel_size": 2})) == 512
    assert batch_limit(manifest(engine="dummy", configuration={"slots": 0})) is None
    assert batch_limit(manifest(engine="dummy", configuration={"slots": 4})) == 4


def test_what_was_asked_for_has_the_engine_s_names() -> None:
    asked = manifest(options={"max_num_seqs": 8})
    asked.asked |= {"dtype": "bfloat16", "tensor_parallel_size": None, "dummy_slots": 3}
    assert asked_options(asked) == {"max_num_seqs": 8, "dtype": "bfloat16"}
