"""A campaign against a server as a checked tree in the network, the closed and the open division."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance.signoff.judge import sign_off
from compliance.submission.build import Submission
from compliance.submission.rebuild import TreeInputs, compare_tree_with_runs, index_runs
from compliance.submission.system import read_system_file
from compliance.techniques.engine_facts import facts_of_run, misdeclared
from compliance.trees.official_checker import run_official
from compliance.trees.system_fields import FIELDS, NETWORK_FIELDS
from compliance.trees.tree import Division
from runs.errors import InputError
from runs.loadgen.detail_log import NETWORK_SUT
from runs.record.finished_run import FinishedRun
from runs.record.layout import CampaignDir
from runs.rounds import CURRENT_ROUND
from tests.support.files.editing import set_record
from tests.support.published import CHECKOUT, needs_checkout
from tests.support.runs.dummy_runs import verify_one_result
from tests.support.runs.recorded import OVER_HTTP
from tests.support.runs.submission_runs import BENCHMARK, SCENARIOS, SYSTEM, campaign_copy, edit
from tests.support.trees.checked_tree import check_submission_tree

GIVEN = {**SYSTEM, "framework": "vLLM 0.32.0", "other_software_stack": "Linux"}
NETWORK = {
    field.name: field.example
    for field in NETWORK_FIELDS
    if field.name not in ("is_network", "number_connections", "network_protocol", "net_software_stack_loadgen")
}
Build = Callable[..., Submission]
Json = dict[str, Any]


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignDir:
    """Return a campaign of the network division against a server without cache counters."""
    return campaign_copy(f"{OVER_HTTP}/campaign", tmp_path / "campaign", monkeypatch)


@pytest.fixture
def build(build: Build) -> Build:
    def run(division: Division = "network", **more: object) -> Submission:
        system_file = read_system_file({"system": {**GIVEN, **NETWORK}})
        return build(division=division, **{"given": system_file, **more})

    return run


def _reasons(outcome: Submission) -> str:
    return "\n".join(refusal.found for refusal in outcome.all_findings)


def test_a_network_tree_has_all_required_files(build: Build, campaign: CampaignDir, tmp_path: Path) -> None:
    outcome = build()
    assert outcome.all_findings == []
    assert any("is on LoadGen's machine" in reason for reason in outcome.details.rehearsal)
    home = tmp_path / "tree" / "network" / "Org"
    system = json.loads((home / "systems" / "Box.json").read_bytes())
    assert set(system) == {field.name for field in (*FIELDS, *NETWORK_FIELDS)}
    assert (system["is_network"], system["number_connections"]) == ("true", "256")
    assert system["network_protocol"].startswith("HTTP/1.1")
    assert system["framework"] == GIVEN["framework"]  # not the version that is installed beside LoadGen
    assert (home / "documentation" / "calibration.md").is_file()
    for scenario in SCENARIOS:
        text = (home / "results" / "Box" / BENCHMARK / scenario / "performance/run_1/mlperf_log_detail.txt").read_text()
        assert NETWORK_SUT in text
    made_of = TreeInputs(index_runs([campaign.root]), source=tmp_path / "code")
    verdict = check_submission_tree(tmp_path / "tree", CURRENT_ROUND).verdict
    compare_tree_with_runs(verdict, made_of)
    findings = verdict.all_findings
    broken = {finding.rule for finding in findings if finding.severity == "error"}
    assert broken == {"rehearsal", "accuracy-target"}, findings  # the targets of a tree are official
    (home / "documentation" / "calibration.md").write_bytes(b"")
    assert "tree-documentation" in {
        finding.rule for finding in check_submission_tree(tmp_path / "tree", CURRENT_ROUND).findings
    }


def _official_messages(tree: Path) -> str:
    """Return the messages of the official checker."""
    return "\n".join(message.text for message in run_official(Path(CHECKOUT), tree, CURRENT_ROUND).messages)


@needs_checkout
def test_the_official_checker_accepts_and_refuses_the_same_network_fields(build: Build, tmp_path: Path) -> None:
    build()
    path = tmp_path / "tree" / "network" / "Org" / "systems" / "Box.json"
    faults = ("invalid sut name", "incorrect network mode", "field nic_sut is missing", "has division")
    assert not [fault for fault in faults if fault in _official_messages(tmp_path / "tree")]
    for change, rule, message in (
        ({"is_network": "false"}, "system-network", "incorrect network mode"),
        ({"nic_sut": None}, "system-field", "field nic_sut is missing"),
    ):
        content = json.loads(path.read_bytes())
        changed = {key: value for key, value in {**content, **change}.items() if value is not None}
        path.write_text(json.dumps(changed))
        assert message in _official_messages(tmp_path / "tree")
        assert rule in {finding.rule for finding in check_submission_tree(tmp_path / "tree", CURRENT_ROUND).findings}
        path.write_text(json.dumps(content))


def test_each_division_accepts_only_its_kind_of_system(build: Build, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only for systems reached over a network"):
        build("closed")
    refused = build("closed", given=read_system_file({"system": GIVEN}))
    assert "name of the SUT 'Network SUT" in _reasons(refused)
    with pytest.raises(InputError, match="--documentation"):
        build(documentation=None)
    with pytest.raises(InputError, match="nic_sut"):
        build(given=read_system_file({"system": GIVEN}))
    outcome = build("open")
    assert outcome.all_findings == []
    assert json.loads((tmp_path / "tree/open/Org/systems/Box.json").read_bytes())["is_network"] == "true"
    assert not [
        finding
        for finding in check_submission_tree(tmp_path / "tree", CURRENT_ROUND).findings
        if "network" in finding.rule
    ]


_CLIENT = "observed.engines.0.client"


def with_declaration(**values: object) -> Json:
    """Return changes of the declaration, as declared and as effective."""
    places = ("plan.engine_options.declared", "engine.configuration.declared")
    return {f"{place}.{name}": value for place in places for name, value in values.items()}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("engine.configuration", {}),
        ("observed.engines", []),
        (f"{_CLIENT}.on_this_machine", None),
        (f"{_CLIENT}.answers_read_at_once", None),
    ],
)
def test_an_incomplete_record_of_servers_is_refused(campaign: CampaignDir, place: str, value: object) -> None:
    run = campaign.result(BENCHMARK, "Offline").performance
    assert verify_one_result(run.root).contradictions == []
    set_record(run, {place: value})
    verdict = verify_one_result(run.root)
    assert verdict.error is not None or verdict.contradictions


@pytest.mark.parametrize(
    "values",
    [
        {"plan.engine_options.declared": None, "engine.configuration.declared": None},
        with_declaration(dtype=...),
        with_declaration(speculative=True),
        with_declaration(enable_prefix_caching=True),
        {f"{_CLIENT}.cached_tokens_by_metrics": 16, f"{_CLIENT}.counts_reuse": True},
        {"engine.configuration.probes.cached_tokens_of_the_repeat": 288},
    ],
)
def test_an_eligible_run_with_forbidden_servers_is_reported(campaign: CampaignDir, values: Json) -> None:
    run = campaign.result(BENCHMARK, "Offline").performance
    for changes, broken in (({"official": True, "unofficial_reasons": []}, False), (values, True)):
        set_record(run, changes)
        (part,) = verify_one_result(run.root).parts
        assert ("record-servers" in {finding.rule for finding in part.violated}) is broken


def test_a_declaration_that_contradicts_the_server_is_reported(campaign: CampaignDir) -> None:
    run = campaign.result(BENCHMARK, "Offline").performance
    assert not any(misdeclared({}, facts_of_run(FinishedRun(run))))
    set_record(run, {"engine.configuration.told_by_the_server.cache_configuration": {"cache_dtype": "fp8"}})
    (finding,) = misdeclared({}, facts_of_run(FinishedRun(run)))
    assert finding.found.startswith("kv_quantization/fp8_e4m3 (")


def test_a_server_without_cache_counters_requires_the_caching_audit(build: Build, campaign: CampaignDir) -> None:
    offline = campaign.result(BENCHMARK, "Offline")
    runs = [offline.performance.root, offline.accuracy.root]
    assert "H-5/caching_audit_absent" not in {reason.rule for reason in sign_off("bundle", runs).findings}
    shutil.rmtree(offline.audit("output_caching"))
    assert _reasons(build()).count("has no passed output_caching audit") == len(SCENARIOS)
    assert "H-5/caching_audit_absent" in {reason.rule for reason in sign_off("bundle", runs).findings}


def test_a_caching_audit_of_another_server_does_not_count(build: Build, campaign: CampaignDir) -> None:
    for run in (campaign.result(BENCHMARK, "Offline").performance, campaign.result(BENCHMARK, "Offline").accuracy):
        edit(run.manifest, engine={"versions": {"vllm": "0.1"}})
    assert "has no passed output_caching audit" in _reasons(build())


@pytest.mark.parametrize("tokens_made", [None, 1])
def test_a_server_with_consistent_cache_counters_requires_no_caching_audit(
    build: Build, campaign: CampaignDir, tokens_made: int | None
) -> None:
    shutil.rmtree(campaign.result(BENCHMARK, "Offline").audit("output_caching"))
    for path in campaign.root.rglob("manifest.json"):
        observed = json.loads(path.read_bytes())["observed"]
        counted = {"counts_reuse": True, "cached_tokens_by_metrics": 0, "tokens_by_metrics": tokens_made}
        engines = [{**engine, "client": {**engine["client"], **counted}} for engine in observed["engines"]]
        edit(path, observed={"engines": engines})
    assert ("has no passed output_caching audit" in _reasons(build())) is (tokens_made is not None)
