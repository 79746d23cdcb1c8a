"""The format of numbers and foreign texts in messages."""

import json
from collections.abc import Sequence
from datetime import datetime


def milliseconds(value_ms: float) -> str:
    """Three digits or more, never a rounded-away value: 2,312, 812, 41.3, 0.053."""
    return f"{value_ms:,.0f}" if abs(value_ms) >= 100 else f"{value_ms:.3g}"


def clock(seconds: float) -> str:
    """Return a duration as on a stop watch: 0:07, 12:31, 3:05:00."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def duration(seconds: float) -> str:
    """Return a duration in words: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def moment(time_ns: int) -> str:
    """Local date and time to the second."""
    return datetime.fromtimestamp(time_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")


def counted(number: int, noun: str) -> str:
    """1 run, 2 runs, 13,368 samples."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(text: str, length: int | None = None, *, lines: bool = False) -> str:
    """Foreign text as a terminal, a text file or a page may hold it: control characters as `\\x1b`.

    Args:
        length: longer text is cut there, and ends in dots.
        lines: line ends and tabs stay as they are.
    """
    kept = "\n\t" if lines else ""
    cut = text if length is None else text[: length + 1]
    plain = cut
    if not cut.isprintable():
        plain = "".join(sign if sign.isprintable() or sign in kept else repr(sign)[1:-1] for sign in cut)
    return plain if length is None or len(plain) <= length else plain[:length] + "..."


def json_printable(text: str) -> str:
    """A JSON text without control characters: in its strings they become `\\u` escapes, which mean the same."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t\r" else json.dumps(sign)[1:-1] for sign in text)


def shortened_list(texts: Sequence[str], most: int) -> str:
    """The first few, and how many more there are: `a; b; and 3 more`."""
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return "; ".join([*texts[:most], *more])


def two_digits(value: float) -> str:
    """A number with two significant digits, or as a whole one: 0.034, 5.3, 123."""
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"


def per_second(rate: float) -> str:
    """A rate: 0.016/s, 0.24/s, 12.3/s, 1,234/s."""
    digits = 0 if rate >= 1000 else 1 if rate >= 10 else 2
    return f"{rate:.2g}/s" if rate < 0.1 else f"{rate:,.{digits}f}/s"
