"""Results that `main.py submit` refuses, and the reasons that it prints."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compliance.judge.record import record
from compliance.judge.verdict import Finding, compared
from compliance.results.scoring import ScoreSources
from compliance.submission.build import Submission
from compliance.submission.build_inputs import gather
from compliance.submission.refusal_causes import by_cause, cause_of
from compliance.submission.text import refusal_lines
from compliance.submission.weights import lacking, with_calibration
from qsl.dataset import SYNTHETIC_MARK
from runs.benchmark import Target
from runs.errors import ExecutionError, ExitCode, InputError
from runs.record.layout import CampaignDir, ResultDir, RunDir
from runs.rounds import ROUNDS
from tests.support.files.editing import reseal
from tests.support.official import DATACENTER, change_benchmarks
from tests.support.runs.records import official_record
from tests.support.runs.submission_runs import (
    BENCHMARK,
    CALIBRATION,
    OFFICIAL,
    SAMPLES,
    claim_official,
    edit,
    results_of,
    sign_off_all,
)
from tests.support.runs.technique_rows import weights

Submit = Callable[..., Submission]
Json = dict[str, Any]


def reasons(outcome: Submission) -> str:
    assert outcome.details.built is None
    return "\n".join(finding.sentence for finding in outcome.all_findings)


def test_ineligible_results_require_rehearsal(build: Submit, campaign: CampaignDir, tmp_path: Path) -> None:
    text = reasons(build(rehearsal=False))
    assert f"{BENCHMARK}/Offline: not eligible for submission: the dummy engine" in text
    assert f"{BENCHMARK}/Server: not eligible for submission: the run uses the bundled" in text
    in_open = build(rehearsal=False, division="open").all_findings
    assert [(finding.rule, finding.text) for finding in in_open] == [
        ("submit/not-official", f"{BENCHMARK}/{name}") for name in ("Offline", "Server")
    ]
    assert not (tmp_path / "tree").exists()
    for path in campaign.root.rglob("manifest.json"):
        edit(path, official=True, unofficial_reasons=[])
    assert "not eligible for submission: the dummy engine" in reasons(build(rehearsal=False))


def test_dummy_runs_recorded_as_vllm_fail_the_sign_off(build: Submit, campaign: CampaignDir, tmp_path: Path) -> None:
    claim_official(campaign)
    outcome = build(rehearsal=False)
    assert outcome.details.signed is not None
    assert outcome.details.signed.outcome == "FAIL"
    failed = [(finding.rule, finding.sentence) for finding in outcome.details.signed.of("error")]
    assert [(refusal.rule, refusal.found) for refusal in outcome.all_findings] == failed
    assert record(outcome)["signoff"] == record(outcome.details.signed)
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize(
    ("division", "mechanism", "rule"),
    [
        ("open", {"mechanism": "speculative_decoding", "mechanism_variant": "eagle3", "draft_model_id": "draft",
                  "speculative_acceptance_rate": 0.7}, "gate/mechanism_misdeclared"),
        ("closed", {"mechanism": "kv_compression", "mechanism_variant": "kvtc_class"}, "gate/eligible_in_division"),
        ("open", {"mechanism": "kv_compression", "mechanism_variant": "kvtc_class", "support_status": "supported"},
         "gate/quality_evaluated"),
    ],
)  # fmt: skip
def test_a_technique_that_fails_the_gate_is_refused(
    build: Submit, campaign: CampaignDir, tmp_path: Path, division: str, mechanism: Json, rule: str
) -> None:
    for result in results_of(campaign):
        for run in (result.performance, result.accuracy):
            edit(run.manifest, asked={"mechanism": mechanism})
    findings = build(division=division).all_findings
    assert {finding.rule for finding in findings} == {rule}
    assert all("see `python main.py gate " in finding.fix for finding in findings)
    assert not (tmp_path / "tree").exists()


def test_quantized_weights_require_a_calibration_document(
    build: Submit, campaign: CampaignDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_official(campaign)
    sign_off_all(monkeypatch)
    unrelated = tmp_path / "other"
    unrelated.mkdir()
    (unrelated / "calibration.md").write_text("# Another\n")
    for documents in (None, unrelated):
        (refusal, *_) = build(rehearsal=False, documentation=documents).all_findings
        assert refusal.rule == "submit/calibration"
    assert build(rehearsal=False).all_findings == []
    assert (tmp_path / "tree/closed/Org/documentation/calibration.md").read_bytes() == CALIBRATION


def test_the_calibration_document_is_read_beside_the_weights(tmp_path: Path) -> None:
    path = tmp_path / "calibration.md"
    path.write_bytes(CALIBRATION)
    digest = hashlib.sha256(CALIBRATION).hexdigest()
    model = {"sha256": {path.name: digest}, "folder": str(tmp_path), "weights": weights("int8_w8a8")}
    ran = [official_record(model=model)]
    assert with_calibration({}, ran) == {path.name: CALIBRATION}
    assert list(lacking({path.name: CALIBRATION}, ran)) == []
    # The file is not beside the weights, so the submitter names it.
    unknown = [official_record(model={**model, "sha256": {}})]
    assert list(lacking({path.name: CALIBRATION}, unknown)) == []
    assert len(list(lacking({path.name: b" \n"}, unknown))) == 1
    path.write_text("changed")
    assert with_calibration({}, ran) == {}
    assert len(list(lacking({}, ran))) == 2


def test_runs_with_unrecorded_or_different_weights_are_refused(
    build: Submit, campaign: CampaignDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_off_all(monkeypatch)
    claim_official(campaign)
    for path in campaign.result(BENCHMARK, "Server").root.rglob("manifest.json"):
        edit(
            path,
            observed={
                "model": {
                    "weights": {**OFFICIAL, "headers_sha256": "1" * 64},
                    "sha256": {"model.safetensors": "2" * 64},
                }
            },
        )
    reported = reasons(build(rehearsal=False))
    assert f"{BENCHMARK}/Server: model.sha256.model.safetensors: " in reported
    for path in campaign.root.rglob("manifest.json"):
        edit(path, observed={"model": {"weights": None}})
    with pytest.raises(InputError, match=r"manifest\.json: .*observed.model: files or weights"):
        build(rehearsal=False, tree="other")


def test_a_degraded_sign_off_refuses_a_closed_tree(build: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumbles(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("compliance.signoff.judge.one_model", stumbles)
    assert "sign-off: DEGRADED: " in reasons(build())
    outcome = build(division="open")
    assert (outcome.all_findings, outcome.details.signed) == ([], None)


def test_a_failed_optional_audit_is_refused(
    build: Submit, campaign: CampaignDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = campaign.result(BENCHMARK, "Offline")
    record = result.audit("output_caching") / "audit_output_caching.json"
    record.parent.mkdir()
    content = {
        "schema_version": 1, "test": "output_caching", "passed": False, "official": False, "required": False,
        "reason": "ten times as fast", "rule": "", "findings": [], "runs": [],
    }  # fmt: skip
    record.write_text(json.dumps(content))
    sentence = f"{BENCHMARK}/Offline: output_caching of this result did not pass: ten times as fast"
    assert reasons(build()) == sentence
    server = campaign.result(BENCHMARK, "Server").root
    runs = (result.performance.root, result.accuracy.root, result.audit("TEST06"), server)
    assert reasons(build(*runs)) == sentence  # each run is named
    assert build(division="open").all_findings == []
    record.write_text('{"test": "output_caching", "passed": tr')
    assert "audit_output_caching.json cannot be read" in reasons(build(tree="other"))
    record.write_text('{"test": "output_caching", "passed": true}')
    assert "audit_output_caching.json: schema_version: Field required" in reasons(build(tree="other"))
    record.write_text(json.dumps({**content, "passed": True}))
    # No file shows a pass
    assert "output_caching of this result cannot be re-evaluated" in reasons(build(tree="other"))
    record.unlink()
    record = result.audit("output_length") / "audit_output_length.json"
    record.parent.mkdir()
    existing = [{"label": "ref"}, {"label": "run"}]  # runs in other directories
    record.write_text(json.dumps({**content, "test": "output_length", "passed": True, "runs": existing}))
    assert build(tree="other").all_findings == []


def test_a_synthetic_dataset_is_refused(
    build: Submit, campaign: CampaignDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_off_all(monkeypatch)
    dataset = tmp_path / "rows.json"
    dataset.write_text(f'[{{"output": "{SYNTHETIC_MARK} 1"}}]')
    claim_official(campaign)
    assert build(rehearsal=False).all_findings == []
    digest = hashlib.sha256(dataset.read_bytes()).hexdigest()
    for path in campaign.root.rglob("manifest.json"):
        edit(path, plan={"dataset_path": str(dataset), "dataset_sha256": digest})
    assert "the dataset is synthetic" in reasons(build(rehearsal=False, tree="other"))
    moved = dataset.rename(tmp_path / "moved.json")
    sources = ScoreSources(dataset_path=moved)
    assert "the dataset is synthetic" in reasons(build(rehearsal=False, tree="moved", sources=sources))


def test_a_rehearsal_requires_duration_and_seeds_of_the_round(
    build: Submit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    change_benchmarks(monkeypatch, min_duration_ms=600_000)
    text = reasons(build())
    assert f"{BENCHMARK}/Server: performance: min_duration: 1,500 ms" in text
    text = reasons(build(round=ROUNDS["v6.0"]))
    assert "seeds of v6.1, required: seeds of v6.0" in text
    assert text.count("required: seeds of") == 6  # each run, also those of audits
    assert list(tmp_path.glob("*tree*")) == []


def test_accuracy_below_its_target_is_refused_in_closed_only(
    build: Submit, campaign: CampaignDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = {**DATACENTER.targets, "gen_num": Target(SAMPLES)}
    monkeypatch.setattr("compliance.results.run_evidence.target_of", lambda run: (targets, "the official one"))
    assert "accuracy: rouge1: " in reasons(build())
    assert build(division="open").all_findings == []


def test_open_requires_neither_all_scenarios_nor_audits(build: Submit, campaign: CampaignDir, tmp_path: Path) -> None:
    result = campaign.result(BENCHMARK, "Offline")
    shutil.rmtree(result.audit("TEST06"))
    text = reasons(build(result.root))
    assert f"{BENCHMARK}: Interactive or Server is missing" in text
    assert f"{BENCHMARK}/Offline: TEST06 is missing" in text
    assert reasons(build(campaign.result(BENCHMARK, "Server").root)) == f"{BENCHMARK}: Offline is missing"
    assert build(result.root, division="open").all_findings == []
    assert (tmp_path / "tree/open/Org/results/Box" / BENCHMARK / "Offline/measurements.json").is_file()


Change = Callable[[ResultDir], object]


def text(name: str, old: str, new: str) -> Change:
    """Replace a text in a file of the result."""

    def change(result: ResultDir) -> None:
        path = result.root / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    return change


def recorded(part: str, **values: object) -> Change:
    """Change values in the manifests of some runs."""

    def change(result: ResultDir) -> None:
        for path in result.root.rglob("manifest.json"):
            if path.parent.match(part):
                edit(path, **values)

    return change


def config(result: ResultDir) -> None:
    run = RunDir(result.audit("TEST06") / "performance")
    run.audit_config.write_text(run.audit_config.read_text() + "*.*.performance_issue_same = 1\n")
    reseal(run)


def responses(rewrite: Callable[[list[Json]], list[Json]]) -> Change:
    """Replace the log of the audit's responses, and attest the run again."""

    def change(result: ResultDir) -> None:
        audit = result.audit("TEST06")
        run = RunDir(audit / "performance")
        run.accuracy_log.write_text(json.dumps(rewrite(json.loads(run.accuracy_log.read_bytes()))))
        shutil.copy(run.accuracy_log, audit / "accuracy" / run.accuracy_log.name)
        reseal(run)

    return change


def exchanged(entries: list[Json]) -> list[Json]:
    first, second, *rest = entries
    places = [{name: value[name] for name in ("seq_id", "qsl_idx")} for value in (first, second)]
    return [{**second, **places[0]}, {**first, **places[1]}, *rest]


AUDIT, AUDITED = "audit/TEST06", "audit/TEST06/performance"
RESPONSES, TOKENS = "mlperf_log_accuracy.json", '"result_completed_tokens_per_second", "value": '
# Change of a result → a sentence of the refusal.
CHANGES: dict[str, tuple[Change, str]] = {
    "an edited log": (
        text("performance/run_1/mlperf_log_detail.txt", TOKENS, f"{TOKENS}1"),
        "the summary's 'completed tokens per second' is ",
    ),
    "no performance leg": (lambda result: shutil.rmtree(result.performance.root), "the performance run is missing"),
    "no accuracy leg": (lambda result: shutil.rmtree(result.accuracy.root), "the accuracy run is missing"),
    "no manifest": (lambda result: result.accuracy.manifest.unlink(), "accuracy is missing"),
    "a failed audit": (
        lambda result: edit(result.audit("TEST06") / "audit_TEST06.json", passed=False, reason="it took too long"),
        "TEST06 did not pass: it took too long",
    ),
    "another text": (
        text(f"{AUDIT}/verify_accuracy.txt", "True", "False"), "verify_accuracy.txt differs from the file",
    ),
    "another log beside": (
        lambda result: (result.audit("TEST06") / "accuracy" / RESPONSES).write_text("[]"),
        f"accuracy/{RESPONSES} differs",
    ),
    "another log": (text(f"{AUDITED}/{RESPONSES}", "0", "1"), f": {RESPONSES}"),
    "another configuration": (config, "audit.config differs"),
    "fewer answers": (responses(lambda entries: entries[1:]), "fails: number of logged responses: 99"),
    "exchanged answers": (responses(exchanged), "requests.jsonl"),
    "another engine": (
        recorded("accuracy", plan={"engine_options": {"ttft_ms": 1.0}}), "Server: engine_options.ttft_ms: ",
    ),
    "another engine in the audit": (
        recorded(AUDITED, plan={"engine_options": {"new": 1}}), "Server: engine_options.new: not set in",
    ),
    "another data set": (recorded(AUDITED, plan={"dataset_sha256": "f" * 64}), "Server: dataset_sha256: "),
    "another harness": (
        recorded("accuracy", observed={"harness": {"git_commit": "1" * 40}}), "Server: harness.git_commit: 0000",
    ),
    "another vLLM": (
        recorded(AUDITED, observed={"software": {"vllm": "0.31.0"}}), "Server: software.vllm: not set in",
    ),
    "another machine": (recorded("accuracy", observed={"host": {"cpu": "Another"}}), "Server: host.cpu: "),
    "another machine for the result": (recorded("*", observed={"host": {"cpu": "Another"}}), "Server: host.cpu: "),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_each_changed_result_is_refused_with_its_reason(build: Submit, campaign: CampaignDir, case: str) -> None:
    change, sentence = CHANGES[case]
    change(campaign.result(BENCHMARK, "Server"))
    text = reasons(build())
    assert sentence in text
    assert f"{BENCHMARK}/Offline: " not in text


def test_refusals_of_one_cause_are_grouped() -> None:
    def refused(rule: str, text: str, where: str = "b/Offline") -> Finding:
        return compared(rule, False, text, "", text=where)

    def unofficial(reason: str, where: str = "b/Offline") -> Finding:
        return replace(refused("submit/not-official", reason, where), numbers={"cause": cause_of(reason)})

    short = refused("perf-min-duration", "performance: min_duration: 0 ms, required: at least 600,000 ms")
    brief = refused("perf-duration", "performance: duration: 8 s, required: at least 600 s")
    declared = unofficial("user.conf: min_duration 0 ms is below the required 600,000 ms")
    of_server = refused("perf-duration", "performance: duration: 9 s, required: at least 600 s", "b/Server")
    model = unofficial("the model is not X")
    weights = unofficial("weights: the model is not X", "b/Server")
    assert by_cause([short, brief, of_server, declared, model, weights]) == [
        [short, brief, declared], [of_server], [model, weights],
    ]  # fmt: skip


def test_missing_runs_are_named_with_all_other_refusals(build: Submit, campaign: CampaignDir) -> None:
    campaign.configuration.write_text("{}")
    shutil.rmtree(campaign.result(BENCHMARK, "Server").accuracy.root)
    shutil.rmtree(campaign.result(BENCHMARK, "Server").audit("TEST06"))
    outcome = build(rehearsal=False)
    refusals = {(finding.rule, finding.text) for finding in outcome.all_findings}
    assert refusals >= {
        (rule, f"{BENCHMARK}/Server") for rule in ("submit/leg-missing", "submit/not-official", "audit-missing")
    }
    (missing,) = (finding for finding in outcome.all_findings if finding.rule == "submit/leg-missing")
    assert "campaign --config" in missing.fix


def test_all_missing_runs_of_an_interrupted_campaign_are_named(campaign: CampaignDir) -> None:
    """The configuration names directories relative to another working directory."""
    server, offline = (campaign.result(BENCHMARK, name) for name in ("Server", "Offline"))
    edit(server.performance.manifest, status="interrupted", exit_code=130, error={"message": "interrupted by SIGINT"})
    (offline.audit("TEST06") / "audit_TEST06.json").unlink()
    planned = [{"leg": f"Server {kind}", "directory": f"a/b/{BENCHMARK}/Server/{kind}"} for kind in ("accuracy", "x")]
    campaign.configuration.write_text(json.dumps({"file": "my campaign.yaml", "legs": planned}))
    with pytest.raises(ExecutionError) as caught:
        gather([campaign.root])
    lines = caught.value.message.splitlines()
    assert [
        words in line
        for words, line in zip(("SIGINT", "audit_TEST06.json is missing", "Server x is missing"), lines, strict=True)
    ] == [True] * 3
    assert "campaign --config 'my campaign.yaml'" in caught.value.fix


def test_ineligible_runs_are_reported_before_missing_runs(build: Submit, campaign: CampaignDir) -> None:
    server = campaign.result(BENCHMARK, "Server")
    edit(server.performance.manifest, status="interrupted", exit_code=130, error={"message": "interrupted by SIGINT"})
    unfinished = build(rehearsal=False)
    assert {finding.rule for finding in unfinished.all_findings} == {"submit/not-official"}
    assert unfinished.exit_code() == ExitCode.NEGATIVE
    with pytest.raises(ExecutionError, match="SIGINT"):
        build()
    shutil.rmtree(server.root)
    lines = refusal_lines(build(rehearsal=False).all_findings)
    rules = [line.split(":")[0].removeprefix("  FAIL ") for line in lines if line.startswith("  FAIL ")]
    assert rules[0] == "submit/not-official"
    assert rules[-1] == "scenario-set"


def test_missing_runs_of_a_running_campaign_ask_to_wait(build: Submit, campaign: CampaignDir) -> None:
    campaign.configuration.write_text("{}")
    result = campaign.result(BENCHMARK, "Server")
    shutil.rmtree(result.accuracy.root)
    shutil.rmtree(result.audit("TEST06"))
    with campaign.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        findings = {finding.rule: finding for finding in build().all_findings if finding.text.endswith("/Server")}
    for rule in ("submit/leg-missing", "audit-missing"):
        assert "status" in findings[rule].fix
        assert f"process {os.getpid()}" in findings[rule].fix


def test_named_runs_have_the_audits_of_their_result(campaign: CampaignDir, tmp_path: Path) -> None:
    result = campaign.result(BENCHMARK, "Server")
    runs = [result.performance.root.rename(result.performance.root.with_name("run_2")), result.accuracy.root]
    (candidate,) = gather(runs)
    assert [audit.folder for audit in candidate.audits.values()] == [result.audit("TEST06")]
    audit_folder = ResultDir(Path(shutil.copytree(result.root, tmp_path / "other"))).audit("TEST06")
    (candidate,) = gather([*runs, audit_folder])
    assert [audit.folder for audit in candidate.audits.values()] == [audit_folder]
    beside = campaign.result(BENCHMARK, "Offline").audit("TEST06")  # an audit of another scenario
    shutil.rmtree(result.audit("TEST06"))
    shutil.copytree(beside, result.audit("TEST06"))
    assert gather(runs)[0].audits == {}


def test_duplicate_results_and_audits_are_refused(campaign: CampaignDir, tmp_path: Path) -> None:
    copied_result = tmp_path / "other"
    shutil.copytree(campaign.result(BENCHMARK, "Server").root, copied_result)
    with pytest.raises(InputError, match=f"two results for {BENCHMARK}/Server.*campaign.*other"):
        gather([campaign.root, copied_result])
    with pytest.raises(InputError, match=f"two TEST06 audits for {BENCHMARK}/Server"):
        gather([campaign.root, copied_result / "audit" / "TEST06"])
    with pytest.raises(InputError, match="the result of this"):
        gather([campaign.result(BENCHMARK, "Offline").root, copied_result / "audit" / "TEST06"])
    (copied_result / "audit" / "TEST06" / "audit_TEST06.json").unlink()
    with pytest.raises(InputError, match=r"audit_\S+ is missing"):
        gather([copied_result])
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="nothing is empty"):
        gather([tmp_path / "nothing"])
    with pytest.raises(InputError, match="missing does not exist"):
        gather([tmp_path / "missing"])
