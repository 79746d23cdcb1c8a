"""The format of numbers and foreign texts in messages."""

import json
from collections.abc import Sequence
from datetime import datetime

NO_LIMIT_MS = 3_600_000  # latency limit in user.conf of a run without limits; LoadGen requires a number


def milliseconds(value_ms: float) -> str:
    """Return milliseconds with at least three significant digits: 2,312, 812, 41.3, 0.0532."""
    return f"{value_ms:,.0f}" if abs(value_ms) >= 100 else f"{value_ms:.3g}"


def finite_limit(limit_ms: float | None) -> float | None:
    """Return a latency limit in ms; None if it is missing, or the number of a run without limits."""
    return None if limit_ms is None or limit_ms >= NO_LIMIT_MS else limit_ms


def limit_text(limit_ms: float | None) -> str:
    """Return a latency limit in ms as text, or `unlimited`."""
    limit_ms = finite_limit(limit_ms)
    return "unlimited" if limit_ms is None else milliseconds(limit_ms)


def clock(seconds: float) -> str:
    """Return a duration as on a stop watch: 0:07, 12:31, 3:05:00."""
    minutes, left_s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left_s:02}" if hours else f"{minutes}:{left_s:02}"


def duration(seconds: float) -> str:
    """Return a duration as text: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def moment(time_ns: int) -> str:
    """Return local date and time to the second."""
    return datetime.fromtimestamp(time_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 run, 2 runs, 13,368 samples."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(text: str, length: int | None = None, *, lines: bool = False) -> str:
    """Return foreign text that is safe on a terminal, in a file or on a page: control characters become `\\x1b`.

    Args:
        length: maximum length; longer text is shortened and ends in dots.
        lines: whether line ends and tabs are kept.
    """
    allowed = "\n\t" if lines else ""
    cut = text if length is None else text[: length + 1]
    plain = cut
    if not cut.isprintable():
        plain = "".join(sign if sign.isprintable() or sign in allowed else repr(sign)[1:-1] for sign in cut)
    return plain if length is None or len(plain) <= length else plain[:length] + "..."


def json_printable(text: str) -> str:
    """Return a JSON text without control characters: in its strings they become `\\u` escapes."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t\r" else json.dumps(sign)[1:-1] for sign in text)


def shortened_list(texts: Sequence[str], most: int) -> str:
    """Return the first texts and the number of further texts: `a; b; and 3 more`."""
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return "; ".join([*texts[:most], *more])


def two_digits(value: float) -> str:
    """Return a number with two significant digits, or as a whole number: 0.034, 5.3, 123."""
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"


def precise(value: float) -> str:
    """Return a number with two decimals, or two significant digits if it is small: 0.021, 0.24, 1,234.50."""
    return f"{value:.2g}" if 0 < abs(value) < 0.1 else f"{value:,.2f}"


def four_digits(value: float) -> str:
    """Return a number with four significant digits, or as a whole number: 0.01234, 12.34, 29,338."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def readable_rate(rate: float) -> str:
    """Return a rate with at least two significant digits: 0.016, 0.24, 12.3, 1,234."""
    digits = 0 if rate >= 1000 else 1 if rate >= 10 else 2
    return f"{rate:.2g}" if rate < 0.1 else f"{rate:,.{digits}f}"


def per_second(rate: float) -> str:
    """Return a rate as text: 0.016/s, 0.24/s, 12.3/s, 1,234/s."""
    return f"{readable_rate(rate)}/s"
