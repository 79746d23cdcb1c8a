"""seal.json: the signed attestation of the files of a finished run, written last.

It is a DSSE envelope around an in-toto Statement v1. The subjects are all other files of the run directory with their
SHA-256 and size. The predicate (docs/attestation.md) has the version of the manifest, the harness, and the campaign's
previous statement. The signature is Ed25519. The ID of a key is the public key in 64 hex digits, so the envelope alone
is enough to check the signature.

The holder of the key can sign again. A statement therefore proves integrity; an anchor proves its time
(runs/attestation/anchors.py).
"""

import contextlib
import hashlib
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from runs.errors import HarnessError, InputError
from runs.files.fields import Sha256
from runs.files.reading import MAX_ATTESTED_BYTES, files_below, first_problem, json_object, read_whole
from runs.files.writing import sha256_of
from runs.record.layout import RunDir
from runs.record.unattested import NotAttestedError

PAYLOAD_TYPE = "application/vnd.in-toto+json"

KeyId = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
StatementSchema = TypeVar("StatementSchema", bound=BaseModel)

_FIX = "restore the run directory from an unchanged copy, or rerun"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True, defer_build=True)


class FileDigest(_Part):
    sha256: Sha256


class Annotations(_Part):
    size: Annotated[int, Field(ge=0)]  # bytes


class StatementSubject(_Part):
    name: str
    digest: FileDigest
    annotations: Annotations | None = None  # None in attestations of earlier versions


class Predicate(_Part):
    """The predicate of an attestation: everything except the files."""

    record_version: int  # version of manifest.json
    harness_commit: str | None  # None outside a checkout
    previous: Sha256 | None  # digest of the previous attestation of the campaign; None outside a campaign


class Statement(_Part):
    type: Literal["https://in-toto.io/Statement/v1"] = Field(default="https://in-toto.io/Statement/v1", alias="_type")
    subject: list[StatementSubject]
    predicate_type: Literal["urn:mlperf-llama-vllm:leg:v1"] = Field(
        default="urn:mlperf-llama-vllm:leg:v1", alias="predicateType"
    )
    predicate: Predicate


class _Signature(_Part):
    keyid: KeyId
    sig: str


class _Envelope(_Part):
    payload: str
    payload_type: str = Field(alias="payloadType")
    signatures: list[_Signature] = Field(min_length=1, max_length=1)


@dataclass(frozen=True)
class Attestation:
    """An attestation with a valid signature."""

    digest: str  # SHA-256 of seal.json, which is anchored
    key: str  # ID of the key
    files: dict[str, str]  # SHA-256 by path relative to the run directory
    predicate: Predicate
    sizes: dict[str, int] = field(default_factory=dict)  # bytes by path; attestations of earlier versions have none


@dataclass(frozen=True)
class BrokenFile:
    """A file that differs from the attestation."""

    name: str
    state: Literal["changed", "missing", "added"]
    attested: str = ""  # SHA-256 or size in the attestation
    actual: str = ""  # SHA-256 or size of the file; empty if it cannot be read


def read_attestation(run: RunDir) -> Attestation:
    """Read the attestation of a run and check its signature, but not the files of the run.

    Raises:
        NotAttestedError: If the attestation is missing.
        InputError: If the attestation is damaged, of another type, or not signed by its key.
    """
    path = run.seal
    if not path.exists() and not path.is_symlink():
        raise NotAttestedError(run)
    written = read_whole(path, _FIX, within=run.root)
    content = _validated(_Envelope, json_object(written, path, _FIX), path)
    if content.payload_type != PAYLOAD_TYPE:
        raise InputError(f"{path}: the payload is {content.payload_type[:80]!r}, not {PAYLOAD_TYPE}", _FIX, path=path)
    keyid = content.signatures[0].keyid
    try:
        key = SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(bytes.fromhex(keyid)), keyid)
        envelope = Envelope.from_dict(content.model_dump(by_alias=True))
        envelope.verify([key], 1)
    except (VerificationError, ValueError) as error:
        raise InputError(f"{path}: the signature is not by key {keyid}", _FIX, path=path) from error
    statement = _validated(Statement, json_object(envelope.payload, path, _FIX), path)
    files = {subject.name: subject.digest.sha256 for subject in statement.subject}
    if len(files) < len(statement.subject):
        raise InputError(f"{path} contains a file name twice", _FIX, path=path)
    sizes = {subject.name: subject.annotations.size for subject in statement.subject if subject.annotations is not None}
    return Attestation(hashlib.sha256(written).hexdigest(), keyid, files, statement.predicate, sizes)


def _validated(schema: type[StatementSchema], content: dict[str, Any], path: Path) -> StatementSchema:
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path} is not the attestation of a run: {first_problem(error)}", _FIX, path=path) from error


def changed_records(run: RunDir) -> list[str]:
    """Return the small records of a run that differ from its attestation: the manifest, the result and the scores."""
    try:
        attestation = read_attestation(run)
    except HarnessError:
        return [run.seal.name]
    records = {path.name for path in (run.manifest, run.result, run.accuracy_json)}
    return [file.name for file in broken_files(run, attestation, records)]


def broken_files(run: RunDir, attestation: Attestation, names: Container[str] | None = None) -> Iterator[BrokenFile]:
    """Yield the files of a run that were changed, removed or added. A later verdict, for example, is ignored.

    Args:
        names: Files to compare. Default: all.
    """
    present = {name: path for name, path in attested_files(run) if names is None or name in names}
    for name, sha256 in sorted(attestation.files.items()):
        if names is not None and name not in names:
            continue
        if name not in present:
            yield BrokenFile(name, "missing", f"SHA-256 {sha256}")
            continue
        size, stated_size = present[name].stat().st_size, attestation.sizes.get(name)
        if stated_size is not None and size != stated_size:  # The file may be too large to hash, such as a sparse file.
            yield BrokenFile(name, "changed", f"{stated_size:,} bytes", f"{size:,} bytes")
        elif (digest := _digest(present[name])) != sha256:
            yield BrokenFile(name, "changed", f"SHA-256 {sha256}", f"SHA-256 {digest}" if digest else "")
    for name in sorted(run.own_names & present.keys() - attestation.files.keys()):
        yield BrokenFile(name, "added")


def _digest(path: Path) -> str | None:
    with contextlib.suppress(InputError):  # an unreadable file
        return sha256_of(path, max_bytes=MAX_ATTESTED_BYTES)
    return None


def attested_files(run: RunDir) -> Iterator[tuple[str, Path]]:
    for path in files_below(run.root):
        if path not in (run.seal, run.time_stamp) and path.is_file():
            yield path.relative_to(run.root).as_posix(), path
