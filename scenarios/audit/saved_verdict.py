"""The verdict of a sign-off as a file in the directory of the result, and its line in signoffs.jsonl."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from runs.files.writing import append, is_special, sha256_of, write_json
from runs.record.layout import SIGNOFF_LEDGER
from runs.what_is import what_is

_OURS = ("run", "campaign")  # kinds of directories of this harness, in which a verdict may be saved


def verdict_file(judged: Path, scope: str) -> Path | None:
    """Return the file for the verdict on a result; None if the logs are not from this harness."""
    return judged / f"signoff_{scope}.json" if what_is(judged).kind in _OURS else None


def save_verdict(path: Path, record: Mapping[str, Any]) -> None:
    """Write a verdict, and add a line to signoffs.jsonl in its directory: one line for each sign-off.

    Raises:
        OSError: If a file cannot be written.
    """
    write_json(path, record)
    if is_special(path):  # such as /dev/stdout
        return
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "file": path.name,
        "sha256": sha256_of(path),
        **{name: record[name] for name in ("audit_scope", "short_name", "verdict", "action", "ref", "cand")},
    }
    append(path.with_name(SIGNOFF_LEDGER), orjson.dumps(line) + b"\n")
