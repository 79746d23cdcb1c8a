"""Anchors: evidence by a third party that the attestation of a run existed at a certain time.

A ledger is a directory or git repository of a reviewer. `anchors.jsonl` in it has a line for each statement; lines are
only appended. A time stamp (RFC 3161) is the response of a time-stamping authority, next to seal.json; it is evidence
to those who trust the authority's certificate.
"""

import hashlib
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path

import orjson
from cryptography.x509 import Certificate, load_pem_x509_certificates
from filelock import FileLock, Timeout
from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError
from rfc3161_client import (
    HashAlgorithm,
    PKIStatus,
    TimestampRequestBuilder,
    TimeStampResponse,
    VerificationError,
    VerifierBuilder,
    decode_timestamp_response,
)

from runs.attestation.attestation import Attestation, KeyId
from runs.errors import ExecutionError, InputError, SetupError
from runs.files.fields import Sha256
from runs.files.reading import LEDGER, TIME_STAMP, first_problem, read_whole
from runs.files.writing import append, write_atomic
from runs.harness import git
from runs.record.layout import RunDir
from runs.wording import printable

LEDGER_NAME = "anchors.jsonl"
TIMEOUT_S = 60.0  # time limit of a request to an authority, and of the ledger's lock


class Entry(BaseModel):
    """A line of a ledger."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    digest: Sha256  # SHA-256 of the attestation
    time: AwareDatetime  # resolution: 1 s
    name: str  # name of the run directory, as given
    key: KeyId


# Ledgers -----------------------------------------------------------------------------------------------------------


def read_ledger(folder: Path, *, new: bool = False) -> dict[str, Entry]:
    """Return the entries of a ledger by digest; the first entry if a digest occurs repeatedly.

    Args:
        new: whether the ledger may be empty.

    Raises:
        InputError: If the ledger does not exist, or a line is damaged.
    """
    if not folder.is_dir():
        raise InputError(f"--ledger {folder} is not a directory", "create it with mkdir, or with git init")
    path = folder / LEDGER_NAME
    if new and not path.exists():
        return {}
    content = read_whole(path, "give the directory of a ledger", max_bytes=LEDGER.file_bytes, option="--ledger")
    fix = f"restore {LEDGER_NAME} from a copy"
    if content and not content.endswith(b"\n"):
        raise InputError(f"--ledger {path} does not end with a whole line", fix)
    entries: dict[str, Entry] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            entry = Entry.model_validate_json(line)
        except ValidationError as error:
            raise InputError(f"--ledger {path} line {number}: {first_problem(error)}", fix) from error
        entries.setdefault(entry.digest, entry)
    return entries


def add_to_ledger(folder: Path, statements: Mapping[str, Attestation]) -> list[Entry]:
    """Add the attestations that the ledger does not contain yet; in a git repository, commit the new lines.

    Args:
        statements: name of the run directory → attestation.

    Returns:
        The entry of each statement, in order.

    Raises:
        InputError: If the folder is not a ledger.
        SetupError: If the ledger cannot be written.
        ExecutionError: If git does not commit; the lines are written.
    """
    read_ledger(folder, new=True)  # check first, so that no lock file is created in another folder
    now = datetime.now(UTC).replace(microsecond=0)
    try:
        with FileLock(folder / f".{LEDGER_NAME}.lock", timeout=TIMEOUT_S):
            earlier = read_ledger(folder, new=True)
            added = [
                Entry(digest=statement.digest, time=now, name=printable(name), key=statement.key)
                for name, statement in statements.items()
                if statement.digest not in earlier
            ]
            append(
                folder / LEDGER_NAME, b"".join(orjson.dumps(entry.model_dump(mode="json")) + b"\n" for entry in added)
            )
            if (folder / ".git").exists():
                _commit(folder)
    except Timeout as error:
        raise SetupError(f"--ledger {folder} has been locked for {TIMEOUT_S:.0f} s", "try again") from error
    except OSError as error:
        raise SetupError(f"--ledger {folder} cannot be written: {error.strerror}", "give another ledger") from error
    entries = {entry.digest: entry for entry in added} | earlier
    return [entries[statement.digest] for statement in statements.values()]


def _commit(folder: Path) -> None:
    try:
        git(folder, "add", "--", LEDGER_NAME)
        if git(folder, "status", "--porcelain", "--", LEDGER_NAME):
            git(folder, "commit", "-q", "-m", "Anchor attestations of runs", "--", LEDGER_NAME)
    except subprocess.SubprocessError as error:
        output = getattr(error, "stderr", None) or str(error).encode()
        why = printable(" ".join(output.decode(errors="replace").split()), 200)
        raise ExecutionError(
            f"--ledger {folder}: git does not commit: {why}", f"commit {folder / LEDGER_NAME}, which has the new lines"
        ) from error


# Time stamps -------------------------------------------------------------------------------------------------------


def request_time_stamp(url: str, run: RunDir) -> datetime:
    """Request a time stamp for the attestation of a run, and store it. An existing time stamp is kept.

    Returns:
        The time of the time stamp.

    Raises:
        InputError: If the URL is not an http address, or the existing time stamp is for another attestation.
        ExecutionError: If the authority is unreachable, or refuses.
    """
    if not url.startswith(("http://", "https://")):
        raise InputError(
            f"--timestamp {url}: not an http:// or https:// address", "give the URL of a time-stamping authority"
        )
    statement = read_whole(run.seal, "rerun")
    if run.time_stamp.exists():
        return time_of(run)
    query = TimestampRequestBuilder().data(statement).hash_algorithm(HashAlgorithm.SHA256).build()
    headers = {"Content-Type": "application/timestamp-query"}
    fix = "give the URL of a time-stamping authority (RFC 3161)"
    try:
        request = urllib.request.Request(url, query.as_bytes(), headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            content: bytes = response.read(TIME_STAMP.file_bytes)
        response = decode_timestamp_response(content)
        if PKIStatus(response.status) != PKIStatus.GRANTED:
            raise ExecutionError(f"--timestamp {url}: refused: {printable(str(response.status_string), 200)}", fix)
        if response.tst_info.nonce != query.nonce or not _stamps(response, statement):
            raise ExecutionError(f"--timestamp {url}: the response is a time stamp of other data", fix)
    except (OSError, HTTPException, ValueError) as error:
        raise ExecutionError(f"--timestamp {url}: not a time stamp: {printable(str(error), 200)}", fix) from error
    write_atomic(run.time_stamp, content)
    return response.tst_info.gen_time


def time_of(run: RunDir, authorities: Sequence[Certificate] | None = None) -> datetime:
    """Return the time of a run's time stamp.

    Args:
        authorities: trusted root certificates; None = trust all.

    Raises:
        InputError: If it is unreadable, for another attestation, or not signed by one of the authorities.
    """
    path, fix = run.time_stamp, "remove the time stamp, and anchor the run again"
    content = read_whole(path, fix, max_bytes=TIME_STAMP.file_bytes, within=run.root)
    statement = read_whole(run.seal, "rerun", within=run.root)
    try:
        response = decode_timestamp_response(content)
        fits = _stamps(response, statement)
    except ValueError as error:
        raise InputError(f"{path} is not a time stamp: {error}", fix, path=path) from error
    if not fits:
        raise InputError(f"{path} is the time stamp of another attestation", fix, path=path)
    if authorities is not None:
        try:
            VerifierBuilder(roots=list(authorities)).build().verify_message(response, statement)
        except (VerificationError, ValueError) as error:
            text = f"{path} was not issued by the authority of --timestamp-ca: {error}"
            raise InputError(text, "give --timestamp-ca the root certificate of this authority", path=path) from error
    return response.tst_info.gen_time


def read_authorities(path: Path) -> list[Certificate]:
    """Return the certificates in a PEM file; raise InputError if it has none."""
    fix = "give a PEM file with the root certificate of the time-stamping authority"
    try:
        return load_pem_x509_certificates(read_whole(path, fix, option="--timestamp-ca"))
    except ValueError as error:
        raise InputError(f"--timestamp-ca {path} has no certificate in PEM", fix) from error


def _stamps(response: TimeStampResponse, statement: bytes) -> bool:
    return response.tst_info.message_imprint.message == hashlib.sha256(statement).digest()
