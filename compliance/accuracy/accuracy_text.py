"""The scores and the hash in an accuracy.txt, read as the official submission checker reads them.

The checker applies a pattern for each score to each line. It reads a plain number behind a name in single quotes, as
Python prints them. A number in another form is named together with the form.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite

from compliance.accuracy.metrics import Metric, Scores
from runs.errors import InputError
from runs.rounds import score_patterns
from runs.wording import printable

FIX = "write plain numbers, each score once"
_KEY = re.compile(r"'(\w+)':")  # in a pattern: the name of a score in accuracy.txt
_EXPONENT = re.compile(r"[eE][+-]?\d{1,4}")  # the checker reads the number before it
_NUMPY = re.compile(r"\b(np|numpy)\.\w+\(")
_HASH = re.compile(r"hash=(\S*)\s*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_SHOWN = 60  # characters of a text in a message


@dataclass(frozen=True)
class StatedScore:
    """One score in an accuracy.txt."""

    name: str  # in accuracy.txt, where it has one there
    numbers: tuple[str, ...]  # in the order of the lines, with their exponents
    problem: str = ""  # why the checker does not read one number; empty if it does
    line: int | None = None  # of a number in a form that the checker does not read

    @property
    def values(self) -> list[float]:
        """The different numbers, in ascending order; empty if one is not a number."""
        try:
            found = sorted(set(map(float, self.numbers)))
        except ValueError:
            return []
        return found if all(map(isfinite, found)) else []


def stated_score(lines: Sequence[str], name: str, *, one: bool = True) -> StatedScore:
    """Read one score.

    Args:
        name: as the round's tables have it (ROUGE1), or as accuracy.txt has it (rouge1).
        one: several different numbers are a problem.
    """
    pattern, key = _pattern(name)
    name, numbers, part = key or name, [], ""
    for line in lines:
        for match in pattern.finditer(line) if key else filter(None, [pattern.match(line)]):
            power = _EXPONENT.match(line, match.end(1))
            numbers.append(match[1] + (power[0] if power else ""))
            part = part or (f"{name} is {numbers[-1]}, of which the checker reads {match[1]}" if power else "")
    found, shown = StatedScore(name, tuple(numbers)), printable(", ".join(numbers), _MAX_SHOWN)
    if not numbers:
        number, form = next(_other_forms(lines, key), (None, ""))
        said = f"; the checker does not read {form}" if form else ""
        return replace(found, problem=f"no {name} that the checker can read{said}", line=number)
    if part:
        return replace(found, problem=part)
    if not found.values:
        return replace(found, problem=f"{name} is {shown}, which is not a number")
    return replace(found, problem=f"several {name}: {shown}") if one and len(found.values) > 1 else found


@cache
def _pattern(name: str) -> tuple[re.Pattern[str], str]:
    """The checker's pattern of a score, and the score's name in accuracy.txt; empty if it is not in a dictionary."""
    known = score_patterns()
    checkers = known.get(name) or known.get(name.upper())
    pattern = checkers.pattern if checkers else rf".*'{name}':\s([\d.]+)"
    keys = _KEY.findall(pattern)
    if len(keys) != 1 or not pattern.startswith(f".*'{keys[0]}'"):
        return re.compile(pattern), ""
    return re.compile(pattern.removeprefix(".*")), keys[0]


def _other_forms(lines: Sequence[str], key: str) -> Iterator[tuple[int, str]]:
    """The line numbers of a score in forms that the checker does not read, with the names of the forms.

    Of a score outside a dictionary, which has no key, only NumPy's form is known.
    """
    statement = re.compile(rf"(?<!\w)([\"']?){key}\1\s*[:=]\s*([^,}}]*)" if key else _NUMPY)
    for number, line in enumerate(lines, start=1):
        for found in statement.finditer(line):
            if not key or _NUMPY.match(found[2]):
                yield number, "NumPy's form of a number"
            elif found[1] == '"':
                yield number, "JSON's double quotes"
            else:
                yield number, printable(found[0].strip(), _MAX_SHOWN)


def read_scores(metric: Metric, text: str, where: str = "accuracy.txt", answered: int | None = None) -> Scores:
    """The scores of a metric in the text of an accuracy.txt.

    Args:
        where: its name, for messages.
        answered: the number of responses; not every evaluation writes it.

    Raises:
        InputError: the checker does not read one number of a score.
    """
    lines, scores = text.splitlines(), Scores()
    for form in metric.forms:
        stated = stated_score(lines, form.name)
        if not stated.numbers and form.optional:
            continue
        if not stated.numbers and form.name == metric.count and answered is not None and form.name not in text:
            scores[form.name] = answered
            continue
        if stated.problem:
            raise InputError(f"{where}: {stated.problem}", FIX)
        (value,) = stated.values
        scores[form.name] = value if form.decimals else int(value)
    return scores


def stated_hash(text: str) -> tuple[str, str]:
    """The SHA-256 of the whole accuracy log that the truncation tool appends, in lower case; and what is wrong with it.

    Both are empty without a line `hash=`.
    """
    found = [match[1] for line in text.splitlines() if (match := _HASH.fullmatch(line))]
    if len({one.lower() for one in found}) > 1:
        return "", f"several hash lines: {printable(', '.join(found), 3 * _MAX_SHOWN)}"
    if found and not _SHA256.fullmatch(found[0].lower()):
        return "", f"hash={printable(found[0], 2 * _MAX_SHOWN)} is not a SHA-256"
    return (found[0].lower() if found else ""), ""
