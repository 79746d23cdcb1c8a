"""Functions that write the attestation of a finished run, and find the attestations below a directory."""

import contextlib
from pathlib import Path

import orjson
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner

from runs.attestation.attestation import (
    PAYLOAD_TYPE,
    Annotations,
    Attestation,
    FileDigest,
    Predicate,
    Statement,
    StatementSubject,
    attested_files,
    read_attestation,
)
from runs.errors import ExecutionError, HarnessError, InputError
from runs.files.reading import MAX_ATTESTED_BYTES
from runs.files.writing import sha256_of, write_json
from runs.record.layout import RunDir
from runs.record.manifest import Manifest, read_manifest
from runs.record.unattested import sign_command


def attest(
    run: RunDir, signer: CryptoSigner, *, record_version: int, harness_commit: str | None, previous: str | None
) -> str:
    """Write the attestation of a finished run, and return its digest. The files must not change afterwards."""
    statement = Statement(
        subject=[
            StatementSubject(
                name=name,
                digest=FileDigest(sha256=sha256_of(path, max_bytes=MAX_ATTESTED_BYTES)),
                annotations=Annotations(size=path.stat().st_size),
            )
            for name, path in attested_files(run)
        ],
        predicate=Predicate(record_version=record_version, harness_commit=harness_commit, previous=previous),
    )
    envelope = Envelope(orjson.dumps(statement.model_dump(by_alias=True)), PAYLOAD_TYPE, {})
    envelope.sign(signer)
    write_json(run.seal, envelope.to_dict())
    return sha256_of(run.seal)


def attest_run(run: RunDir, manifest: Manifest, signer: CryptoSigner, previous: str | None) -> str:
    """Write the attestation of a run that is complete, and return its digest.

    Raises:
        ExecutionError: If the attestation cannot be written.
    """
    commit = manifest.observed.harness.git_commit
    try:
        return attest(run, signer, record_version=manifest.record, harness_commit=commit, previous=previous)
    except OSError as error:
        raise ExecutionError(
            f"the run is complete, but its attestation {run.seal} cannot be written: {error.strerror}",
            f"free disk space, then sign the run: {sign_command(run)}",
        ) from error


def unattested_runs(folder: Path) -> list[RunDir]:
    """Return the complete runs of this harness below a directory that have no attestation."""
    runs = (RunDir(path.parent) for path in sorted(folder.rglob(RunDir(folder).manifest.name)))
    return [run for run in runs if not run.seal.exists() and _is_complete(run)]


def _is_complete(run: RunDir) -> bool:
    with contextlib.suppress(HarnessError):  # a damaged manifest, or one of another program
        return read_manifest(run.manifest).status == "finished"
    return False


def statements_below(folder: Path) -> dict[str, tuple[RunDir, Attestation]]:
    """Return the runs below a directory that have a valid attestation, and the attestations, by digest."""
    statements: dict[str, tuple[RunDir, Attestation]] = {}
    for path in folder.rglob(RunDir(folder).seal.name):
        with contextlib.suppress(InputError):
            attestation = read_attestation(RunDir(path.parent))
            statements[attestation.digest] = RunDir(path.parent), attestation
    return statements


def last_statement(folder: Path) -> str | None:
    """Return the digest of the last attestation below a directory: no other attestation names it as previous."""
    statements = statements_below(folder)
    last = statements.keys() - {statement.predicate.previous for _, statement in statements.values()}
    return max(last, key=lambda digest: statements[digest][0].seal.stat().st_mtime_ns, default=None)
