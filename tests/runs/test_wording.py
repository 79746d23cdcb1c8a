"""How numbers and foreign texts are written for people."""

import pytest

from runs.errors import InputError
from runs.wording import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with é, × and 模型", "plain, with é, × and 模型"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x7f\x9b2J\r", r"\x7f\x9b2J\r"),
        ("a\u202eb\ud800", r"a\u202eb\ud800"),
        ("two\nlines\t", r"two\nlines\t"),
    ],
)
def test_control_characters_are_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_lines_may_stay_and_a_long_text_is_cut() -> None:
    assert printable("one\n\ttwo\x1b", lines=True) == "one\n\ttwo\\x1b"
    assert printable("x" * 9, 9) == "x" * 9
    assert printable("x" * 10, 9) == "x" * 9 + "..."
    assert printable("\x1b" * 9, 9) == "\\x1b\\x1b\\..."


def test_an_error_shows_them_too() -> None:
    error = InputError("named \x1b[31m", "rename \x07 it")
    assert str(error) == "named \\x1b[31m\n  fix: rename \\x07 it"
