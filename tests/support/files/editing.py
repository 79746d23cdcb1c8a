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
    """A record of a detail log in LoadGen's own form, with its line end."""
    time_ms = record.get("time_ms")
    text = json.dumps(record if time_ms is None else record | {"time_ms": "@"}, ensure_ascii=False)
    return PREFIX + text.replace('"@"', f"{time_ms:.6f}").encode() + b"\n"


def edit_lines(path: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Change every record of a log, a detail log or requests.jsonl; None removes one."""
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
    """The lines of requests.jsonl, in the order of the file."""
    return [orjson.loads(line) for line in run.requests.read_bytes().splitlines()]


def write_records(run: RunDir, records: list[dict[str, Any]]) -> None:
    """The other way round."""
    run.requests.write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in records))


def each_record(run: RunDir, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Every line of requests.jsonl, edited."""
    write_records(run, [edit(one) for one in read_records(run)])


def change_responses(run: RunDir, response: Callable[[str, int], bytes]) -> None:
    """Other responses, in the record and in the accuracy log where there are any.

    Args:
        response: the ids in place of those with a SHA-256 and a number.
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
    """Give the records of `key` another value; None removes them."""
    assert f'"{key}"' in run.detail.read_text(), key
    edit_lines(
        run.detail,
        lambda one: one if one["key"] != key else None if value is None else one | {"value": value},
    )


def edit_requests(run: RunDir, seq: int, **fields: Any) -> None:
    """Change fields of one request; no fields removes its line."""
    edit_lines(run.requests, lambda one: one if one["seq"] != seq else one | fields if fields else None)


# Always the same one, so that a run that is sealed again has the same seal.
SIGNER = signer_of(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"the key of the tests").digest()))


def reseal(run: RunDir) -> None:
    """Seal a changed run anew, as someone would who forges with care: the seal then says nothing of the change."""
    attest(run, SIGNER, record_version=RECORD_VERSION, harness_commit=None, previous=None)


def say_in_manifest(run: RunDir, **configuration: Any) -> None:
    """Make the recorded engine configuration say something else."""
    manifest = orjson.loads(run.manifest.read_bytes())
    manifest["engine"]["configuration"] |= configuration
    run.manifest.write_bytes(orjson.dumps(manifest))
    reseal(run)


def set_at(path: Path, place: str, value: Any) -> None:
    """Another value at a dotted place of a JSON file; ... takes it away."""
    content = part = orjson.loads(path.read_bytes())
    *parents, last = [int(name) if name.isdecimal() else name for name in place.split(".")]
    for name in parents:
        part = part[name]
    part[last] = value
    if value is ...:
        del part[last]
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))


def set_record(run: RunDir, values: dict[str, Any]) -> None:
    """Other values in the manifest by their dotted place, as the run's own process would have written them."""
    for place, value in values.items():
        set_at(run.manifest, place, value)
    reseal(run)
