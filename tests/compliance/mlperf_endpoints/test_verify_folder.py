"""`verify` on run directories of the real client: consistent ones pass, lengths decide audits, and damage is named."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance.judge.text import text
from compliance.judge.verdict import Finding, not_applied
from compliance.mlperf_endpoints.endpoints_evidence import EndpointsEvidence
from compliance.mlperf_endpoints.load import dataset_size, replayed_order
from compliance.mlperf_endpoints.verdict import RUN, FolderVerdict
from main import main as run_command
from runs.errors import ExitCode
from runs.mlperf_endpoints.find_folders import run_folders
from runs.mlperf_endpoints.folder import read_folder
from runs.mlperf_endpoints.layout import CONFIG, FILES, SAMPLES, SNAPSHOT, SUMMARY
from scenarios.status.snapshot import take_snapshot
from tests.support.mlperf_endpoints.endpoints_client import CASES, client_program, make
from tests.support.mlperf_endpoints.folder_changes import in_config, in_events, in_json, places, set_at_path, update
from tests.support.mlperf_endpoints.verdicts import judge_folder

BYTES = "bytes"  # tokenizer that counted the tokens of the recorded runs
CopyOf = Callable[[str], Path]


def finding_of(verdict: FolderVerdict, rule: str) -> Finding:
    (finding,) = [finding for finding in verdict.all_findings if finding.rule == f"endpoints-{rule}"]
    return finding


# Directories of honest servers, and the warnings on them.
HONEST = {
    "audit-honest": "", "audit-honest-concurrency": "first-token audit-kept-prompts", "concurrency": "",
    "cut-by-time": "count", "interrupted": "count drained", "offline": "", "poisson": "", "warm-up": "",
    "audit-honest/audit/reference": "", "audit-honest/audit/output_caching": "",
}  # fmt: skip


@pytest.mark.parametrize("model_path", [None, BYTES])
@pytest.mark.parametrize("name", HONEST)
def test_a_consistent_run_directory_passes(recorded: Path, name: str, model_path: str | None) -> None:
    verdict = judge_folder(recorded / name, model_path=model_path)
    assert verdict.reasons == []
    assert verdict.exit_code() == ExitCode.OK
    warned = {finding.rule for finding in verdict.of("warning") if verdict.counts(finding)}
    assert warned == {f"endpoints-{rule}" for rule in HONEST[name].split()}
    assert {"endpoints-summary", "endpoints-snapshot", "endpoints-report"} <= {
        finding.rule for finding in verdict.all_findings
    }


@pytest.mark.parametrize(("name", "passes", "broken"), [("honest", True, []), ("cached", False, ["audit-second-time"])])
def test_an_audit_is_judged_by_the_lengths_of_its_samples(
    recorded: Path, name: str, passes: bool, broken: list[str]
) -> None:
    """The client fails the honest server, whose repeated sample is short. It passes the server that keeps responses."""
    verdict = judge_folder(recorded / f"audit-{name}")
    assert [finding.rule for finding in verdict.of("error") if verdict.counts(finding)] == [
        f"endpoints-{value}" for value in broken
    ]
    assert finding_of(verdict, "audit-verdict").numbers == {"client": not passes, "ours": passes}


def test_an_audit_without_its_measured_run_is_judged(recorded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "curve" / "alone"
    shutil.copytree(recorded / "audit-honest" / "audit", folder / "audit")
    assert run_folders(tmp_path / "curve") == [folder]
    verdict = judge_folder(folder)
    assert verdict.outcome in ("PASS", "FLAG")
    assert "a measured run" in {entry.what for entry in not_applied(verdict)}
    assert finding_of(verdict, "audit-verdict").numbers["ours"] is True
    (shown,) = take_snapshot([folder]).entries
    assert (shown.kind, shown.exit_code) == ("audit", ExitCode.NEGATIVE)  # the client's verdict
    in_json("audit/audit_output_caching_test.json", lambda verdict: verdict.update(audit_qps=90.0, passed=True))(folder)
    assert "endpoints-audit-numbers" in {finding.rule for finding in judge_folder(folder).of("error")}


@pytest.mark.parametrize(("taken", "severity"), [(slice(-5, None), "warning"), (slice(4, 6), "error")])
def test_missing_completions_at_the_end_are_a_finding(copy_of: CopyOf, taken: slice, severity: str) -> None:
    def without(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        lost = places(lines, "sample.complete")[taken]
        return [line for place, line in enumerate(lines) if place not in lost]

    in_events(without)(folder := copy_of("concurrency"))
    assert finding_of(judge_folder(folder), "drained").severity == severity


def test_the_number_of_rows_is_derived_from_the_order_of_samples() -> None:
    for size, sent in ((24, 60), (24, 15), (1000, 300), (7, 7)):
        assert dataset_size(replayed_order(42, size, sent), 42) == (size, True)
    assert dataset_size(replayed_order(42, 1000, 300), 43) == (None, True)
    assert dataset_size(replayed_order(42, 200_000, 100), 42)[1] is False  # too many sizes to try all of them


def test_an_agentic_run_may_salt_a_repeated_prompt(copy_of: CopyOf) -> None:
    update("sample.issued", 3, data=lambda old: [old[0], f"[salt: 1] {old[1]}", *old[2:]])(folder := copy_of("poisson"))
    assert finding_of(judge_folder(folder), "prompts").severity == "error"
    in_config("settings/load_pattern/type", "agentic_inference")(folder)
    verdict = judge_folder(folder)
    assert finding_of(verdict, "order").severity == "note"
    assert "endpoints-prompts" not in {finding.rule for finding in verdict.all_findings}


def test_recomputed_token_counts_equal_those_of_the_client(recorded: Path) -> None:
    case = EndpointsEvidence(read_folder(recorded / "poisson"), BYTES)
    assert case.run.summary is not None
    assert case.metrics["osl"]["total"] == case.run.summary.output_sequence_lengths.total
    assert case.metrics["isl"]["total"] == case.run.summary.input_sequence_lengths.total
    assert case.metrics["tpot_ns"]["min"] == case.run.summary.tpot.min


def test_changed_input_lengths_contradict_the_prompts(copy_of: CopyOf) -> None:
    folder = copy_of("poisson")
    for name, path in (
        (SUMMARY, "input_sequence_lengths/percentiles/50.0"),
        (SNAPSHOT, "metrics/isl/percentiles/50.0"),
    ):
        in_json(name, set_at_path(path, lambda old: old + 1))(folder)
    in_json(SUMMARY, set_at_path("input_sequence_lengths/median", lambda old: old + 1))(folder)
    verdict = judge_folder(folder)
    assert {contradiction.rule for contradiction in verdict.contradictions} == {"endpoints-report"}
    verdict = judge_folder(folder, model_path=BYTES)
    assert {contradiction.rule for contradiction in verdict.contradictions} == {
        f"endpoints-{name}" for name in ("summary", "snapshot", "report")
    }


@pytest.mark.parametrize(("words", "severity"), [(1, "warning"), (100, "error")])
def test_token_counts_that_differ_by_more_than_one_percent_are_an_error(
    copy_of: CopyOf, words: int, severity: str
) -> None:
    update("sample.complete", 3, data=lambda old: [old[0], old[1] + ["word"] * words])(folder := copy_of("poisson"))
    finding = finding_of(judge_folder(folder, model_path=BYTES), "tokens")
    assert finding.severity == severity
    assert (abs(finding.numbers["difference_pct"]) > 1) == (severity == "error")


@pytest.mark.parametrize(("model_path", "severity"), [(None, "warning"), (BYTES, "error")])
def test_more_tokens_than_requested_are_reported(copy_of: CopyOf, model_path: str | None, severity: str) -> None:
    """A client that tokenizes the texts of a random model counts more tokens than the server sent."""
    in_config("model_params/max_new_tokens", 40)(folder := copy_of("poisson"))
    verdict = judge_folder(folder, model_path=model_path)
    assert finding_of(verdict, "tokens-served").severity == severity
    assert "tokenizes the text" in text(verdict, RUN)


def test_failed_samples_of_a_dead_server_are_an_error(recorded: Path) -> None:
    verdict = judge_folder(recorded / "server-died")
    finding = finding_of(verdict, "failed")
    assert (finding.severity, finding.numbers["failed"]) == ("error", 38)
    assert finding.numbers["answered_per_second"] < verdict.details.numbers["qps"] / 2


def test_a_missing_or_damaged_file_does_not_prevent_the_other_checks(copy_of: CopyOf) -> None:
    folder = copy_of("poisson")
    (folder / SNAPSHOT).unlink()
    (folder / SAMPLES).write_text("[]")
    in_json(SUMMARY, set_at_path("qps", 73.0))(folder)
    verdict = judge_folder(folder)
    assert {"endpoints-files", "endpoints-summary"} <= {finding.rule for finding in verdict.of("error")}
    assert SAMPLES in str(verdict.error)
    left = "; ".join(f"{entry.what}: {entry.why}" for entry in not_applied(verdict))
    assert SNAPSHOT in left
    assert SAMPLES in left


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_and_unreadable_content_are_errors_that_name_the_file(copy_of: CopyOf, name: str) -> None:
    folder = copy_of("poisson")
    (folder / name).write_bytes(b"\x00\xff rubbish\n")
    assert judge_folder(folder).error is not None
    (folder / name).unlink()
    os.mkfifo(folder / name)
    verdict = judge_folder(folder)
    assert verdict.exit_code() == ExitCode.BAD_INPUT
    assert name.rsplit("/", 1)[-1] in str(verdict.error)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        (SNAPSHOT, "metrics/osl/percentiles/half", 1.0),
        (SNAPSHOT, "metrics/osl/count", -1),
        (CONFIG, "model_params/max_new_tokens", 2**70),
        (CONFIG, "settings/load_pattern/target_qps", 1e-300),
        (CONFIG, "settings/runtime/min_duration_ms", 1e308),
    ],
)
def test_impossible_values_are_bad_input(copy_of: CopyOf, name: str, path: str, value: Any) -> None:
    change = in_config(path, value) if name == CONFIG else in_json(name, set_at_path(path, value))
    change(folder := copy_of("poisson"))
    verdict = judge_folder(folder)
    assert verdict.exit_code() == ExitCode.BAD_INPUT
    assert path.rsplit("/", 1)[-1] in str(verdict.error)


def test_verify_writes_a_record_for_each_run_directory(
    recorded: Path, copy_of: CopyOf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, folder = tmp_path / "verdict", copy_of("poisson")
    assert run_command(["verify", str(recorded / "offline"), str(folder), "--output", str(out)]) == ExitCode.OK
    assert "run directory of MLPerf Endpoints" in capsys.readouterr().out
    record = json.loads((out / "002-poisson" / "verify_performance.json").read_text())
    assert record["verdict"] == "PASS"
    assert set(record["sha256"]) == set(FILES)
    in_json(SUMMARY, set_at_path("qps", 73.0))(folder)
    assert run_command(["verify", str(folder)]) == ExitCode.FAILED
    assert "qps" in capsys.readouterr().err
    assert {path.name for path in folder.iterdir()} == {path.name for path in (recorded / "poisson").iterdir()}


@pytest.mark.parametrize("option", [["--accuracy-only"], ["--document", "x.md"], ["--scenario", "Server"]])
def test_options_for_loadgen_runs_are_refused(recorded: Path, option: list[str]) -> None:
    assert run_command(["verify", str(recorded / "offline"), *option]) == ExitCode.BAD_INPUT


def test_status_and_results_list_a_run_directory(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["results", str(recorded / "poisson"), "--json"]) == ExitCode.OK
    (row,) = json.loads(capsys.readouterr().out)["answer"]["results"]
    summary = json.loads((recorded / "poisson" / SUMMARY).read_text())
    assert row["samples_per_second"] == summary["qps"]
    assert row["ttft_p99_ms"] == summary["ttft"]["percentiles"]["99.0"] / 1e6
    assert run_command(["status", str(recorded / "server-died")]) == ExitCode.OK
    assert "38 failed" in capsys.readouterr().out


@pytest.mark.long  # about a minute for each case
@pytest.mark.parametrize("name", CASES)
def test_runs_of_the_real_client_are_judged(name: str, tmp_path: Path) -> None:
    program = client_program()
    if program is None:
        pytest.skip("MLPERF_ENDPOINTS_CLIENT names no client")
    verdict = judge_folder(make(program, tmp_path / "out", name))
    assert verdict.error is None
    assert bool([value for value in verdict.of("error") if verdict.counts(value)]) == name.startswith("audit-cached")


def printed_text(folder: Path, *, official: bool = False) -> str:
    return text(judge_folder(folder, official=official), RUN)


def test_the_text_begins_with_the_eligibility_and_omits_passes(recorded: Path) -> None:
    text = printed_text(recorded / "concurrency")
    assert text.splitlines()[1] == "eligible for submission: no, 3 reasons"
    assert text.count("not eligible for submission: ") == 3
    assert "pass endpoints" not in text
    assert "findings passed" in text


@pytest.mark.parametrize("official", [False, True])
def test_a_short_run_is_a_warning(official: bool, recorded: Path) -> None:
    """The official checker only warns of the duration, so a short run can be submitted."""
    assert "  warning endpoints-rule-duration: " in printed_text(recorded / "concurrency", official=official)


def test_a_failed_audit_makes_a_run_not_eligible(recorded: Path) -> None:
    text = printed_text(recorded / "audit-honest-concurrency")
    assert "not eligible for submission: endpoints-rule-audit: " in text
    assert "FAIL, required: PASS" in text
    assert "limit 55.2274" in text
    assert judge_folder(recorded / "audit-honest-concurrency", official=True).outcome == "FAIL"


def test_a_finding_names_both_files_with_their_values(copy_of: CopyOf) -> None:
    in_json(SUMMARY, lambda summary: summary.update(qps=999.0))(folder := copy_of("concurrency"))
    assert f"report.txt: QPS: 86.57, {SUMMARY}: 999.00" in printed_text(folder)


def test_settings_in_summary_and_config_are_compared(copy_of: CopyOf) -> None:
    in_config("settings/load_pattern/target_concurrency", 16)(folder := copy_of("concurrency"))
    assert "run_config.load_pattern.target_concurrency: 8, config.yaml: 16" in printed_text(folder)


def test_an_unreachable_hub_is_not_reported_as_a_damaged_file(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    verdict = judge_folder(recorded / "concurrency", model_path="organization/model")
    assert verdict.outcome == "ERROR"
    assert "damaged" not in text(verdict, RUN)


def test_results_explains_the_mark_of_runs_that_are_not_eligible(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["results", str(recorded / "concurrency")]) == ExitCode.OK
    text = capsys.readouterr().out
    assert "complete*" in text
    assert text.splitlines()[-1] == "* not eligible for submission"
