"""Which lines of a file a finding is about: those that name what was found."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from compliance.evidence.official_rules import DECIDED_BY
from compliance.finding import Finding
from compliance.submission.check.findings import is_regular
from runs.record.layout import LOADGEN_LOGS
from runs.wording import printable

MOST_READ = 4 * 1024 * 1024  # bytes of a file
_NAME = re.compile(r"[A-Za-z][\w.]{3,}")


def located(root: Path, findings: Iterable[Finding]) -> list[Finding]:
    """The findings with the line of their first file, where it can be told."""
    texts: dict[Path, list[bytes]] = {}
    return [
        one if one.line is not None else replace(one, line=_line_of(one, _lines(root / one.files[0], texts)))
        for one in findings
    ]


def shown_lines(root: Path, finding: Finding, length: int) -> Iterator[tuple[Path, int, str]]:
    """The line of each file of a finding, as it may be shown."""
    for number, file in enumerate(finding.files):
        lines = _lines(root / file, {})
        line = finding.line if number == 0 else _line_of(finding, lines)
        if line is not None and line <= len(lines):
            yield file, line, printable(lines[line - 1].decode(errors="replace").strip(), length)


def _lines(path: Path, read: dict[Path, list[bytes]]) -> list[bytes]:
    """Of a text file itself; those of one file are kept, for several findings stand beside each other."""
    if path not in read:
        read.clear()
        read[path] = []
        try:
            if is_regular(path) and path.name != LOADGEN_LOGS[2]:  # of answers, no lines of settings or numbers
                with path.open("rb") as stream:
                    read[path] = stream.read(MOST_READ).splitlines()
        except OSError:
            pass  # told by a rule
    return read[path]


def _line_of(finding: Finding, lines: list[bytes]) -> int | None:
    """A record of LoadGen's and a field of JSON have their name in quotes, a line of the summary begins with it."""
    for name in (*_NAME.findall(finding.found), *DECIDED_BY.get(finding.rule, ())):
        plain, quoted = name.encode(), f'"{name}"'.encode()
        for number, line in enumerate(lines, start=1):
            if quoted in line or line.lstrip().startswith((plain + b" ", plain + b":")):
                return number
    return None
