"""Writing an audit's outcome: the record first, so that no bare PASS can be left behind by a crash."""

from pathlib import Path

from compliance.audits.base import AuditResult
from runs.files import write_atomic, write_json
from runs.record.layout import audit_record


def write_audit(folder: Path, result: AuditResult) -> None:
    """Write `audit_<test>.json`, copies of logs, then the text the official tools read; each atomically."""
    write_json(audit_record(folder, result.test), result.as_json())
    for name, source in result.copies.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_atomic(folder / name, source.read_bytes())
    write_atomic(folder / result.text_name, result.text)
