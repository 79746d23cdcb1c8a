"""Reading single files of a foreign tree: never a pipe, never more than is sensible, never an exception."""

import stat
from pathlib import Path
from typing import Any

from compliance.finding import OURS, decides
from compliance.submission.check.tree_finding import Findings
from runs.errors import InputError
from runs.reading import json_object

MAX_TEXT_BYTES = 1024 * 1024


def is_regular(path: Path) -> bool:
    """A file itself: no link, no pipe, no device."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """A directory itself, no link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


@decides("tree", ("tree-unreadable", "error", OURS, "every file and directory can be read", "correct its permissions"))
def read_bytes(path: Path, findings: Findings, rule_id: str, limit: int = MAX_TEXT_BYTES) -> bytes | None:
    """The content of a small file; None with a finding where there is none."""
    if not is_regular(path):
        findings.add(rule_id, path, "there is no such file" if not path.is_symlink() else "it is a symbolic link")
        return None
    try:
        with path.open("rb") as stream:
            content = stream.read(limit + 1)
    except OSError as error:
        findings.add("tree-unreadable", path, f"cannot be read: {error.strerror}")
        return None
    if len(content) > limit:
        findings.add(rule_id, path, f"larger than {limit:,} bytes", "a small text file")
        return None
    return content


def read_text(path: Path, findings: Findings, rule_id: str) -> str | None:
    """The text of a small file; None with a finding where there is none, or it is no text."""
    content = read_bytes(path, findings, rule_id)
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        findings.add(rule_id, path, f"no UTF-8 text (byte {error.start})", "text in UTF-8")
        return None


def object_or_empty(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none, which is told elsewhere."""
    return read_object(path, Findings(path.parent), "tree-unreadable", "tree-unreadable") or {}


def read_object(path: Path, findings: Findings, missing_rule: str, damaged_rule: str) -> dict[str, Any] | None:
    """A JSON object; None with a finding where there is none."""
    content = read_bytes(path, findings, missing_rule)
    if content is None:
        return None
    try:
        return json_object(content, Path(path.name), "")
    except InputError as error:
        findings.add(damaged_rule, path, error.message, "a JSON object")
        return None
