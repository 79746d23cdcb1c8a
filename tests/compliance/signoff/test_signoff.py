"""The sign-off: verdicts of the complete procedure, its guarantees, and its command."""

import hashlib
import json
import os
import re
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from compliance.judge.record import record
from compliance.signoff import judge
from compliance.signoff.claim import Claim, fields_read, read_claim
from compliance.signoff.judge import sign_off
from compliance.signoff.signoff_verdict import (
    SCOPES,
    SignOffScope,
    action,
    blocks,
    corrected_headline,
    headline,
    is_unverifiable,
    sign_off_text,
)
from runs.errors import ExitCode, InputError
from runs.loadgen.detail_log import read_detail
from runs.record.layout import RunDir
from scenarios.commands.signoff import MAX_DIRECTORIES
from tests.conftest import ROOT, run_here
from tests.support.files.editing import edit_detail, reseal
from tests.support.published import PUBLISHED, needs_published
from tests.support.runs.counted_reads import READERS, count_reads
from tests.support.runs.signoff_fixtures import FrozenRuns, slugs

SHORT_S = 0.05
OFFLINE_PATCH = ("off-1", "off-2", "off-acc"), ("off-fast-1", "off-fast-2")
LONG_S = 600.0  # the limit ends the wait
FIELDS = {
    "short_name", "audit_scope", "auditor_status", "verdict", "action", "lever_class", "lever_evidence",
    "counts_as_kernel_win", "e2e_delta_pct", "lever_decomposition", "non_overlapping", "same_conditions_ok",
    "baseline_drift_pct", "engagement_ok", "headline_integrity", "metrics", "correctness_status", "flags", "reasons",
    "note", "noise_band_pct", "log_sha256", "corrected_headline", "class_a",
}  # fmt: skip


def test_a_consistent_pair_passes_with_its_numbers(runs: FrozenRuns) -> None:
    verdict = sign_off("harness", runs.paths("srv-trace", "srv-acc"))
    assert (verdict.outcome, action(verdict), verdict.exit_code()) == ("PASS", "pass", ExitCode.OK)
    derived = json.loads((runs("srv-trace") / "result.json").read_text())["derived"]
    assert verdict.details.metrics["ref"]["tokens_per_second"] == pytest.approx(derived["tokens_per_second"])
    assert verdict.details.metrics["ref"]["ttft_p99_ms"] == pytest.approx(derived["ttft_ns"]["p99"] / 1e6)
    replayed = [reason for reason in verdict.all_findings if reason.slug == "replayed"]
    assert {reason.numbers["samples"] for reason in replayed} == {480, 32}


def test_the_record_has_all_fields_in_each_scope(runs: FrozenRuns, tmp_path: Path) -> None:
    edited = runs.copy(tmp_path / "run", "ss-1", ["scale_reported", "result_99.00_percentile_latency_ns", 0.5])
    for scope in ("baseline", "profile", "harness", "bundle"):
        content = record(sign_off(scope, [edited, runs("ss-acc")]))  # type: ignore[arg-type]
        assert content.keys() >= FIELDS
        assert json.loads(json.dumps(content)) == content
        failed = [reason for reason in content["reasons"] if reason["severity"] == "error"]
        assert "log-arithmetic" in {finding["rule"] for finding in failed}
        assert all(Path(path).exists() for record in failed for path in record["files"] or [""])


def test_sign_off_does_not_write_into_runs(runs: FrozenRuns, tmp_path: Path) -> None:
    def state(folder: Path) -> dict[str, tuple[str, int]]:
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return {str(file): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns) for file in files}

    copies = [runs.copy(tmp_path / name, name) for name in ("ss-trace", "ss-acc")]
    before = state(tmp_path)
    assert sign_off("harness", copies).outcome == "PASS"
    assert state(tmp_path) == before


@pytest.mark.parametrize(
    ("scope", "policy", "blocks"),
    [("harness", None, False), ("bundle", None, True), ("harness", "closed", True), ("bundle", "open", False)],
)
def test_an_internal_error_is_a_degraded_sign_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: SignOffScope, policy: Any, blocks: bool
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("the tool is broken")

    monkeypatch.setattr(judge, "judge_sides", broken)
    verdict = sign_off(scope, [tmp_path], policy=policy)
    content = record(verdict)
    assert (content["verdict"], content["auditor_status"], content["blocks"]) == (None, "degraded", blocks)
    assert verdict.exit_code() == ExitCode.FAILED
    assert "the tool is broken" in content["error"]


def wait_without_end(*_: Any) -> None:
    time.sleep(LONG_S)


def test_a_sign_off_beyond_its_time_limit_is_degraded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(judge, "judge_sides", wait_without_end)
    verdict = sign_off("bundle", [tmp_path], limit_s=SHORT_S)
    assert (verdict.outcome, blocks(verdict)) == ("ERROR", True)
    assert verdict.error is not None
    assert "no verdict within 0.05 s" in verdict.error.message


def test_each_file_is_parsed_once(runs: FrozenRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = count_reads(monkeypatch)
    assert sign_off("harness", runs.paths("srv-trace", "srv-acc")).outcome == "PASS"
    assert {name for name, _ in parsed} == set(READERS)
    assert {key for key, count in parsed.items() if count > 1} == set()


def test_missing_evidence_is_a_fail_and_not_an_internal_error(runs: FrozenRuns, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    verdict = sign_off("harness", [tmp_path / "nothing"], policy="open")
    assert (verdict.outcome, is_unverifiable(verdict), verdict.error) == ("FAIL", True, None)


def test_empty_fields_of_a_claim_are_ignored(runs: FrozenRuns) -> None:
    ref, cand = runs.paths("off-1", "off-2", "off-acc"), runs.paths("off-fast-1", "off-fast-2")
    verdict = sign_off("patch", ref, cand, Claim(levers=["tpot_ms"], ref={"tokens_per_second": None}))
    assert verdict.outcome == "PASS"
    rates = [
        median(json.loads((run / "result.json").read_text())["derived"]["tokens_per_second"] for run in side)
        for side in (ref[:2], cand)
    ]
    assert verdict.details.e2e_delta_pct == pytest.approx((rates[1] / rates[0] - 1) * 100)
    assert f"end-to-end gain: {verdict.details.e2e_delta_pct:+.3f}%" in sign_off_text(verdict)
    assert (verdict.details.lever_class, verdict.details.correctness_status) == ("A", "byte_parity_pass")
    assert record(verdict)["counts_as_kernel_win"] is True


@pytest.mark.parametrize(
    ("scope", "runs_of", "claim"),
    [
        ("harness", ("ss-1", "ss-acc"), {"ref": {"tokens_per_second": 1e9}}),
        ("baseline", ("ss-1", "ss-3", "ss-acc"), {"ref": {"goodput": 1.0}}),
        ("bundle", ("ss-1", "ss-acc"), {"ref": {"latency_p90_ms": 1e9}}),  # less than the truth
    ],
)
def test_a_claimed_number_that_differs_is_flagged(
    runs: FrozenRuns, scope: SignOffScope, runs_of: tuple[str, ...], claim: dict[str, Any]
) -> None:
    verdict = sign_off(scope, runs.paths(*runs_of), claim=Claim.model_validate(claim))
    assert (verdict.outcome, action(verdict)) == ("FLAG", "flag")
    assert [finding.rule for finding in verdict.of("warning")] == ["G-2/claim_vs_raw"]
    assert corrected_headline(verdict) is None


@pytest.mark.parametrize(
    ("scope", "ref", "cand", "claim", "headline"),
    [
        ("harness", ("ss-1", "ss-acc"), (), {"ref": {"latency_p90_ms": 0.1}}, "latency_p90_ms"),
        ("baseline", ("srv-1", "srv-2", "srv-acc"), (), {"ref": {"tokens_per_second": 1e9}}, "tokens_per_second"),
        ("patch", *OFFLINE_PATCH, {"delta_pct": 66.9}, "tokens_per_second"),
        ("patch", *OFFLINE_PATCH, {"cand": {"tokens_per_second": 99999}}, "tokens_per_second"),
        ("patch", *OFFLINE_PATCH, {"ref": {"tokens_per_second": 1}}, "tokens_per_second"),
    ],
)
def test_an_overstated_headline_is_corrected(
    runs: FrozenRuns,
    scope: SignOffScope,
    ref: tuple[str, ...],
    cand: tuple[str, ...],
    claim: dict[str, Any],
    headline: str,
) -> None:
    verdict = sign_off(scope, runs.paths(*ref), runs.paths(*cand), Claim.model_validate(claim))
    assert (verdict.outcome, action(verdict)) == ("FLAG", "correct_headline")
    (finding,) = verdict.of("warning")
    assert finding.rule == "G-2/overstated"
    expected = f"{headline} {verdict.details.metrics['ref'][headline]:.6g}"
    if cand:
        expected += f" to {verdict.details.metrics['cand'][headline]:.6g}, {verdict.details.e2e_delta_pct:+.2f}%"
    assert finding.text.endswith(f"; corrected headline: {expected}")
    assert record(verdict)["corrected_headline"] == expected
    assert f"corrected headline: {expected}" in sign_off_text(verdict)


@pytest.mark.parametrize("claim", [{"delta_pct": 5.0}, {"ref": {"tokens_per_second": 1e9}}])
def test_an_understated_claim_keeps_its_headline(runs: FrozenRuns, claim: dict[str, Any]) -> None:
    ref, cand = OFFLINE_PATCH
    verdict = sign_off("patch", runs.paths(*ref), runs.paths(*cand), Claim.model_validate(claim))
    assert (verdict.outcome, action(verdict), corrected_headline(verdict)) == ("FLAG", "flag", None)


@pytest.mark.parametrize(
    ("scope", "runs_of", "claim", "unused"),
    [
        ("harness", ("ss-1", "ss-acc"), {"delta_pct": 50.0}, ["delta_pct"]),
        ("bundle", ("ss-1", "ss-acc"), {"levers": ["magic"], "lever_class": "A"}, ["lever_class", "levers"]),
        ("profile", ("ss-1",), {"isolated_speedup": 9.0}, ["isolated_speedup"]),
        ("baseline", ("ss-1", "ss-3", "ss-acc"), {"cand": {"tokens_per_second": 1.0, "ttft_p50_ms": None}}, ["cand"]),
        ("harness", ("ss-1", "ss-acc"), {"cand": {"tokens_per_second": None}, "delta_pct": None}, None),
    ],
)
def test_a_claim_field_unused_by_the_scope_is_a_note(
    runs: FrozenRuns, scope: SignOffScope, runs_of: tuple[str, ...], claim: dict[str, Any], unused: list[str] | None
) -> None:
    verdict = sign_off(scope, runs.paths(*runs_of), claim=Claim.model_validate(claim))
    fields = [finding.numbers["fields"] for finding in verdict.of("note") if finding.rule == "G-2/unused_field"]
    assert (verdict.outcome, fields) == ("PASS", [] if unused is None else [unused])


def test_the_document_names_the_claim_fields_of_each_scope() -> None:
    rows = re.findall(r"(?m)^\| (`[^|]*`) \| ([a-z, ]+) \|", (ROOT / "docs/signoff-rules.md").read_text())
    named = {field: set(scopes.split(", ")) for fields, scopes in rows for field in re.findall("`([a-z_]+)`", fields)}
    read = {scope: fields_read(scope, with_candidate=True) for scope in SCOPES}
    for name in Claim.model_fields:
        reading = {scope for scope in SCOPES if name in read[scope]}
        assert named[name] == ({"all"} if reading == set(SCOPES) else reading)


@pytest.mark.parametrize("key", ["result_completed_samples_per_sec", "result_90.00_percentile_latency_ns"])
def test_a_missing_metric_is_unverifiable_and_named(runs: FrozenRuns, tmp_path: Path, key: str) -> None:
    run = runs.copy(tmp_path / "run", "srv-1", ["set_detail", key, None])
    verdict = sign_off("harness", [run, runs("srv-acc")])
    assert (verdict.outcome, is_unverifiable(verdict)) == ("FAIL", True)
    assert headline(verdict).startswith(f"FAIL (unverifiable), action eject: P-1/null_metric: {key} is null")


def test_damaged_evidence_is_unverifiable(runs: FrozenRuns, tmp_path: Path) -> None:
    damaged = runs.copy(tmp_path / "run", "srv-1", ["cut", "requests.jsonl", 0.7])
    verdict = sign_off("harness", [damaged, runs("srv-acc")])
    assert "P-1/damaged_raw" in {finding.rule for finding in verdict.of("error")}
    assert is_unverifiable(verdict)


def test_a_patch_requires_an_accuracy_run_of_the_candidate(runs: FrozenRuns) -> None:
    """The accuracy of the reference does not prove that of a candidate."""
    cand = runs.paths("ss-fast-1", "ss-fast-2")
    claim = Claim(levers=["tpot_ms"])
    assert not blocks(sign_off("patch", runs.paths("ss-1", "ss-3"), [*cand, runs("ss-fast-acc")], claim))
    verdict = sign_off("patch", runs.paths("ss-1", "ss-3"), [*cand, runs("ss-acc")], claim)
    assert {finding.rule for finding in verdict.all_findings if finding.severity == "error"} == {"H-1/other_path"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"levers": ["x"], "noise_band_pct": 5}', "noise_band_pct: "),
        ('{"delta_pct": NaN}', "cannot be read"),
        ('{"delta_pct": "much"}', "delta_pct: Input should be a valid number"),
        ('{"colour": "red"}', "colour: Extra inputs are not permitted"),
    ],
)
def test_a_claim_with_invalid_fields_is_refused(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "claim.json"
    path.write_text(content)
    with pytest.raises(InputError, match=why):
        read_claim(path)


@needs_published
def test_published_results_are_unverifiable() -> None:
    folders = {path.parent for path in PUBLISHED.rglob("mlperf_log_*")}
    folders |= {path.parent for path in folders if path.name == "accuracy"}
    assert len(folders) > 8
    for folder in sorted(folders):
        verdict = sign_off("harness", [folder])
        assert (verdict.outcome, is_unverifiable(verdict), verdict.error) == ("FAIL", True, None), folder
        assert any(
            "manifest.json" in r.text or "missing" in r.text or "no LoadGen logs" in r.text
            for r in verdict.all_findings
        )


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_writes_the_verdict_and_ends_with_its_exit_code(runs: FrozenRuns, tmp_path: Path) -> None:
    out = tmp_path / "audit_verdict.json"
    done = run_here("signoff", "--scope", "baseline", "--ref", *runs.paths("srv-1", "srv-2", "srv-acc"), "--out", out)
    assert (done.code, json.loads(out.read_text())["verdict"]) == (0, "PASS"), done.stdout + done.stderr
    assert "Sign-off, scope baseline: PASS" in done.stdout
    done = run_here(
        "signoff", "--scope", "harness", "--ref", runs("off-1"), "--ref", runs("off-acc"), "--out", out, "--strict-flag"
    )
    assert done.code == 1
    assert "caching_audit_absent" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "--scope: missing"),
        (("--scope", "harness"), "--ref: missing"),
        (("--scope", "harness", "--ref", "nowhere"), "--ref nowhere does not exist"),
        (("--scope", "harness", "--ref", "README.md"), "--ref README.md is a file, not a directory"),
        (("--scope", "harness", "--ref", *[os.curdir] * (MAX_DIRECTORIES + 1)), f"{MAX_DIRECTORIES + 1} directories"),
        (("--scope", "patch", "--ref", os.curdir), "--cand is missing"),
        (("--scope", "harness", "--ref", os.curdir, "--cand", os.curdir), "--cand is not supported"),
        (("--scope", "harness", "--ref", os.curdir, "--noise-band", "0"), "--noise-band 0"),
        (("--scope", "harness", "--ref", os.curdir, "--claim", "nowhere.json"), "--claim nowhere.json"),
    ],
)
def test_a_mistake_is_reported_with_its_value(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(ROOT)
    done = run_here("signoff", *arguments)
    assert done.code == ExitCode.BAD_INPUT
    assert why in done.stderr
    assert "fix:" in done.stderr


@pytest.mark.parametrize(
    ("revision", "status", "changed", "failed"),
    [
        ("d6147c7eb7", "M loadgen.cc", {}, {"patched_loadgen"}),
        ("NA", "NA", {"/README_FAQ.md": None, "/PKG-INFO": "0" * 40}, set()),  # built from the source distribution
        ("NA", "NA", {"/loadgen.cc": "0" * 40}, {"patched_loadgen"}),
    ],
)
def test_changed_loadgen_sources_fail(
    runs: FrozenRuns, tmp_path: Path, revision: str, status: str, changed: dict[str, str | None], failed: set[str]
) -> None:
    run = RunDir(runs.copy(tmp_path / "run", "off-1"))
    files = read_detail(run.detail).values["loadgen_file_sha1"] | changed
    edit_detail(run, "loadgen_file_sha1", {name: sha1 for name, sha1 in files.items() if sha1 is not None})
    edit_detail(run, "loadgen_version", f"6.0.17 @ {revision}")
    edit_detail(run, "loadgen_git_status_message", status)
    reseal(run)
    assert slugs(sign_off("baseline", [run.root, runs("off-2")])) & {"patched_loadgen", "forged_log"} == failed
