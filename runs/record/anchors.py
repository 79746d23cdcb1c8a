"""Anchors: that the statement of a leg was there at some time, on the word of somebody other than its signer.

A ledger is a directory that a reviewer holds, or a git repository of the reviewer's. `anchors.jsonl` in it has a line
for each statement; lines are only ever added. A time stamp (RFC 3161) is the answer of a time-stamping authority; it
lies beside seal.json and says something to whoever trusts the authority's certificate.
"""

import hashlib
import os
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

from runs.environment import git
from runs.errors import ExecutionError, InputError, SetupError
from runs.fields import Sha256
from runs.files import write_atomic
from runs.reading import first_problem, read_whole
from runs.record.attestation import Attestation, KeyId
from runs.record.layout import RunDir
from runs.wording import printable

LEDGER_NAME = "anchors.jsonl"
MOST_LEDGER_BYTES = 1 << 30
MOST_TIME_STAMP_BYTES = 1 << 20  # with the authority's certificates it has kilobytes
PATIENCE_S = 60.0  # with an authority, or with others who add to the ledger


class Entry(BaseModel):
    """A line of a ledger. Times have whole seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: Sha256  # of the statement
    time: AwareDatetime
    name: str  # of the run directory, as it was given
    key: KeyId  # that signed it


# Ledgers -----------------------------------------------------------------------------------------------------------


def read_ledger(folder: Path, *, new: bool = False) -> dict[str, Entry]:
    """The entries of a ledger by digest; of several with one digest the first.

    Args:
        folder: the ledger.
        new: it may have no entries yet.

    Raises:
        InputError: there is none, or a line is damaged.
    """
    if not folder.is_dir():
        raise InputError(f"--ledger {folder} is no directory", "make one with mkdir, or with git init")
    path = folder / LEDGER_NAME
    if new and not path.exists():
        return {}
    content = read_whole(path, "name a ledger", max_bytes=MOST_LEDGER_BYTES, option="--ledger")
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
    """Add statements to a ledger; what is there already stays as it is. In a git repository, commit.

    Args:
        folder: the ledger.
        statements: by the name of their run directory.

    Returns:
        The entry of each, in order: the new one, or the one that was there before.

    Raises:
        InputError: it is no ledger.
        SetupError: it cannot be written.
        ExecutionError: git refuses to commit; the lines are there.
    """
    read_ledger(folder, new=True)  # what is no ledger gets no lock
    now = datetime.now(UTC).replace(microsecond=0)
    try:
        with FileLock(folder / f".{LEDGER_NAME}.lock", timeout=PATIENCE_S):
            known = read_ledger(folder, new=True)
            added = [
                Entry(digest=one.digest, time=now, name=printable(name), key=one.key)
                for name, one in statements.items()
                if one.digest not in known
            ]
            with (folder / LEDGER_NAME).open("ab") as stream:
                stream.write(b"".join(orjson.dumps(one.model_dump(mode="json")) + b"\n" for one in added))
                stream.flush()
                os.fsync(stream.fileno())
            if (folder / ".git").exists():
                _commit(folder)
    except Timeout as error:
        raise SetupError(f"--ledger {folder}: others add to it for {PATIENCE_S:.0f} s", "try again") from error
    except OSError as error:
        raise SetupError(f"--ledger {folder} cannot be written: {error.strerror}", "name another ledger") from error
    entries = {entry.digest: entry for entry in added} | known
    return [entries[one.digest] for one in statements.values()]


def _commit(folder: Path) -> None:
    try:
        git(folder, "add", "--", LEDGER_NAME)
        if git(folder, "status", "--porcelain", "--", LEDGER_NAME):
            git(folder, "commit", "-q", "-m", "Anchor statements of legs", "--", LEDGER_NAME)
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", None) or str(error).encode()
        why = printable(" ".join(said.decode(errors="replace").split()), 200)
        raise ExecutionError(
            f"--ledger {folder}: git does not commit: {why}", f"commit {LEDGER_NAME} there; the lines are written"
        ) from error


# Time stamps -------------------------------------------------------------------------------------------------------


def request_time_stamp(url: str, run: RunDir) -> datetime:
    """Have a time-stamping authority stamp the statement of a leg, and keep its answer beside it.

    A time stamp that is there already is kept: it is the earlier one.

    Returns:
        The time, to whoever trusts the authority.

    Raises:
        InputError: no http address, or what lies there stamps something else.
        ExecutionError: the authority cannot be reached, or does not stamp.
    """
    if not url.startswith(("http://", "https://")):
        raise InputError(f"--timestamp {url}: not an http:// or https:// address", "name a time-stamping authority")
    statement = read_whole(run.seal, "run the leg again")
    if run.time_stamp.exists():
        return time_of(run)
    query = TimestampRequestBuilder().data(statement).hash_algorithm(HashAlgorithm.SHA256).build()
    headers = {"Content-Type": "application/timestamp-query"}
    fix = "see whether it is a time-stamping authority (RFC 3161), or name another one"
    try:
        asked = urllib.request.Request(url, query.as_bytes(), headers)
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            content: bytes = answer.read(MOST_TIME_STAMP_BYTES)
        response = decode_timestamp_response(content)
        if PKIStatus(response.status) != PKIStatus.GRANTED:
            raise ExecutionError(f"--timestamp {url}: refused: {printable(str(response.status_string), 200)}", fix)
        if response.tst_info.nonce != query.nonce or not _stamps(response, statement):
            raise ExecutionError(f"--timestamp {url}: the answer stamps something else", fix)
    except (OSError, HTTPException, ValueError) as error:
        raise ExecutionError(f"--timestamp {url}: no time stamp: {printable(str(error), 200)}", fix) from error
    write_atomic(run.time_stamp, content)
    return response.tst_info.gen_time


def time_of(run: RunDir, authorities: Sequence[Certificate] | None = None) -> datetime:
    """The time of the time stamp beside a leg.

    Args:
        authorities: one of them signed it, or somebody on its behalf; None: whoever made it.

    Raises:
        InputError: they did not, or it cannot be read, or stamps something else than this statement.
    """
    path, fix = run.time_stamp, "remove it, and anchor the leg again"
    content = read_whole(path, fix, max_bytes=MOST_TIME_STAMP_BYTES, within=run.root)
    statement = read_whole(run.seal, "run the leg again", within=run.root)
    try:
        response = decode_timestamp_response(content)
        fits = _stamps(response, statement)
    except ValueError as error:
        raise InputError(f"{path} is no time stamp: {error}", fix, path=path) from error
    if not fits:
        raise InputError(f"{path} stamps another statement", fix, path=path)
    if authorities is not None:
        try:
            VerifierBuilder(roots=list(authorities)).build().verify_message(response, statement)
        except (VerificationError, ValueError) as error:
            text = f"{path} is not by the authority of --timestamp-ca: {error}"
            raise InputError(text, "name the authority's certificate", path=path) from error
    return response.tst_info.gen_time


def read_authorities(path: Path) -> list[Certificate]:
    """The certificates in a PEM file.

    Raises:
        InputError: there are none.
    """
    fix = "name a PEM file with the root certificate of the time-stamping authority"
    try:
        return load_pem_x509_certificates(read_whole(path, fix, option="--timestamp-ca"))
    except ValueError as error:
        raise InputError(f"--timestamp-ca {path} holds no certificate in PEM", fix) from error


def _stamps(response: TimeStampResponse, statement: bytes) -> bool:
    return response.tst_info.message_imprint.message == hashlib.sha256(statement).digest()
