"""`main.py anchor`: it anchors all attested runs below the named directories, or none; exit codes and JSON output."""

import json
from pathlib import Path

import pytest

from runs.attestation.anchors import LEDGER_NAME, read_ledger
from runs.attestation.attestation import read_attestation
from runs.attestation.signing_key import load_signer
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from tests.conftest import RunMain, run_here
from tests.support.files.editing import SIGNER, reseal
from tests.support.files.tsa import Authority, openssl, serve_authority
from tests.support.runs.run_commands import USER_CONF


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """Return three attested runs. Anchoring reads only files and attestations."""
    for name in ("Offline/performance/run_1", "Offline/accuracy", "discarded/1-accuracy"):
        run = RunDir(tmp_path / "campaign" / name)
        run.root.mkdir(parents=True)
        run.engine_log.write_text(name)
        reseal(run)
    return tmp_path / "campaign"


def test_each_run_below_a_directory_is_anchored(campaign: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    finished = run_here("anchor", campaign, campaign / "Offline", "--ledger", ledger, "--json")
    assert finished.code == 0, finished.stderr
    anchors = json.loads(finished.stdout)["answer"]["anchors"]
    assert [Path(anchor["run"]).relative_to(campaign).as_posix() for anchor in anchors] == [
        "Offline/accuracy", "Offline/performance/run_1", "discarded/1-accuracy",
    ]  # fmt: skip
    assert {anchor["key"] for anchor in anchors} == {SIGNER.public_key.keyid}
    assert list(read_ledger(ledger)) == [anchor["digest"] for anchor in anchors]
    before = (ledger / LEDGER_NAME).read_bytes()
    again = run_here("anchor", campaign, "--ledger", ledger)
    assert (again.code, again.stdout.count("anchored at")) == (0, 3)
    assert (ledger / LEDGER_NAME).read_bytes() == before


def test_a_changed_run_prevents_anchoring_of_all_runs(campaign: Path, tmp_path: Path) -> None:
    RunDir(campaign / "Offline" / "accuracy").engine_log.write_text("another")
    finished = run_here("anchor", campaign, "--ledger", tmp_path)
    assert finished.code == 1
    assert "engine.log was changed after the run ended" in finished.stdout
    assert not (tmp_path / LEDGER_NAME).exists()


def test_time_stamps_are_written_beside_the_runs(campaign: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tsa")
    with serve_authority(authority) as url:
        finished = run_here("anchor", campaign / "Offline", "--timestamp", url)
    assert finished.code == 0, finished.stderr
    assert finished.stdout.count("anchored at") == 2
    assert len(list(campaign.rglob("seal.tsr"))) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("RUNS",), "--ledger DIR or --timestamp URL"),
        (("RUNS", "--ledger", ".", "--timestamp", "http://127.0.0.1/"), "--ledger DIR or --timestamp URL"),
        (("RUNS", "--ledger", "nowhere"), "nowhere is not a directory"),
        (("RUNS", "--timestamp", "tsa.example.org"), "not an http:// or https:// address"),
        (("no-run", "--ledger", "."), "name a directory with seal.json"),
    ],
)
def test_invalid_arguments_are_refused(
    campaign: Path, words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(campaign.parent)
    finished = run_here("anchor", *(str(campaign) if word == "RUNS" else word for word in words))
    assert (finished.code, message in finished.stderr) == (2, True), finished.stderr


RUN = ("--scenario", "Server", "--engine", "dummy")


@pytest.mark.parametrize(
    "command",
    [
        ("run", *RUN),
        ("run", *RUN, "--dry-run"),
        ("audit", "--test", "TEST06", *RUN),
        ("tune", *RUN),
        ("campaign", "--config", "campaign.yaml"),
    ],
    ids=lambda words: f"{words[0]}{' --dry-run' * ('--dry-run' in words)}",
)
def test_an_invalid_signing_key_is_refused_before_the_start(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder := tmp_path)
    (folder / "key.pem").write_text("no key")
    (folder / "campaign.yaml").write_text("benchmark: llama3.1-8b\nengine: dummy\nscenarios: [Offline]\n")
    finished = run_here(*command, "--signing-key", "key.pem", "--output-log-dir", "out")
    assert (finished.code, "--signing-key key.pem: not a private key" in finished.stderr) == (2, True), finished.stderr
    assert not (folder / "out").exists()


def test_a_run_is_signed_with_the_named_key(tmp_path: Path, run_main: RunMain) -> None:
    """All paths are relative to the working directory, which is not that of the run."""
    folder = tmp_path / "working-directory"
    openssl("genpkey", "-algorithm", "ed25519", "-out", folder / "key.pem")
    (tmp_path / "user.conf").write_text(USER_CONF)
    places = ("--user-conf", "../user.conf", "--output-log-dir", "some/run", "--signing-key", "key.pem")
    finished = run_main("--scenario", "Offline", "--engine", "dummy", "--dummy-ttft-ms", 250, *places)
    assert finished.code == 0, finished.stderr
    run = RunDir(folder / "some" / "run")
    statement, manifest = read_attestation(run), read_manifest(run.manifest)
    assert statement.key == load_signer(folder / "key.pem").public_key.keyid
    assert f"seal.json {statement.digest}" in finished.stdout
    assert statement.predicate.record_version == manifest.record
    assert statement.predicate.harness_commit == manifest.observed.harness.git_commit
