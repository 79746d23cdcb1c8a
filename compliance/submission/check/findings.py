"""What `check` found in a tree, by its place in it; and reading single files of a foreign tree: never a pipe, never
more than is sensible, never an exception."""

import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from compliance.finding import OURS, Finding, Severity, decides, find_rule
from compliance.submission.tree import MOST_FILE_BYTES
from runs.errors import InputError
from runs.reading import KeyTwiceError, json_object
from runs.wording import printable

SHOWN = 200  # characters of foreign content in a message
MAX_TEXT_BYTES = 1024 * 1024
MOST_OF_A_RULE = 10_000  # findings; of more their number is told. Round v5.1 has 668 of one rule.


class Findings:
    """Collects what is found in one tree."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._kept: list[Finding] = []
        self._of_a_rule: Counter[tuple[str, Severity]] = Counter()

    def add(
        self,
        rule_id: str,
        path: Path,
        found: str,
        expected: str = "",
        fix: str = "",
        severity: Severity | None = None,
        beside: Sequence[Path] = (),
        line: int | None = None,
        numbers: Mapping[str, Any] | None = None,
    ) -> None:
        """Note a breach; `expected`, `fix` and `severity` are the rule's own where they are not given.

        Args:
            beside: other files that it is between.
            line: in the first file.
            numbers: for programs.
        """
        worth = severity or find_rule(rule_id).severity
        self._of_a_rule[rule_id, worth] += 1
        if self._of_a_rule[rule_id, worth] <= MOST_OF_A_RULE:
            one = self._finding(rule_id, worth, path, found, expected, fix)
            files = one.files + tuple(Path(self.name(it)) for it in beside)
            self._kept.append(replace(one, files=files, line=line, numbers=numbers or {}))

    def _finding(
        self, rule_id: str, severity: Severity, path: Path, found: str, expected: str = "", fix: str = ""
    ) -> Finding:
        rule = find_rule(rule_id)
        required = shortened(expected or rule.summary)
        place = (Path(self.name(path)),)
        return Finding(rule_id, severity, "", place, found=shortened(found), required=required, fix=fix or rule.fix)

    @property
    def items(self) -> list[Finding]:
        """What was noted; of each rule at most so many, and how many more there are."""
        more = {key: count - MOST_OF_A_RULE for key, count in self._of_a_rule.items() if count > MOST_OF_A_RULE}
        counts = [self._finding(*key, self.root, f"{count:,} more in this tree") for key, count in more.items()]
        return self._kept + counts

    def name(self, path: Path) -> str:
        """The path as it is shown: relative to the tree."""
        return printable(path.relative_to(self.root).as_posix(), 1000)


def place_of(finding: Finding) -> str:
    """The file that a finding of this collector is about, as it is shown."""
    return finding.files[0].as_posix()


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Each finding once, by its place."""
    return sorted(set(findings), key=lambda one: (place_of(one), one.rule, one.found, one.required))


def shortened(text: str) -> str:
    return printable(text, SHOWN * 2)


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
    """Can a leg's directory be read without meeting a pipe, a link or a monstrous file?"""
    try:
        return all(
            is_folder(path) or (is_regular(path) and path.lstat().st_size <= MOST_FILE_BYTES)
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
    findings.add(damaged_rule, path, f"{twice}; readers take the last", "each key once")
    with suppress(InputError):  # told: what else stands there is checked all the same
        return json_object(content, Path(path.name), "", twice=True)
    return None


def object_or_empty(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none, which is told elsewhere."""
    return read_object(path, Findings(path.parent), "tree-unreadable", "tree-unreadable") or {}
