"""Helpers that change the files of a copied run."""

import hashlib
import json
from typing import Any

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runs.loadgen.detail_log import PREFIX
from runs.record.attestation import attest, signer_of
from runs.record.layout import RunDir
from runs.record.manifest import RECORD_VERSION


def loadgen_line(record: dict[str, Any]) -> bytes:
    """A record of a detail log in LoadGen's own form, with its line end."""
    time_ms = record.get("time_ms")
    text = json.dumps(record if time_ms is None else record | {"time_ms": "@"}, ensure_ascii=False)
    return PREFIX + text.replace('"@"', f"{time_ms:.6f}").encode() + b"\n"


def edit_detail(run: RunDir, key: str, value: Any) -> None:
    """Give the records of `key` another value; None removes them."""
    lines = []
    found = False
    for line in run.detail.read_bytes().splitlines(keepends=True):
        record = orjson.loads(line[len(PREFIX) :])
        if record["key"] != key:
            lines.append(line)
            continue
        found = True
        if value is not None:
            lines.append(loadgen_line(record | {"value": value}))
    assert found, key
    run.detail.write_bytes(b"".join(lines))


def edit_requests(run: RunDir, seq: int, **fields: Any) -> None:
    """Change fields of one request; no fields removes its line."""
    lines = []
    for line in run.requests.read_bytes().splitlines():
        record = orjson.loads(line)
        if record["seq"] != seq:
            lines.append(line + b"\n")
        elif fields:
            lines.append(orjson.dumps(record | fields) + b"\n")
    run.requests.write_bytes(b"".join(lines))


# Always the same one, so that a leg that is sealed again has the same seal.
SIGNER = signer_of(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"the key of the tests").digest()))


def reseal(run: RunDir) -> None:
    """Seal a changed leg anew, as someone would who forges with care: the seal then says nothing of the change."""
    attest(run, SIGNER, record_version=RECORD_VERSION, harness_commit=None, previous=None)


def say_in_manifest(run: RunDir, **configuration: Any) -> None:
    """Make the engine's record say something else."""
    manifest = orjson.loads(run.manifest.read_bytes())
    manifest["engine"]["configuration"] |= configuration
    run.manifest.write_bytes(orjson.dumps(manifest))
    reseal(run)
