"""Reader of the scores and the hash in accuracy.txt, with the patterns of the official submission checker.

The checker applies a pattern for each score to each line. It reads a plain number after a name in single quotes, as
Python prints a dictionary. Messages name other forms of a number.
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

FIX = "write each score once in accuracy.txt, as a plain number"
_KEY = re.compile(r"'(\w+)':")  # name of a score in a pattern of the checker
_EXPONENT = re.compile(r"[eE][+-]?\d{1,4}")  # exponent, which the checker does not read
_NUMPY = re.compile(r"\b(np|numpy)\.\w+\(")
_HASH = re.compile(r"hash=(\S*)\s*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_SHOWN = 60  # maximum length of a quotation in a message, in characters


@dataclass(frozen=True)
class StatedScore:
    """One score in an accuracy.txt."""

    name: str  # name in accuracy.txt, if it has one
    numbers: tuple[str, ...]  # all numbers of the score with their exponents, in the order of the lines
    problem: str = ""  # reason why the checker does not read exactly one number; empty: it does
    line: int | None = None  # number of the line with an unsupported form

    @property
    def values(self) -> list[float]:
        """Distinct numbers in ascending order; empty if one of them is not a number."""
        try:
            values = sorted(set(map(float, self.numbers)))
        except ValueError:
            return []
        return values if all(map(isfinite, values)) else []


def stated_score(lines: Sequence[str], name: str, *, is_single: bool = True) -> StatedScore:
    """Read one score from the lines of an accuracy.txt.

    Args:
        name: Name in the tables of the round (ROUGE1), or in accuracy.txt (rouge1).
        one: Whether multiple distinct numbers are a problem.
    """
    pattern, key = _pattern(name)
    name, numbers, part = key or name, [], ""
    for line in lines:
        for match in pattern.finditer(line) if key else filter(None, [pattern.match(line)]):
            power = _EXPONENT.match(line, match.end(1))
            numbers.append(match[1] + (power[0] if power else ""))
            part = part or (f"{name} is {numbers[-1]}, but the checker reads only {match[1]}" if power else "")
    score, shown = StatedScore(name, tuple(numbers)), printable(", ".join(numbers), _MAX_SHOWN)
    if not numbers:
        number, form = next(_other_forms(lines, key), (None, ""))
        reason = f"; the checker does not read {form}" if form else ""
        return replace(score, problem=f"{name} is missing or unreadable for the checker{reason}", line=number)
    if part:
        return replace(score, problem=part)
    if not score.values:
        return replace(score, problem=f"{name} is {shown}, which is not a number")
    return (
        replace(score, problem=f"multiple values of {name}: {shown}") if is_single and len(score.values) > 1 else score
    )


@cache
def _pattern(name: str) -> tuple[re.Pattern[str], str]:
    """Return the checker's pattern for a score, and the name of the score in the pattern; empty if it has none."""
    patterns = score_patterns()
    checkers = patterns.get(name) or patterns.get(name.upper())
    pattern = checkers.pattern if checkers else rf".*'{name}':\s([\d.]+)"
    keys = _KEY.findall(pattern)
    if len(keys) != 1 or not pattern.startswith(f".*'{keys[0]}'"):
        return re.compile(pattern), ""
    return re.compile(pattern.removeprefix(".*")), keys[0]


def _other_forms(lines: Sequence[str], key: str) -> Iterator[tuple[int, str]]:
    """Yield each place with a score in a form that the checker does not read: line number and form.

    For a score without a dictionary key, only NumPy's form is recognized.
    """
    statement = re.compile(rf"(?<!\w)([\"']?){key}\1\s*[:=]\s*([^,}}]*)" if key else _NUMPY)
    for number, line in enumerate(lines, start=1):
        for match in statement.finditer(line):
            if not key or _NUMPY.match(match[2]):
                yield number, "NumPy's form of a number"
            elif match[1] == '"':
                yield number, "JSON's double quotes"
            else:
                yield number, printable(match[0].strip(), _MAX_SHOWN)


def read_scores(metric: Metric, text: str, where: str = "accuracy.txt", answered: int | None = None) -> Scores:
    """Read the scores of a metric from the text of an accuracy.txt.

    Args:
        where: File name for messages.
        answered: Number of responses, which some evaluations do not write.

    Raises:
        InputError: If the checker does not read exactly one number for a score.
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
    """Return the SHA-256 in the line `hash=` of accuracy.txt (in lower case), and a problem with it, or an empty text.

    The official truncation tool appends this hash of the whole accuracy log. Without the line, both texts are empty.
    """
    digests = [match[1] for line in text.splitlines() if (match := _HASH.fullmatch(line))]
    if len({digest.lower() for digest in digests}) > 1:
        return "", f"multiple hash lines: {printable(', '.join(digests), 3 * _MAX_SHOWN)}"
    if digests and not _SHA256.fullmatch(digests[0].lower()):
        return "", f"hash={printable(digests[0], 2 * _MAX_SHOWN)} is not a SHA-256"
    return (digests[0].lower() if digests else ""), ""
