"""The findings of `check`, by file; the lines that they are about; and readers of single files in an untrusted tree.

The readers follow no link, read a bounded number of bytes, and report a finding in place of an exception.
"""

import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from compliance.judge.check import decides
from compliance.judge.finding import Finding, Severity
from compliance.judge.rule import OURS, find_rule
from compliance.submission.tree import MAX_FILE_BYTES
from runs.errors import InputError
from runs.reading import KeyTwiceError, json_object
from runs.record.layout import LOADGEN_LOGS
from runs.wording import printable

SHOWN = 200  # characters of foreign content in a message
MAX_TEXT_BYTES = 1024 * 1024
MAX_OF_A_RULE = 10_000  # findings; more are only counted. Round v5.1 has 668 of one rule.
MAX_READ = 4 * 1024 * 1024  # bytes of a file in which the line of a finding is looked for


class Findings:
    """Collects what is found in one tree."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._kept: list[Finding] = []
        self._count_of: Counter[str] = Counter()  # findings, by rule

    def add(
        self,
        rule_id: str,
        path: Path,
        found: str,
        expected: str = "",
        fix: str = "",
        severity: Severity | None = None,
        others: Sequence[Path] = (),
        line: int | None = None,
        decided_by: Sequence[str] = (),
        numbers: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a violated rule; `expected`, `fix` and `severity` default to the rule's own.

        Args:
            others: further files that the finding is about.
            line: in the first file.
            decided_by: keys in the files that decided, where the line is not known.
            numbers: for programs.
        """
        rule = find_rule(rule_id)
        self._count_of[rule_id] += 1
        if self._count_of[rule_id] <= MAX_OF_A_RULE:
            files = tuple(Path(self.name(one)) for one in (path, *others))
            rest = shortened(found), shortened(expected or rule.summary), fix or rule.fix, line, tuple(decided_by)
            self._kept.append(Finding(rule_id, severity or rule.severity, "", files, numbers or {}, *rest))

    @property
    def items(self) -> list[Finding]:
        """The findings; for a rule with more than MAX_OF_A_RULE, a finding with the number of the others."""
        more = [(find_rule(rule), count - MAX_OF_A_RULE) for rule, count in self._count_of.items()]
        return self._kept + [
            Finding(rule.id, rule.severity, f"{count:,} more in this tree", (Path(),))
            for rule, count in more
            if count > 0
        ]

    def name(self, path: Path) -> str:
        """The path as it is shown: relative to the tree."""
        return printable(path.relative_to(self.root).as_posix(), 1000)


def place_of(finding: Finding) -> str:
    """The first file of a finding, as it is shown."""
    return finding.files[0].as_posix()


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Each finding once, by its place."""
    return sorted(set(findings), key=lambda one: (place_of(one), one.rule, one.found, one.required))


def shortened(text: str) -> str:
    return printable(text, SHOWN * 2)


# The line of a finding ------------------------------------------------------------------------------------------------


def located(root: Path, findings: Iterable[Finding]) -> list[Finding]:
    """The findings, each with the line of its first file where one is found."""
    texts: dict[Path, list[bytes]] = {}
    return [
        one if one.line is not None else replace(one, line=_line_of(one, _lines(root / one.files[0], texts)))
        for one in findings
    ]


def shown_lines(root: Path, finding: Finding, length: int) -> Iterator[tuple[Path, int, str]]:
    """For each file of a finding: the line that the finding is about, its number, and its text made printable."""
    for number, file in enumerate(finding.files):
        lines = _lines(root / file, {})
        line = finding.line if number == 0 else _line_of(finding, lines)
        if line is not None and line <= len(lines):
            yield file, line, printable(lines[line - 1].decode(errors="replace").strip(), length)


def _lines(path: Path, read: dict[Path, list[bytes]]) -> list[bytes]:
    """The lines of a text file. `read` keeps those of the last file, since findings come in the order of files."""
    if path not in read:
        read.clear()
        read[path] = []
        try:
            if is_regular(path) and path.name != LOADGEN_LOGS[2]:  # which has no lines of settings
                with path.open("rb") as stream:
                    read[path] = stream.read(MAX_READ).splitlines()
        except OSError:
            pass  # tree-unreadable
    return read[path]


def _line_of(finding: Finding, lines: list[bytes]) -> int | None:
    """The line of the first key that is there: in a detail log, in JSON, or at the beginning of a line of text."""
    for key in filter(str.strip, finding.decided_by):
        name = rb"\s+".join(re.escape(word.encode(errors="replace")) for word in key.split())
        pattern = re.compile(rb'"key"\s*:\s*"%b"|"%b"\s*:|^\s*%b\s*([:=]|$)' % (name, name, name), re.IGNORECASE)
        for number, line in enumerate(lines, start=1):
            if pattern.search(line):
                return number
    return None


# Files of an untrusted tree ------------------------------------------------------------------------------------------


def _is(kind: int, path: Path) -> bool:
    try:
        return stat.S_IFMT(path.lstat().st_mode) == kind
    except (OSError, ValueError):
        return False


def is_regular(path: Path) -> bool:
    """A file itself: no link, no pipe, no device."""
    return _is(stat.S_IFREG, path)


def is_folder(path: Path) -> bool:
    """A directory itself, no link to one."""
    return _is(stat.S_IFDIR, path)


def is_safe(folder: Path) -> bool:
    """Whether a run's directory has no pipe, no link, and no file above the size limit of a submission."""
    try:
        return all(
            is_folder(path) or (is_regular(path) and path.lstat().st_size <= MAX_FILE_BYTES)
            for path in folder.iterdir()
        )
    except OSError:
        return False


@decides("tree", ("tree-unreadable", "error", OURS, "every file and directory can be read", "correct its permissions"))
def read_bytes(path: Path, findings: Findings, rule_id: str, limit: int = MAX_TEXT_BYTES) -> bytes | None:
    """The content of a small file; None with a finding where there is none."""
    if not is_regular(path):
        found = "it is a symbolic link" if path.is_symlink() else "there is no such file"
        findings.add(rule_id, path, found, "the file itself", "put the file there")
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
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError as error:
        findings.add(rule_id, path, f"no UTF-8 text (byte {error.start})", "text in UTF-8")
        return None


def read_object(path: Path, findings: Findings, missing_rule: str, damaged_rule: str) -> dict[str, Any] | None:
    """A JSON object; None with a finding where there is none."""
    content = read_bytes(path, findings, missing_rule)
    if content is None:
        return None
    try:
        return json_object(content, Path(path.name), "")
    except InputError as error:
        twice = error.__cause__ if isinstance(error.__cause__, KeyTwiceError) else None
        if twice is None:
            findings.add(damaged_rule, path, error.message, "a JSON object")
            return None
    findings.add(damaged_rule, path, f"{twice}; readers take the last", "each key once", decided_by=[twice.key])
    with suppress(InputError):  # the other fields are checked all the same
        return json_object(content, Path(path.name), "", twice=True)
    return None


def object_or_empty(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none, which other checks report."""
    return read_object(path, Findings(path.parent), "tree-unreadable", "tree-unreadable") or {}
