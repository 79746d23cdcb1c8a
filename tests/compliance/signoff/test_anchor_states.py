"""States of attestations (anchored, signed, not signed) on runs that were edited and signed again."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from compliance.judge.verdict import Finding
from compliance.results.attestation_check import attested
from compliance.signoff.anchored import Trust, anchored, chained
from compliance.signoff.judge import sign_off
from compliance.signoff.signoff_verdict import sign_off_text
from runs.attestation.anchors import Entry, add_to_ledger, read_authorities, read_ledger, request_time_stamp
from runs.attestation.attestation import read_attestation
from runs.attestation.signing_key import signer_of
from runs.attestation.statements import attest
from runs.errors import ExitCode
from runs.record.layout import CampaignDir, RunDir
from runs.record.manifest import Manifest, read_manifest
from tests.conftest import run_here
from tests.signoff.forge.faults import set_manifest
from tests.signoff.forge.manifest_faults import shorten_requests
from tests.support.files.editing import SIGNER, reseal
from tests.support.files.tsa import Authority, serve_authority
from tests.support.runs.signoff_fixtures import FrozenRuns

OTHER_KEY = signer_of(Ed25519PrivateKey.generate())
RUNS = ("srv-1", "srv-acc")  # runs of one result


class Anchored:
    """Two runs that are signed and anchored in both ways. Copy them before a change."""

    def __init__(self, folder: Path, runs: FrozenRuns) -> None:
        self.root, self.ledger = folder / "runs", folder / "ledger"
        for name in RUNS:
            shutil.copytree(runs(name), self.root / name)
            reseal(RunDir(self.root / name))
        self.ledger.mkdir()
        add_to_ledger(self.ledger, {name: read_attestation(RunDir(self.root / name)) for name in RUNS})
        self.authority = Authority(folder / "tsa")
        with serve_authority(self.authority) as url:
            for name in RUNS:
                request_time_stamp(url, RunDir(self.root / name))

    def trust(self) -> dict[str, Trust]:
        return {
            "ledger": Trust(read_ledger(self.ledger)),
            "time stamp": Trust(authorities=read_authorities(self.authority.root)),
        }

    def copy(self, folder: Path) -> list[RunDir]:
        shutil.copytree(self.root, folder)
        return [RunDir(folder / name) for name in RUNS]


@pytest.fixture(scope="module")
def anchored_runs(tmp_path_factory: pytest.TempPathFactory) -> Anchored:
    return Anchored(tmp_path_factory.mktemp("anchored"), FrozenRuns(tmp_path_factory))


def manifest_of(run: RunDir) -> Manifest | None:
    return read_manifest(run.manifest) if run.manifest.is_file() else None


def state(run: RunDir, trust: Trust, manifest: Manifest | None = None) -> list[Finding]:
    return list(anchored(run, manifest, trust))


def rules(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity) for finding in findings]


# Edits of a run -----------------------------------------------------------------------------------------------------


def change_one_digit(path: Path) -> None:
    content = path.read_bytes()
    place = next(place for place in range(len(content) // 2, len(content)) if chr(content[place]).isdigit())
    path.write_bytes(content[:place] + (b"7" if content[place] != ord("7") else b"3") + content[place + 1 :])


EDITS: dict[str, Callable[[RunDir, RunDir], object]] = {  # changes of the performance and of the accuracy run
    "a digit in the record": lambda first, _: change_one_digit(first.manifest),
    "a digit in the answers": lambda _, second: change_one_digit(second.accuracy_log),
    "answers sooner": lambda first, _: shorten_requests(first, 0.8),
    "result.json removed": lambda first, _: first.result.unlink(),
    "audit.config added": lambda first, _: first.audit_config.write_text("added"),
    "the summary of the other leg": lambda first, second: shutil.copy(second.summary, first.summary),
}


@pytest.fixture(params=EDITS)
def edited_runs(request: pytest.FixtureRequest, anchored_runs: Anchored, tmp_path: Path) -> list[RunDir]:
    runs = anchored_runs.copy(tmp_path / "runs")
    EDITS[request.param](*runs)
    return runs


def test_an_edited_and_resealed_run_is_found_by_its_anchor_only(
    anchored_runs: Anchored, edited_runs: list[RunDir]
) -> None:
    (changed,) = [run for run in edited_runs if list(attested(run))]
    (finding,) = attested(changed)
    assert finding.files[0].name in finding.text
    assert finding.files[0] != changed.seal
    for trust in anchored_runs.trust().values():  # the attestation is the anchored one and does not fit
        assert rules(state(changed, trust)) == [("anchored", "note")]
    for signer in (SIGNER, OTHER_KEY):
        attest(changed, signer, record_version=3, harness_commit=None, previous=None)
        assert list(attested(changed)) == []
        assert rules(state(changed, Trust())) == [("anchored", "note")]
        assert state(changed, Trust())[0].text.startswith("signed, not anchored")
        for trust in anchored_runs.trust().values():
            assert {("anchored", "error")} == set(rules(state(changed, trust)))
            assert {("attested", "error")} <= set(rules(state(changed, replace(trust, key="ab" * 32))))


# The states ---------------------------------------------------------------------------------------------------------


def test_untouched_runs_are_anchored(anchored_runs: Anchored, tmp_path: Path) -> None:
    for trust in anchored_runs.trust().values():
        for run in anchored_runs.copy(tmp_path / str(id(trust))):
            assert list(attested(run)) == []
            (finding,) = state(run, replace(trust, key=SIGNER.public_key.keyid), manifest_of(run))
            assert (finding.rule, finding.severity) == ("anchored", "note")
            assert finding.text.startswith("anchored at 20")
            assert finding.text.endswith("after the run ended")


def entry(run: RunDir, time: datetime) -> dict[str, Entry]:
    statement = read_attestation(run)
    return {statement.digest: Entry(digest=statement.digest, time=time, name="a run", key=statement.key)}


def test_the_earliest_anchor_counts(anchored_runs: Anchored, tmp_path: Path) -> None:
    run, _ = anchored_runs.copy(tmp_path / "runs")
    before = datetime.now(UTC) - timedelta(days=1)
    both = replace(anchored_runs.trust()["time stamp"], ledger=entry(run, before))
    assert f"{before:%Y-%m-%d %H:%M:%S} UTC, in the ledger as a run" in state(run, both)[0].text
    late = replace(both, ledger=entry(run, before + timedelta(days=9)))
    assert "by a time stamp" in state(run, late)[0].text


def test_a_run_anchored_before_its_end_is_a_warning(anchored_runs: Anchored, tmp_path: Path) -> None:
    run, _ = anchored_runs.copy(tmp_path / "runs")
    manifest = manifest_of(run)
    assert manifest is not None
    ended = datetime.fromtimestamp((manifest.end_time_ns or 0) / 1e9, UTC)
    for minutes, severity in ((-5, "warning"), (0, "note"), (5, "note")):
        trust = Trust(entry(run, ended + timedelta(minutes=minutes)))
        assert rules(state(run, trust, manifest)) == [("anchored", severity)]


def test_an_unknown_key_is_reported_for_an_anchored_run(anchored_runs: Anchored, tmp_path: Path) -> None:
    run, _ = anchored_runs.copy(tmp_path / "runs")
    trust = anchored_runs.trust()["ledger"]
    run.engine_log.write_text("another")
    for signer, is_known in ((SIGNER, True), (OTHER_KEY, False)):
        digest = attest(run, signer, record_version=3, harness_commit=None, previous=None)
        (finding,) = state(run, trust)
        assert digest in finding.text
        assert ("nor any attestation signed by key" in finding.text) is not is_known


def test_a_time_stamp_without_trusted_authority_is_not_an_anchor(anchored_runs: Anchored, tmp_path: Path) -> None:
    run, _ = anchored_runs.copy(tmp_path / "runs")
    (finding,) = state(run, Trust())
    assert (finding.severity, "--timestamp-ca" in finding.text) == ("note", True)
    run.time_stamp.unlink()
    assert rules(state(run, anchored_runs.trust()["time stamp"])) == [("anchored", "error")]


def test_a_run_without_attestation_is_reported_as_not_signed(anchored_runs: Anchored, tmp_path: Path) -> None:
    run, _ = anchored_runs.copy(tmp_path / "runs")
    for break_it in (lambda: run.seal.write_text("{}"), run.seal.unlink):
        break_it()
        assert state(run, Trust())[0].text.startswith("not signed")
        assert rules(state(run, Trust())) == [("anchored", "note")]
        assert rules(state(run, anchored_runs.trust()["ledger"])) == [("anchored", "error")]
        assert [finding.rule for finding in attested(run)] == ["attested"]


# The chain of a campaign --------------------------------------------------------------------------------------------


def seal(run: RunDir, previous: str | None) -> str:
    return attest(run, SIGNER, record_version=3, harness_commit=None, previous=previous)


@pytest.fixture
def campaign(tmp_path: Path) -> list[RunDir]:
    """Return four runs in the directory of a campaign. Each attestation names the previous one."""
    runs = [RunDir(tmp_path / "campaign" / "bench" / scenario / "accuracy") for scenario in "abcd"]
    digest = None
    for run in runs:
        run.root.mkdir(parents=True)
        run.manifest.write_text(run.root.parent.name)
        digest = seal(run, digest)
    CampaignDir(tmp_path / "campaign").configuration.write_text("{}")
    return runs


def test_a_complete_chain_of_attestations_has_no_findings(campaign: list[RunDir], tmp_path: Path) -> None:
    assert list(chained(campaign)) == []
    campaign[1].root.rename(tmp_path / "campaign" / "discarded")  # within the campaign
    assert list(chained(campaign[:1])) == []


def sealed_again(runs: list[RunDir]) -> None:
    runs[1].manifest.write_text("edited")
    seal(runs[1], read_attestation(runs[0]).digest)


def unreadable(runs: list[RunDir]) -> None:
    runs[1].seal.write_text("{}")


@pytest.mark.parametrize("change", [sealed_again, unreadable, lambda runs: shutil.rmtree(runs[1].root)])
def test_a_replaced_or_missing_attestation_is_reported_at_its_successor(
    campaign: list[RunDir], change: Callable[[list[RunDir]], None]
) -> None:
    before = read_attestation(campaign[1]).digest
    change(campaign)
    (finding,) = chained(campaign[-1:])  # with any selection of its runs
    assert (finding.rule, finding.severity, finding.files) == ("statement-chain", "warning", (campaign[2].seal,))
    assert before in finding.text


def test_two_runs_that_name_one_predecessor_are_reported(campaign: list[RunDir]) -> None:
    seal(campaign[3], read_attestation(campaign[1]).digest)
    (finding,) = chained(campaign)
    assert finding.files == (campaign[2].seal, campaign[3].seal)
    assert str(campaign[1].root) in finding.text


def test_a_run_outside_its_campaign_has_no_chain_finding(campaign: list[RunDir], tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(campaign[2].root, moved)
    assert list(chained([RunDir(moved)])) == []


# The command --------------------------------------------------------------------------------------------------------


def test_sign_off_reports_whether_each_run_is_anchored(anchored_runs: Anchored, tmp_path: Path) -> None:
    runs = anchored_runs.copy(tmp_path / "runs")
    roots = [run.root for run in runs]
    plain = sign_off("harness", roots)
    assert plain.outcome in ("PASS", "FLAG"), sign_off_text(plain)
    assert sign_off_text(plain).count("anchored: signed, not anchored") == 2
    for trust in anchored_runs.trust().values():
        verdict = sign_off("harness", roots, trust=trust)
        assert verdict.outcome == plain.outcome
        assert sign_off_text(verdict).count("anchored: anchored at 20") == 2
    set_manifest(runs[0], "asked.vllm", None)
    assert sign_off("harness", roots, trust=anchored_runs.trust()["ledger"]).outcome == "FAIL"
    reseal(runs[0])
    assert sign_off("harness", roots).outcome == plain.outcome  # no rule on the content finds this edit
    again = sign_off("harness", roots, trust=anchored_runs.trust()["ledger"])
    assert {finding.rule for finding in again.findings if finding.severity == "error"} == {"anchored"}


def test_options_for_anchors_are_applied_by_the_command(anchored_runs: Anchored, tmp_path: Path) -> None:
    roots = [run.root for run in anchored_runs.copy(tmp_path / "runs")]
    command = ("signoff", "--scope", "harness", "--ref", *roots)
    trust = ("--ledger", anchored_runs.ledger, "--timestamp-ca", anchored_runs.authority.root)
    done = run_here(*command, *trust, "--key", SIGNER.public_key.keyid)
    assert (done.code, done.stdout.count("anchored at 20")) == (ExitCode.OK, 2), done.stdout
    done = run_here(*command, *trust, "--key", OTHER_KEY.public_key.keyid)
    assert (done.code, done.stdout.count("signed by key")) == (ExitCode.NEGATIVE, 2 + 1)  # and in the headline
    for words, why in (
        (("--ledger", tmp_path / "none"), "is not a directory"),
        (("--ledger", tmp_path), "anchors.jsonl"),
        (("--timestamp-ca", tmp_path / "none"), "--timestamp-ca"),
        (("--key", "ab"), "not 64 hex digits"),
        (("--ledger", anchored_runs.ledger, "--remeasure", "1"), "--remeasure"),
    ):
        done = run_here(*command, *words)
        assert (done.code, why in done.stderr) == (ExitCode.BAD_INPUT, True), done.stderr
