"""Functions that write the attestation of a finished run, and find the attestations below a directory."""

import contextlib
from pathlib import Path

import orjson
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner

from runs.attestation.attestation import (
    PAYLOAD_TYPE,
    Attestation,
    FileDigest,
    Predicate,
    Statement,
    Subject,
    attested_files,
    read_attestation,
)
from runs.errors import InputError
from runs.files.reading import MAX_ATTESTED_BYTES
from runs.files.writing import sha256_of, write_json
from runs.record.layout import RunDir


def attest(
    run: RunDir, signer: CryptoSigner, *, record_version: int, harness_commit: str | None, previous: str | None
) -> str:
    """Write the attestation of a finished run, and return its digest. The files must not change afterwards."""
    statement = Statement(
        subject=[
            Subject(name=name, digest=FileDigest(sha256=sha256_of(path, max_bytes=MAX_ATTESTED_BYTES)))
            for name, path in attested_files(run)
        ],
        predicate=Predicate(record_version=record_version, harness_commit=harness_commit, previous=previous),
    )
    envelope = Envelope(orjson.dumps(statement.model_dump(by_alias=True)), PAYLOAD_TYPE, {})
    envelope.sign(signer)
    write_json(run.seal, envelope.to_dict())
    return sha256_of(run.seal)


def statements_below(folder: Path) -> dict[str, tuple[RunDir, Attestation]]:
    """Return the runs below a directory that have a valid attestation, and the attestations, by digest."""
    found: dict[str, tuple[RunDir, Attestation]] = {}
    for path in folder.rglob(RunDir(folder).seal.name):
        with contextlib.suppress(InputError):
            attestation = read_attestation(RunDir(path.parent))
            found[attestation.digest] = RunDir(path.parent), attestation
    return found


def last_statement(folder: Path) -> str | None:
    """Return the digest of the last attestation below a directory: no other attestation names it as previous."""
    statements = statements_below(folder)
    last = statements.keys() - {statement.predicate.previous for _, statement in statements.values()}
    return max(last, key=lambda digest: statements[digest][0].seal.stat().st_mtime_ns, default=None)
