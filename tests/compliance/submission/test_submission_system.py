"""The system description and the measurements of a submission: recorded, detected, given and missing facts."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from compliance.submission.system import SystemDescription, given_in, read_system_file, system_description
from compliance.submission.this_machine import detect, detected_for, is_the_machine
from compliance.submission.weights import measurements
from compliance.trees.descriptions import _check_fields
from compliance.trees.system_fields import (
    FIELDS,
    GIVEN,
    MEASUREMENT_FIELDS,
    NAMES,
    NETWORK_NAMES,
    REPLACE_ME,
)
from compliance.trees.tree import REHEARSAL_MARK
from runs.errors import InputError
from runs.machine.environment import host_facts
from runs.record.manifest import ClusterNode, ClusterPlan, Manifest, ReplicasPlan
from tests.conftest import ROOT
from tests.support.published import CHECKOUT, needs_checkout
from tests.support.runs.records import GPU, HOST, official_record
from tests.support.runs.technique_rows import weights as weights_part


def describe(fields: dict[str, Any], record: Manifest | None = None, **more: Any) -> SystemDescription:
    values: dict[str, Any] = {
        "submitter": "Org",
        "division": "closed",
        "system_name": "Box",
        "suites": {"datacenter"},
        "system_file": read_system_file({"system": fields}),
    }
    return system_description([record or official_record()], **{**values, **more})


def complete_system_file() -> dict[str, Any]:
    """Return the system file of a submitter with all fields."""
    return {"system": {field.name: field.example for field in FIELDS if field.name not in GIVEN}}


def shipped_system_file(*, commented: bool) -> dict[str, Any]:
    """Return configs/system-example.yaml, optionally with its commented fields."""
    text = (ROOT / "configs" / "system-example.yaml").read_text()
    if commented:
        text = re.sub(r"(?m)^  # (?=[a-z_-]+: )", "  ", text)
    content = yaml.safe_load(text)
    assert isinstance(content, dict)
    return content


def test_a_system_file_with_all_fields_is_complete() -> None:
    description = describe(complete_system_file()["system"], suites={"edge", "datacenter"})
    values = dict(description.values)
    assert set(values) == set(NAMES)  # is_network is not one of them
    assert (values["system_type"], values["status"]) == ("datacenter,edge", "available")
    assert description.origins["host_processor_model_name"] == "file"
    assert all(isinstance(value, str) for value in values.values())
    assert int(values["number_of_nodes"]) == int(values["accelerators_per_node"]) == 1


def test_the_shipped_system_file_lists_each_field() -> None:
    content = shipped_system_file(commented=True)
    assert set(content["system"]) == {*NAMES, *NETWORK_NAMES} - set(GIVEN)
    assert set(content["measurements"]) == set(MEASUREMENT_FIELDS)
    filled = {name: "available" if value == REPLACE_ME else value for name, value in content["system"].items()}
    read_system_file({**content, "system": filled})


def test_the_shipped_system_file_with_placeholders_is_refused() -> None:
    content = shipped_system_file(commented=False)
    assert set(content["system"].values()) == {REPLACE_ME}
    assert content["measurements"] is None
    with pytest.raises(InputError) as caught:
        read_system_file(content)
    assert caught.value.message == f"--system: REPLACE-ME in 6 fields: {', '.join(content['system'])}"


def test_recorded_facts_fill_missing_system_fields() -> None:
    fields = {name: value for name, value in complete_system_file()["system"].items() if "accelerator_" not in name}
    for name in ("framework", "other_software_stack", "operating_system", "host_processor_model_name"):
        del fields[name]
    fields |= {"accelerator_memory_configuration": "HBM3", "accelerator_host_interconnect": "PCIe Gen5"}
    del fields["accelerators_per_node"], fields["number_of_nodes"]
    values = describe(fields).values
    assert values["number_of_nodes"] == "1"
    assert values["accelerator_model_name"] == "NVIDIA H100 80GB HBM3"
    assert values["accelerator_memory_capacity"] == "81559 MiB"
    assert values["accelerator_frequency"] == "1980 MHz"
    assert values["accelerators_per_node"] == "1"
    assert values["accelerator_interconnect"] == "N/A"
    assert values["host_processor_model_name"] == "Another CPU"
    assert values["framework"] == "vLLM 0.32.0"
    assert values["other_software_stack"] == "NVIDIA driver 570.1, python 3.11.7, torch 2.13.0"
    assert values["operating_system"] == "Linux-6.8"


def test_all_missing_fields_are_reported_together_with_examples() -> None:
    with pytest.raises(InputError) as caught:
        describe({"cooling": "air"})
    reported = f"{caught.value.message}\n{caught.value.fix}"
    for name in ("status", "host_memory_configuration", "host_storage_type", "accelerator_host_interconnect"):
        assert name in caught.value.message
        assert f"\n    {name}: " in reported
    assert "cooling" not in reported
    assert "host_processor_model_name" not in reported  # recorded
    lines = yaml.safe_load(caught.value.fix.partition("\n")[2])
    read_system_file(lines)  # the proposed lines are valid
    with pytest.raises(InputError, match="1 field of the system description missing: cooling"):
        describe(complete_system_file()["system"] | {"cooling": "  "})


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_each_field_is_given_recorded_optional_or_required(field: Any) -> None:
    """Without its value, each field is missing, may be empty, is recorded, or has a default."""
    fields = complete_system_file()["system"]
    if fields.pop(field.name, None) is None:
        return  # the command line sets it
    have = {"accelerator_interconnect", "number_of_nodes", "host_networking_topology", "system_name"}
    have |= {"host_processor_model_name", "host_memory_capacity", "framework", "operating_system"}
    have |= {"other_software_stack", "accelerators_per_node", "accelerator_model_name", "accelerator_memory_capacity"}
    if field.may_be_empty or field.name in have:
        assert field.name in describe(fields).values
    else:
        with pytest.raises(
            InputError,
            match=f"description missing: {field.name}$|description missing: {field.name}\n",
        ):
            describe(fields)


def test_a_single_host_is_one_node() -> None:
    fields = given_in({"number_of_nodes": "8", "cooling": "air"}, official_record()).fields
    assert fields == {"cooling": "air"}


def on_nodes(*accelerators: list[dict[str, Any]]) -> Manifest:
    """Return the manifest of a run with replicas on the nodes of a cluster."""
    record = official_record()
    nodes = [
        ClusterNode(id=str(number), address="10.0.0.1", host=HOST, accelerator=rows, software={"ray": "2.60.0"})
        for number, rows in enumerate(accelerators)
    ]
    cluster = ClusterPlan(address="10.0.0.1:6379", listen_on="10.0.0.1", nodes=nodes)
    replicas = ReplicasPlan(places=[], cluster=cluster)
    rows = [row for node in nodes for row in node.accelerator]
    seen = record.observed.model_copy(update={"accelerators": rows})
    return record.model_copy(update={"plan": record.plan.model_copy(update={"replicas": replicas}), "observed": seen})


def test_nodes_of_a_cluster_are_counted() -> None:
    fields = complete_system_file()["system"]
    for name in ("number_of_nodes", "accelerators_per_node", "other_software_stack"):
        del fields[name]
    values = describe(fields, on_nodes([GPU, GPU], [GPU, GPU])).values
    assert (values["number_of_nodes"], values["accelerators_per_node"]) == ("2", "2")
    assert "ray 2.60.0" in values["other_software_stack"]
    with pytest.raises(InputError, match="1 field of the system description missing: accelerators_per_node"):
        describe(fields, on_nodes([GPU, GPU], [GPU]))
    del fields["host_networking_topology"]
    with pytest.raises(InputError, match="1 field of the system description missing: host_networking_topology"):
        describe(fields, on_nodes([GPU], [GPU]))


def test_a_host_without_accelerators_has_zero_accelerators() -> None:
    fields = {
        name: value for name, value in complete_system_file()["system"].items() if not name.startswith("accelerator")
    }
    values = describe(fields, official_record(accelerators=[])).values
    assert values["accelerators_per_node"] == "0"
    for name in NAMES:
        if name.startswith("accelerator_"):
            assert values[name] == "N/A"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"system": {"colling": "air"}}, "colling: unknown field.*use cooling"),
        ({"system": {"is_network": "true"}}, "is_network: not allowed in this file"),
        ({"system": {"submitter": "Other"}}, "submitter: not allowed in this file"),
        ({"system": {"status": "maybe"}}, "status: unknown value 'maybe'"),
        ({"system": {"number_of_nodes": "one"}}, "'one': must be a whole number"),
        ({"system": {"cooling": ["air"]}}, "must be text or a number"),
        ({"system": {"cooling": True}}, "must be text or a number"),
        ({"system": ["cooling"]}, "system: must have fields"),
        ({"cooling": "air"}, "cooling: unknown"),
        ({"measurements": {"weights": "x"}}, "weights: unknown field"),
        ({"measurements": {"retraining": ""}}, "retraining: '': must be text"),
        ({"measurements": {"retraining": False}}, "retraining: False: must be text"),
        ({"system": {"status": "available", "cooling": "replace-me (air?)"}}, "REPLACE-ME in 1 field: cooling"),
        (
            {"measurements": {"weight_data_types": "REPLACE-ME", "retraining": "no"}},
            "REPLACE-ME in 1 field: weight_data_types",
        ),
    ],
)
def test_mistakes_in_a_system_file_are_named(content: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_system_file(content)
    assert re.search(message, f"{caught.value.message} {caught.value.fix}")


def test_facts_are_detected_only_on_the_host_of_the_runs() -> None:
    assert detected_for(official_record()) == {}
    here = official_record(host=host_facts(), accelerators=[])
    assert detected_for(here) == detect()
    fields = {name: value for name, value in complete_system_file()["system"].items() if name != "host_storage_type"}
    description = describe(fields, here, detect_here=lambda _: {"host_storage_type": "tape"})
    assert description.values["host_storage_type"] == "tape"
    assert description.origins["host_storage_type"] == "detected"
    detected = detect()
    assert set(detected) <= set(NAMES)
    assert all(value.strip() for value in detected.values())


def test_the_host_is_recognized_by_its_facts() -> None:
    here = host_facts()
    assert is_the_machine(official_record(host=here, accelerators=[]))
    assert not is_the_machine(official_record(host=here | {"hostname": "another"}, accelerators=[]))
    assert not is_the_machine(official_record(host=here | {"cpu": "another"}, accelerators=[]))
    assert not is_the_machine(official_record(host=here | {"memory_bytes": here["memory_bytes"] * 2}, accelerators=[]))
    assert not is_the_machine(official_record(host=here, accelerators=[GPU]))  # this host has no such GPU


MODEL = {"name": "meta-llama/Llama-3.1-8B-Instruct"}


@pytest.mark.parametrize(
    ("changes", "weights", "transformation"),
    [
        ({}, "bf16", "none"),
        ({"engine_options": {"dtype": "float32"}}, "fp32", "none"),
        ({"engine_options": {"dtype": "bfloat16", "quantization": "fp8"}}, "fp8", "quantization (fp8)"),
        ({"configuration": {"dtype": "torch.float16", "quantization": None}}, "fp16", "none"),
        ({"configuration": {"dtype": "bfloat16", "quantization": "modelopt"}}, "modelopt", "quantization (modelopt)"),
        ({"model": {**MODEL, "weights": weights_part("int8_w8a8")}}, "int8", "quantization (int8_w8a8)"),
    ],
)
def test_measurements_are_derived_from_the_manifest(changes: dict[str, Any], weights: str, transformation: str) -> None:
    values = measurements(official_record(**changes), {}, [])
    assert values == {
        "input_data_types": "int32",
        "retraining": "no",
        "starting_weights_filename": "meta-llama/Llama-3.1-8B-Instruct",
        "weight_data_types": weights,
        "weight_transformations": transformation,
    }


def test_measurements_omit_local_paths_and_can_be_corrected() -> None:
    record = official_record(model={"name": "/home/someone/models/Llama-3.1-8B"})
    values = measurements(record, {"weight_data_types": "mxfp4"}, ["no model"])
    assert values["starting_weights_filename"] == "Llama-3.1-8B"
    assert values["weight_data_types"] == "mxfp4"
    assert REHEARSAL_MARK in values["rehearsal"]


@needs_checkout
def test_fields_equal_those_of_the_official_checker() -> None:
    path = Path(CHECKOUT) / "tools/submission/submission_checker/constants.py"
    spec = importlib.util.spec_from_file_location("official_constants", path)
    assert spec is not None
    assert spec.loader is not None
    constants = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(constants)
    assert set(NAMES) == set(constants.SYSTEM_DESC_REQUIRED_FIELDS)
    assert set(NETWORK_NAMES) == set(constants.SYSTEM_DESC_REQUIRED_FIELDS_NETWORK_MODE)
    filled = set(constants.SYSTEM_DESC_MEANINGFUL_RESPONSE_REQUIRED_FIELDS)
    assert {field.name for field in FIELDS if not field.may_be_empty} == filled


@pytest.mark.parametrize("value", ["0", "\u0668", "", "1.0", "one", 0, 1.0])
def test_submit_and_check_refuse_the_same_counts(tmp_path: Path, value: object) -> None:
    with pytest.raises(InputError, match=r"number_of_nodes: .* must be a whole number of at least 1"):
        read_system_file({"system": {"number_of_nodes": value}})
    description = {**dict(describe(complete_system_file()["system"]).values), "number_of_nodes": value}
    findings = _check_fields(tmp_path / "system.json", description)
    assert [(finding.rule, finding.found) for finding in findings if "number_of_nodes" in finding.found] == [
        ("system-number", f"number_of_nodes is {value!r}")
    ]
