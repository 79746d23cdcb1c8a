"""The attestation of a finished run: its content, changed files, and its key."""

import base64
import json
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.dsse import Envelope

from runs.attestation import attestation
from runs.attestation.attestation import PAYLOAD_TYPE, Predicate, broken_files, read_attestation
from runs.attestation.signing_key import load_signer
from runs.attestation.statements import attest, last_statement
from runs.errors import InputError, SetupError
from runs.files.writing import sha256_of
from runs.record.layout import RunDir
from tests.support.files.editing import SIGNER

Json = dict[str, Any]


def seal(run: RunDir, previous: str | None = None) -> str:
    return attest(run, SIGNER, record_version=3, harness_commit="abc", previous=previous)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    (run.root / "replicas").mkdir(parents=True)
    for name in sorted(run.own_names - {"audit.config"}):
        (run.root / name).write_text(name)
    (run.root / "replicas" / "0.log").write_text("a log")
    return run


def broken(run: RunDir) -> list[tuple[str, str]]:
    return [(broken_file.name, broken_file.state) for broken_file in broken_files(run, read_attestation(run))]


def test_an_unchanged_run_matches_its_attestation(run: RunDir) -> None:
    digest = seal(run)
    (run.root / "verify_performance.txt").write_text("a verdict, written later")
    run.time_stamp.write_bytes(b"a time stamp, fetched later")
    attestation = read_attestation(run)
    assert attestation.digest == digest == sha256_of(run.seal)
    assert attestation.key == SIGNER.public_key.keyid
    assert attestation.predicate == Predicate(record_version=3, harness_commit="abc", previous=None)
    assert broken(run) == []


def test_the_envelope_follows_dsse_and_in_toto(run: RunDir) -> None:
    """DSSE and in-toto specify the envelope. openssl checks the signature."""
    seal(run)
    envelope = json.loads(run.seal.read_bytes())
    payload = base64.b64decode(envelope["payload"])
    statement = json.loads(payload)
    assert envelope["payloadType"] == PAYLOAD_TYPE == "application/vnd.in-toto+json"
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert {
        "name": "manifest.json",
        "digest": {"sha256": sha256_of(run.manifest)},
        "annotations": {"size": run.manifest.stat().st_size},
    } in statement["subject"]
    assert {record["name"] for record in statement["subject"]} == run.own_names - {"audit.config"} | {"replicas/0.log"}
    assert statement["predicateType"] == "urn:mlperf-llama-vllm:leg:v1"
    assert statement["predicate"] == {"record_version": 3, "harness_commit": "abc", "previous": None}
    (signature,) = envelope["signatures"]
    key, signed, sig = (run.root.parent / name for name in ("key.der", "signed", "sig"))
    key.write_bytes(bytes.fromhex("302a300506032b6570032100" + signature["keyid"]))
    signed.write_bytes(b"DSSEv1 28 %b %d %b" % (PAYLOAD_TYPE.encode(), len(payload), payload))
    sig.write_bytes(base64.b64decode(signature["sig"]))
    command = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", key, "-in", signed, "-sigfile", sig]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize("name", sorted({*RunDir(Path()).own_names - {"audit.config"}, "replicas/0.log"}))
def test_a_changed_byte_is_reported_with_its_file(run: RunDir, name: str) -> None:
    seal(run)
    with (run.root / name).open("r+b") as stream:
        stream.write(b"X")
    assert broken(run) == [(name, "changed")]


def test_a_file_of_another_size_is_reported_without_hashing(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    seal(run)
    size = run.engine_log.stat().st_size
    with run.engine_log.open("r+b") as stream:
        stream.truncate(6 * 10**9)
    hashed: list[Path] = []
    monkeypatch.setattr(attestation, "_digest", lambda path: hashed.append(path) or sha256_of(path))
    (changed,) = broken_files(run, read_attestation(run))
    assert (changed.name, changed.state) == ("engine.log", "changed")
    assert (changed.attested, changed.actual) == (f"{size:,} bytes", "6,000,000,000 bytes")
    assert run.engine_log not in hashed


def test_an_attestation_without_sizes_is_compared_by_hashes(run: RunDir) -> None:
    """Attestations of earlier versions have no sizes."""
    seal(run)
    earlier = replace(read_attestation(run), sizes={})
    assert list(broken_files(run, earlier)) == []
    with run.engine_log.open("r+b") as stream:
        stream.truncate(2**40)
    assert [(broken_file.name, broken_file.state) for broken_file in broken_files(run, earlier)] == [
        ("engine.log", "changed")
    ]


def test_missing_and_added_files_are_reported(run: RunDir) -> None:
    seal(run)
    run.engine_log.unlink()
    run.audit_config.write_text("*.*.mode = 2")
    assert broken(run) == [("engine.log", "missing"), ("audit.config", "added")]


# Invalid attestations
# ----------------------------------------------------------------------------------------------


def with_envelope_fields(**values: object) -> Callable[[Json], object]:
    """Return a change of fields of the envelope."""
    return lambda envelope: {**envelope, **values}


def signed(**values: object) -> Callable[[Json], object]:
    """Return a change of fields of the signature."""
    return lambda envelope: {**envelope, "signatures": [{**envelope["signatures"][0], **values}]}


def with_statement_fields(change: Callable[[Json], object]) -> Callable[[Json], object]:
    """Return a change of the statement, which the key of the tests signs again."""

    def resign(envelope: Json) -> object:
        statement = json.loads(base64.b64decode(envelope["payload"]))
        change(statement)
        again = Envelope(json.dumps(statement).encode(), envelope["payloadType"], {})
        again.sign(SIGNER)
        return again.to_dict()

    return resign


BAD_SIGNATURE = "the signature is not by key"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: [], "is not a JSON object"),
        (lambda _: {"schema_version": 1, "sealed_ns": 1, "files": {}}, "not the attestation of a run: payload"),
        (with_envelope_fields(signatures=[]), "signatures"),
        (lambda record: {**record, "signatures": record["signatures"] * 2}, "signatures"),
        (with_envelope_fields(payload="!"), BAD_SIGNATURE),
        (with_envelope_fields(payload=base64.b64encode(b"{}").decode()), BAD_SIGNATURE),
        (
            with_envelope_fields(payloadType="text/plain"),
            "the payload is 'text/plain', not application/vnd.in-toto+json",
        ),
        (signed(sig="AAAA"), BAD_SIGNATURE),
        (signed(keyid="ab" * 32), BAD_SIGNATURE),
        (signed(keyid="mine"), "keyid"),
        (with_statement_fields(lambda value: value.update(_type="https://in-toto.io/Statement/v0.1")), "_type"),
        (
            with_statement_fields(lambda value: value.update(predicateType="https://slsa.dev/provenance/v1")),
            "predicateType",
        ),
        (with_statement_fields(lambda record: record["subject"][0].pop("digest")), "subject.0.digest"),
        (
            with_statement_fields(lambda record: record["subject"].append(record["subject"][0])),
            "contains a file name twice",
        ),
        (with_statement_fields(lambda value: value.update(predicate={})), "predicate.record_version"),
    ],
)
def test_invalid_attestations_are_refused(run: RunDir, change: Callable[[Json], object], message: str) -> None:
    seal(run)
    run.seal.write_text(json.dumps(change(json.loads(run.seal.read_bytes()))))
    with pytest.raises(InputError) as caught:
        read_attestation(run)
    assert str(run.seal) in caught.value.message
    assert message in caught.value.message


# The chain -----------------------------------------------------------------------------------------------------------


def test_the_last_attestation_has_no_successor(tmp_path: Path) -> None:
    assert last_statement(tmp_path) is None
    digest = None
    for number in (2, 1, 3):  # the order is that of time, not of names
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        digest = seal(RunDir(folder), previous=digest)
        assert last_statement(tmp_path) == digest
    (tmp_path / "run-3").rename(tmp_path / "discarded")
    assert last_statement(tmp_path) == digest


# Keys ----------------------------------------------------------------------------------------------------------------


def test_the_key_is_created_once_with_private_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with ThreadPoolExecutor(8) as pool:
        signers = list(pool.map(lambda _: load_signer(None), range(8)))
    assert len({signer.public_key.keyid for signer in signers}) == 1
    (key,) = (tmp_path / "config").rglob("*.*")
    assert key == tmp_path / "config" / "mlperf-llama-vllm" / "signing-key.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def openssl_key(path: Path, *words: str) -> None:
    subprocess.run(["openssl", "genpkey", *words, "-out", str(path)], check=True, capture_output=True)


def test_a_key_created_by_openssl_signs_reproducibly(run: RunDir, tmp_path: Path) -> None:
    """Archives of runs that are signed again stay equal."""
    path = tmp_path / "key.pem"
    openssl_key(path, "-algorithm", "ed25519")
    signer = load_signer(path)
    digests = {attest(run, signer, record_version=3, harness_commit=None, previous=None) for _ in range(2)}
    assert len(digests) == 1
    assert read_attestation(run).key == signer.public_key.keyid


def test_a_missing_home_directory_names_the_key_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file" / "config"))
    with pytest.raises(SetupError) as caught:
        load_signer(None)
    assert "--signing-key" in caught.value.fix


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "cannot read"),
        (lambda path: path.mkdir(), "a directory"),
        (lambda path: path.write_text("a key"), "not a private key in PEM"),
        (lambda path: openssl_key(path, "-algorithm", "x25519"), "not an Ed25519 key"),
        (
            lambda path: openssl_key(path, "-algorithm", "ed25519", "-aes256", "-pass", "pass:x"),
            "or it has a passphrase",
        ),
    ],
)
def test_an_invalid_key_file_is_refused(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    path = tmp_path / "key.pem"
    make(path)
    with pytest.raises(InputError) as caught:
        load_signer(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message
