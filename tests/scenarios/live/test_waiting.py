"""The line that names what a command waits for."""

import io

import pytest

from scenarios.console import say
from scenarios.live.waiting import waiting
from scenarios.terminal import Terminal
from tests.support.terminals.fake_terminal import terminal


def test_a_text_is_shown_until_the_end_of_the_block() -> None:
    console, screen = terminal()
    with waiting(console, "planning") as show:
        assert screen.lines == ["planning ...", ""]
        say(console, "note")
        show("verifying Offline")
        assert screen.lines == ["note", "verifying Offline ...", ""]
        assert screen.is_cursor_visible
    assert screen.text.split() == ["note"]


def test_an_error_removes_the_text() -> None:
    console, screen = terminal()
    with pytest.raises(KeyError), waiting(console, "planning"):
        raise KeyError
    assert screen.text.strip() == ""


def test_a_file_gets_no_text() -> None:
    file = io.StringIO()
    with waiting(Terminal(file=file), "planning") as show:
        show("verifying")
    assert file.getvalue() == ""
