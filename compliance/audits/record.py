"""An audit's outcome on record. Written first, so that no bare PASS can be left behind by a crash."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from compliance.audits.base import AuditResult
from runs.errors import InputError
from runs.files import write_atomic, write_json
from runs.reading import read_as
from runs.record.layout import audit_record

_FIX = "run the audit again"


class AuditRecord(BaseModel):
    """What `audit_<test>.json` holds; `model_extra` are the test's own details. Somebody's word: legs are judged."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    schema_version: Literal[1]
    test: str
    passed: bool
    official: bool
    required: bool
    reason: Annotated[str, Field(min_length=1)]
    rule: str
    checks: list[dict[str, Any]]
    legs: list[dict[str, Any]]


def write_audit(folder: Path, result: AuditResult) -> None:
    """Write `audit_<test>.json`, copies of logs, then the text the official tools read; each atomically."""
    write_json(audit_record(folder, result.test), result.as_json())
    for name, source in result.copies.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_atomic(folder / name, source.read_bytes())
    write_atomic(folder / result.text_name, result.text)


def read_audit(folder: Path, test: str) -> AuditRecord:
    """The record of a test in its directory.

    Raises:
        InputError: missing, damaged, of another version or test.
    """
    path = audit_record(folder, test)
    record = read_as(path, AuditRecord, _FIX, within=folder)
    if record.test != test:
        raise InputError(f"{path}: test: it is of {record.test[:40]!r}", _FIX)
    return record
