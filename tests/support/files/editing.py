"""Helpers that change the files of a copied run."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from runs.attestation.signing_key import signer_of
from runs.attestation.statements import attest
from runs.loadgen.detail_log import PREFIX
from runs.record.layout import RunDir
from runs.record.manifest import RECORD_VERSION


def loadgen_line(record: dict[str, Any]) -> bytes:
    """Return a record of a detail log in the form of LoadGen, with its line end."""
    time_ms = record.get("time_ms")
    text = json.dumps(record if time_ms is None else record | {"time_ms": "@"}, ensure_ascii=False)
    return PREFIX + text.replace('"@"', f"{time_ms:.6f}").encode() + b"\n"


def edit_lines(path: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Change each record of a log, a detail log or requests.jsonl; None removes a record."""
    lines = []
    for line in path.read_bytes().splitlines(keepends=True):
        old = orjson.loads(line.removeprefix(PREFIX))
        new = change(old)
        if new is old:
            lines.append(line)
        elif new is not None:
            lines.append(loadgen_line(new) if line.startswith(PREFIX) else orjson.dumps(new) + b"\n")
    path.write_bytes(b"".join(lines))


def read_records(run: RunDir) -> list[dict[str, Any]]:
    """Return the records of requests.jsonl, in the order of the file."""
    return [orjson.loads(line) for line in run.requests.read_bytes().splitlines()]


def write_records(run: RunDir, records: list[dict[str, Any]]) -> None:
    """Write the records of requests.jsonl."""
    run.requests.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))


def each_record(run: RunDir, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change each record of requests.jsonl."""
    write_records(run, [edit(record) for record in read_records(run)])


def change_responses(run: RunDir, response: Callable[[str, int], bytes]) -> None:
    """Change the responses, in the record and in the accuracy log if it has any.

    Args:
        response: Function of a SHA-256 and a number that returns the new IDs.
    """

    def edit(record: dict[str, Any]) -> dict[str, Any]:
        new = response(record["output_sha256"], record["output_tokens"])
        return record | {"output_sha256": hashlib.sha256(new).hexdigest()}

    each_record(run, edit)
    entries = orjson.loads(run.accuracy_log.read_bytes())
    for entry in entries:
        data = bytes.fromhex(entry["data"])
        entry["data"] = response(hashlib.sha256(data).hexdigest(), len(data) // 4).hex().upper()
    if entries:
        run.accuracy_log.write_bytes(b"[\n" + b",\n".join(map(orjson.dumps, entries)) + b"\n]\n")


def edit_detail(run: RunDir, key: str, value: Any) -> None:
    """Replace the records of `key` by another value; None removes them."""
    assert f'"{key}"' in run.detail.read_text(), key
    edit_lines(
        run.detail,
        lambda record: record if record["key"] != key else None if value is None else record | {"value": value},
    )


def edit_requests(run: RunDir, seq: int, **fields: Any) -> None:
    """Change fields of one request. Without fields, remove its line."""
    edit_lines(run.requests, lambda record: record if record["seq"] != seq else record | fields if fields else None)


# Constant key, so that a run that is signed again has the same attestation
SIGNER = signer_of(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"the key of the tests").digest()))


def reseal(run: RunDir) -> None:
    """Attest a changed run again, as a careful forger would. The attestation then does not show the change."""
    attest(run, SIGNER, record_version=RECORD_VERSION, harness_commit=None, previous=None)


def say_in_manifest(run: RunDir, **configuration: Any) -> None:
    """Change the recorded engine configuration."""
    manifest = orjson.loads(run.manifest.read_bytes())
    manifest["engine"]["configuration"] |= configuration
    run.manifest.write_bytes(orjson.dumps(manifest))
    reseal(run)


def set_at(path: Path, place: str, value: Any) -> None:
    """Set a value at a dotted place of a JSON file; ... removes it."""
    content = part = orjson.loads(path.read_bytes())
    *parents, last = [int(name) if name.isdecimal() else name for name in place.split(".")]
    for name in parents:
        part = part[name]
    part[last] = value
    if value is ...:
        del part[last]
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))


def set_record(run: RunDir, values: dict[str, Any]) -> None:
    """Set values in the manifest by their dotted place, as the process of the run would have written them."""
    for place, value in values.items():
        set_at(run.manifest, place, value)
    reseal(run)
