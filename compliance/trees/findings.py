"""Findings on a tree as its report shows them, and safe readers for the files of an untrusted tree.

The readers follow no link and read a bounded number of bytes. They yield a finding instead of raising an exception.
"""

import re
import stat
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, compared, stated
from compliance.trees.tree import MAX_FILE_BYTES
from runs.errors import InputError
from runs.files.reading import KeyTwiceError, json_object
from runs.wording import printable

MISSING = "file does not exist"
UNSAFE = "directory with links, pipes or files above the size limit; its logs were not read"
SHOWN = 200  # maximum length of quoted content in a message, in characters
MAX_TEXT_BYTES = 1024 * 1024
MAX_OF_A_RULE = 10_000  # maximum number of findings of one rule (668 in round v5.1); more are only counted
MAX_READ = 4 * 1024 * 1024  # number of bytes of a file in which the line of a finding is searched


def name_in(root: Path, path: Path) -> str:
    """Return a path relative to the tree, made printable."""
    return printable(path.relative_to(root).as_posix(), 1000)


def presented(root: Path, findings: Iterable[Finding]) -> list[Finding]:
    """Return findings as the report of a tree shows them, each with the line of its first file if that is found.

    Paths are relative to the tree. Contents of the tree are made printable and shortened. If a rule has more than
    MAX_OF_A_RULE findings, the last finding states the number of the others.
    """
    count_of: Counter[str] = Counter()
    kept = []
    for finding in findings:
        count_of[finding.rule] += 1
        if count_of[finding.rule] <= MAX_OF_A_RULE:
            kept.append(
                replace(
                    finding,
                    files=tuple(Path(name_in(root, path)) for path in finding.files),
                    text=message_text(finding.text),
                    found=message_text(finding.found),
                    required=message_text(finding.required),
                    fix=finding.fix or finding.definition.fix,
                )
            )
    kept += [
        stated(rule, f"{count - MAX_OF_A_RULE:,} more findings of this rule in the tree", Path())
        for rule, count in count_of.items()
        if count > MAX_OF_A_RULE
    ]
    return located(root, kept)


def file_text(finding: Finding) -> str:
    """Return the first file of a finding as text for the report."""
    return finding.files[0].as_posix()


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return each finding once, ordered by file."""
    return sorted(
        set(findings), key=lambda finding: (file_text(finding), finding.rule, finding.found, finding.required)
    )


def message_text(text: str) -> str:
    """Return the text made printable and cut to the length of a message."""
    return printable(text, SHOWN * 2)


# The line of a finding ------------------------------------------------------------------------------------------------


def located(root: Path, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, each with the line of its first file if that is found."""
    texts: dict[Path, list[bytes]] = {}
    return [
        _located(finding, _lines(root / finding.files[0], texts)) if finding.decided_by else finding
        for finding in findings
    ]


def _located(finding: Finding, lines: list[bytes]) -> Finding:
    """Return a finding with the line numbers of its keys. The first of these becomes the line of the finding."""
    if finding.line is not None or not (line_of := _lines_of(finding.decided_by, lines)):
        return finding
    all_lines = {"lines": line_of} if len(line_of) > 1 else {}
    return replace(finding, line=next(iter(line_of.values())), numbers={**finding.numbers, **all_lines})


def shown_lines(root: Path, finding: Mapping[str, Any], length: int) -> Iterator[tuple[str, int, str]]:
    """Yield each file of a finding with the number and the printable text of the line that decided the finding.

    Args:
        finding: The record of the finding.
    """
    for number, file in enumerate(finding["files"]):
        lines = _lines(root / file, {})
        line = finding["line"] if number == 0 else next(iter(_lines_of(finding["decided_by"], lines).values()), None)
        if line is not None and line <= len(lines):
            yield file, line, printable(lines[line - 1].decode(errors="replace").strip(), length)


def _lines(path: Path, read: dict[Path, list[bytes]]) -> list[bytes]:
    """Return the lines of a text file. `read` caches the last file, since findings are ordered by file."""
    if path not in read:
        read.clear()
        read[path] = []
        try:
            if is_regular(path):
                with path.open("rb") as stream:
                    read[path] = stream.read(MAX_READ).splitlines()
        except OSError:
            pass  # the rule tree-unreadable reports it
    return read[path]


def _lines_of(keys: Sequence[str], lines: list[bytes]) -> dict[str, int]:
    """Return the first line of each key: a key of a detail log or of JSON, or the first words of a line of text.

    A key "seq_id 7" is the response with this number in an accuracy log.
    """
    line_of = {}
    for key in filter(str.strip, keys):
        name = rb"\s+".join(re.escape(word.encode(errors="replace")) for word in key.split())
        text = rb'"key"\s*:\s*"%b"|"%b"\s*:|^\s*%b\s*([:=]|$)' % (name, name, name)
        if response := re.fullmatch(r"seq_id (\d+)", key):
            text = rb'"seq_id"\s*:\s*%b\b' % response[1].encode()
        pattern = re.compile(text, re.IGNORECASE)
        if line := next((number for number, line in enumerate(lines, start=1) if pattern.search(line)), 0):
            line_of[key] = line
    return line_of


# Files of an untrusted tree ------------------------------------------------------------------------------------------


T = TypeVar("T")
Reads = Generator[Finding, None, T]  # a reader: it yields findings, and returns what it read


def read_all(reader: Reads[T]) -> tuple[list[Finding], T]:
    """Return the findings of a reader, and what it returns."""
    findings: list[Finding] = []
    while True:
        try:
            findings.append(next(reader))
        except StopIteration as end:
            return findings, end.value


def value_of(reader: Reads[T]) -> T:
    """Return what a reader returns, without its findings. Other checks report these."""
    return read_all(reader)[1]


def _is(kind: int, path: Path) -> bool:
    try:
        return stat.S_IFMT(path.lstat().st_mode) == kind
    except (OSError, ValueError):
        return False


def is_regular(path: Path) -> bool:
    """Return True if the path is a regular file: not a link, pipe or device."""
    return _is(stat.S_IFREG, path)


def is_folder(path: Path) -> bool:
    """Return True if the path is a directory, not a link to a directory."""
    return _is(stat.S_IFDIR, path)


def is_safe(folder: Path) -> bool:
    """Return True if a directory contains only directories and regular files below the size limit of a submission."""
    try:
        return all(
            is_folder(path) or (is_regular(path) and path.lstat().st_size <= MAX_FILE_BYTES)
            for path in folder.iterdir()
        )
    except OSError:
        return False


@decides("tree", ("tree-unreadable", "error", OURS, "unreadable file or directory", "change its permissions"))
def read_tree_bytes(path: Path, rule_id: str, limit: int = MAX_TEXT_BYTES) -> Reads[bytes | None]:
    """Read a small file. Return None and yield a finding if it is missing, unreadable or too large."""
    if not is_regular(path):
        kind = "symbolic link" if path.is_symlink() else MISSING
        yield compared(rule_id, False, kind, "a regular file", path, fix=f"add the file {path.name}")
        return None
    try:
        with path.open("rb") as stream:
            content = stream.read(limit + 1)
    except OSError as error:
        yield compared("tree-unreadable", False, f"{error.strerror}", "", path)
        return None
    if len(content) > limit:
        yield compared(rule_id, False, f"more than {limit:,} bytes", f"at most {limit:,} bytes", path)
        return None
    return content


def read_tree_text(path: Path, rule_id: str) -> Reads[str | None]:
    """Read a small text file. Return None and yield a finding if it cannot be read as UTF-8."""
    content = yield from read_tree_bytes(path, rule_id)
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError as error:
        yield compared(rule_id, False, f"invalid UTF-8 at byte {error.start}", "text in UTF-8", path)
        return None


def read_tree_object(path: Path, missing_rule: str, damaged_rule: str) -> Reads[dict[str, Any] | None]:
    """Read a JSON object. Return None and yield a finding if it is missing or damaged."""
    content = yield from read_tree_bytes(path, missing_rule)
    if content is None:
        return None
    try:
        return json_object(content, Path(path.name), "")
    except InputError as error:
        twice = error.__cause__ if isinstance(error.__cause__, KeyTwiceError) else None
        if twice is None:
            yield compared(damaged_rule, False, error.message, "a JSON object", path)
            return None
    problem, fix = f"{twice.key!r} occurs twice; readers use the last value", f"keep one line of {twice.key!r}"
    yield compared(damaged_rule, False, problem, "each key once", path, fix=fix, decided_by=[twice.key], origin=OURS)
    with suppress(InputError):  # Other fields of the object are still checked.
        return json_object(content, Path(path.name), "", twice=True)
    return None


def object_or_empty(path: Path) -> dict[str, Any]:
    """Read a JSON object. Return an empty object if it is missing or damaged; other checks report this."""
    return value_of(read_tree_object(path, "tree-unreadable", "tree-unreadable")) or {}
