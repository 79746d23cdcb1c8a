"""The YAML file of a campaign: its meaning, and refusals with the name of the key."""

import errno
import fcntl
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from compliance.submission.system import find_system_file
from runs.errors import InputError, SetupError
from runs.record.fingerprint import changes
from runs.record.layout import CampaignDir
from runs.record.manifest import RunPlan
from scenarios.campaign.campaign_config import Campaign, load_campaign, missing_scenarios
from scenarios.campaign.tuned_rates import refuse_other_content
from scenarios.resumed import held
from tests.conftest import ROOT

SMALL: dict[str, Any] = {"benchmark": "llama3.1-8b", "engine": "dummy", "scenarios": ["Offline", "Server"]}


def load(folder: Path, options: dict[str, Any] | None = None, **changes: Any) -> Campaign:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}, sort_keys=False))
    return load_campaign(path, options or {})


def test_runs_are_planned_in_order(tmp_path: Path) -> None:
    campaign = load(tmp_path)
    kinds = ["performance", "accuracy", "TEST06"]
    assert [run.name for run in campaign.runs] == [f"{name} {kind}" for name in ("Offline", "Server") for kind in kinds]
    assert campaign.place.root == Path("output/small")
    assert str(campaign.runs[0].folder) == "output/small/llama3.1-8b/Offline/performance/run_1"
    assert str(campaign.runs[2].folder) == "output/small/llama3.1-8b/Offline/audit/TEST06"
    assert [run.values.get("accuracy", False) for run in campaign.runs[:3]] == [False, True, False]


def test_edge_has_its_own_loadgen_key_and_requires_no_audit(tmp_path: Path) -> None:
    campaign = load(tmp_path, benchmark="llama3.1-8b-edge", scenarios={"singlestream": None, "offline": {}})
    assert [run.name for run in campaign.runs] == [
        "SingleStream performance", "SingleStream accuracy", "Offline performance", "Offline accuracy",
    ]  # fmt: skip
    assert {run.values["lg_model_name"] for run in campaign.runs} == {"llama3_1-8b-edge"}


def test_keys_of_a_scenario_replace_those_of_the_file(tmp_path: Path) -> None:
    campaign = load(
        tmp_path,
        {"model_path": "above"},
        model_path="below",
        engine="vllm",
        engine_arg={"a": 1, "b": 2},
        scenarios={"Offline": {"engine-arg": {"b": 3}, "target-qps": 7}, "Server": None},
    )
    offline, server = campaign.runs[0].values, campaign.runs[3].values
    assert (offline["engine_arg"], offline["target_qps"]) == ({"a": 1, "b": 3}, 7)
    assert (server["engine_arg"], server.get("target_qps")) == ({"a": 1, "b": 2}, None)
    assert offline["model_path"] == server["model_path"] == "above"


def write_tuning_result(folder: Path, **values: Any) -> str:
    """Write a directory with a tuning result."""
    folder.mkdir()
    (folder / "user.conf").write_text("*.Server.target_qps = 21.5\n")
    best = {"scenario": "Server", "engine": "dummy", "user_conf": str(folder / "user.conf"), **values}
    (folder / "best.yaml").write_text(yaml.safe_dump({key: value for key, value in best.items() if value is not None}))
    return str(folder)


def test_rates_and_options_are_read_from_tuning_results(tmp_path: Path) -> None:
    server = write_tuning_result(tmp_path / "server", dummy_slots=18, admission="fcfs", output_log_dir="elsewhere")
    offline = write_tuning_result(tmp_path / "offline", scenario="Offline")
    campaign = load(
        tmp_path, rates_from=[server, offline], dummy_slots=9, scenarios={"Offline": {}, "Server": {"admission": "off"}}
    )
    values = {run.scenario: run.values for run in campaign.runs if run.kind == "accuracy"}
    assert values["Server"]["user_conf"] == f"{server}/user.conf"
    assert (values["Server"]["dummy_slots"], values["Server"]["admission"]) == (18, "off")
    assert values["Offline"]["user_conf"] == f"{offline}/user.conf"
    assert values["Offline"]["dummy_slots"] == 9
    assert campaign.place.root == Path("output/small")


@pytest.mark.parametrize(
    ("best", "changes", "message"),
    [
        (None, {}, "best.yaml is missing"),
        ({"scenario": "Interactive"}, {}, "the campaign has no scenario Interactive"),
        ({"scenario": None}, {}, "best.yaml has no scenario"),
        ({"engine": "vllm"}, {}, "engine vllm, but the campaign has dummy"),
        ({"total_sample_count": 8}, {}, "total_sample_count 8, but the campaign has None"),
        ({"model_path": "a"}, {"model_path": "b"}, "model_path a, but the campaign has b"),
        ({"scenario": "Offline"}, {"benchmark": "llama3.1-8b-edge"}, "lg_model_name llama3_1-8b, but the campaign has"),
        ({}, {"scenarios": {"Server": {"target_qps": 3}}}, "target_qps: rates_from"),
        ({}, {"scenarios": {"Server": {"user_conf": "x"}}}, "user_conf: rates_from"),
        ({}, {"rates_from": ["{}", "{}"]}, "also has a rate of Server"),
        ({}, {"rates_from": "{}"}, "rates_from"),
    ],
)
def test_a_tuning_result_of_another_scenario_is_refused(
    tmp_path: Path, best: dict[str, Any] | None, changes: dict[str, Any], message: str
) -> None:
    folder = str(tmp_path / "tune") if best is None else write_tuning_result(tmp_path / "tune", **best)
    if "benchmark" in changes:
        changes = {**changes, "scenarios": ["Offline"]}
    named = changes.get("rates_from", ["{}"])
    named = [folder] * len(named) if isinstance(named, list) else folder
    with pytest.raises(InputError) as caught:
        load(tmp_path, **{**changes, "rates_from": named})
    assert message in caught.value.message
    assert str(tmp_path / "small.yaml") in caught.value.message


@pytest.mark.parametrize("key", ["dataset_sha256", "model.sha256.config.json"])
def test_a_tuning_result_on_another_model_is_refused(tmp_path: Path, key: str) -> None:
    facts = {"dataset_sha256": "aa", "model.sha256.config.json": "aa", "host.cpu": "x"}
    line = {"step": "configuration", "schema_version": 1, "scenario": "Server", "identity": facts}
    folder = tmp_path / "tune"
    folder.mkdir()
    with pytest.raises(InputError, match=r"cannot read .*journal\.jsonl"):
        refuse_other_content(folder, facts)
    (folder / "journal.jsonl").write_text(json.dumps(line))
    refuse_other_content(folder, {**facts, "host.cpu": "y"})
    with pytest.raises(InputError, match=f"{key}.*aa in the tuning, bb now"):
        refuse_other_content(folder, {**facts, key: "bb"})


def test_the_system_file_is_recorded_with_one_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"system: absent\.yaml: no such file"):
        load(tmp_path, system="absent.yaml")
    monkeypatch.chdir(tmp_path)
    Path("system.yaml").write_text("system: {status: available}\n")
    settings = load(tmp_path, system="system.yaml").requested
    results = []
    for number, name in enumerate((settings["system"], settings["system"], str(tmp_path / "other.yaml"))):
        place = CampaignDir(tmp_path / f"campaign-{number}")
        results.append(place.result("llama3.1-8b", "Server").performance.root)
        results[-1].mkdir(parents=True)
        place.configuration.write_text(json.dumps({"asked": {"system": name}}))
    for folders in ([results[0]], [results[0].parents[3], results[1]]):
        description = find_system_file(None, folders)
        assert description is not None
        assert description.fields == {"status": "available"}
    with pytest.raises(InputError, match="campaigns name different system files"):
        find_system_file(None, results)
    assert find_system_file(Path("system.yaml"), results) is not None
    assert find_system_file(None, [tmp_path]) is None


def test_audits_are_planned_for_each_scenario(tmp_path: Path) -> None:
    caching = {"test": "output_caching", "samples": 8}
    campaign = load(tmp_path, audits=["TEST06"], scenarios={"Offline": {"audits": ["TEST06", caching]}, "Server": {}})
    assert [run.kind for run in campaign.runs if run.audit] == ["TEST06", "output_caching", "TEST06"]
    assert campaign.runs[3].audit.samples == 8
    assert not [run for run in load(tmp_path, division="open").runs if run.audit]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_pqs": 3}, "target_pqs: unknown key"),
        (
            {"scenarios": {"Offline": {"target_pqs": 3}}},
            "small.yaml:5: target_pqs: ",
        ),
        ({"scenarios": {"Offline": {"model_path": "x"}}}, "model_path: "),
        ({"accuracy": True}, "accuracy: set by the campaign itself"),
        ({"scenarios": {"SingleStream": None}}, "llama3.1-8b has no SingleStream scenario"),
        ({"scenarios": {"MultiStream": None}}, "MultiStream"),
        ({"scenarios": {"Offline": 3}}, "Offline: expected keys and values"),
        ({"scenarios": {}}, "give at least one scenario"),
        ({"scenarios": {"Offline": {"target_qps": -1}}}, "small.yaml:5: target_qps -1"),
        ({"benchmark": "llama2"}, "benchmark"),
        ({"round": "v5.1"}, "only the seeds of v6.1"),
        ({"audits": []}, "audits: TEST06 is missing"),
        ({"audits": ["TEST99"]}, "TEST99"),
        ({"audits": ["TEST06", "TEST06"]}, "an audit is named twice"),
        ({"audits": [{"test": "TEST06", "sample": 3}]}, "sample: unknown key"),
    ],
)
def test_invalid_configurations_are_refused_with_key_and_file(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, **changes)
    assert message in caught.value.message
    assert str(tmp_path / "small.yaml") in caught.value.message


def test_all_mistakes_of_a_file_are_reported_with_their_scenarios(tmp_path: Path) -> None:
    scenarios = {"Offline": {"target_qps": -1}, "Server": {"accuracy": True}}
    with pytest.raises(InputError) as refused:
        load(tmp_path, stall_timeout_s="x", scenarios=scenarios)
    lines = str(refused.value).splitlines()
    for start in ("Offline, Server: ", "Offline: ", str(tmp_path)):
        (place,) = (place for place, line in enumerate(lines) if line.startswith(start))
        assert lines[place + 1].startswith("  fix: ")


def test_missing_scenarios_of_a_closed_submission_are_named(tmp_path: Path) -> None:
    assert missing_scenarios(load(tmp_path).options) == ""
    assert missing_scenarios(load(tmp_path, scenarios=["Interactive"]).options) == "Offline"
    assert missing_scenarios(load(tmp_path, scenarios=["Offline"]).options) == "Interactive or Server"
    edge = load(tmp_path, benchmark="llama3.1-8b-edge", scenarios=["Offline"])
    assert missing_scenarios(edge.options) == "SingleStream"


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("campaign-*.yaml")), ids=lambda path: path.stem)
def test_shipped_configurations_are_complete(path: Path) -> None:
    campaign = load_campaign(path, {})
    assert missing_scenarios(campaign.options) == ""
    assert campaign.options.division == "closed"


def test_differences_name_both_values() -> None:
    assert changes({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == [
        "a: 1 then, not set now", "b: 2 then, 3 now", "c: not set then, 4 now",
    ]  # fmt: skip


def test_each_uncompared_key_exists_in_the_plan() -> None:
    from runs.record.fingerprint import ROLE

    assert {key.partition(".")[0] for key in ROLE} <= set(RunPlan.model_fields)


def test_a_file_system_without_locks_is_an_error_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(SetupError, match="cannot be locked: No locks available"), held(tmp_path / "lock", "tune"):
        pass
