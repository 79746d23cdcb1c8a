"""Lines at the end of a terminal that are replaced in place."""

import contextlib
import io
import os
import signal
import sys

import pytest
from rich.text import Text

from scenarios.console import say
from scenarios.live.terminal_block import TerminalBlock, is_live
from scenarios.terminal import Terminal
from tests.support.terminals.fake_terminal import FakeTerminal, terminal


def lines(*texts: str) -> list[Text]:
    return [Text(text) for text in texts]


def test_a_block_is_replaced_below_the_other_output() -> None:
    console, screen = terminal()
    say(console, "first")
    with TerminalBlock(console) as block:
        block.show(lines("a", "b", "c"))
        assert screen.lines == ["first", "a", "b", "c", ""]
        say(console, "note")
        assert screen.lines == ["first", "note", "a", "b", "c", ""]
        block.show(lines("d"))
        assert screen.lines[:4] == ["first", "note", "d", ""]
        block.show([])
    say(console, "end")
    assert screen.text.split() == ["first", "note", "end"]


def test_the_cursor_stays_visible_on_an_empty_line_below_the_block() -> None:
    console, screen = terminal()
    with TerminalBlock(console) as block:
        for _ in range(3):
            block.show(lines("a", "b"))
            assert screen.is_cursor_on_an_empty_line
            assert screen.is_cursor_visible


def test_a_message_that_wraps_stays_complete_above_the_block() -> None:
    console, screen = terminal(columns=20)
    message = "a message of more than two lines, from the engine"
    with TerminalBlock(console) as block:
        block.show(lines("a", "b"))
        say(console, message)
        block.show(lines("c", "d"))
    assert "".join(line.ljust(20) for line in screen.lines[:3]).strip() == message
    assert screen.lines[3:] == ["c", "d", ""]


def test_printed_lines_of_other_code_appear_above_the_block(capsys: pytest.CaptureFixture[str]) -> None:
    console, screen = terminal()
    with TerminalBlock(console) as block:
        block.show(lines("a"))
        print("printed")
        sys.stdout.write("unfinished")
        block.show(lines("b"))
    assert screen.text.split() == ["printed", "unfinished", "b"]
    print("afterwards")
    assert capsys.readouterr().out == "afterwards\n"


def test_the_standard_error_in_a_file_stays_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    console, screen = terminal()
    with TerminalBlock(console) as block:
        block.show(lines("a"))
        print("warning", file=sys.stderr)
    assert capsys.readouterr().err == "warning\n"
    assert "warning" not in screen.text


@pytest.mark.parametrize("rows", [2, 5, 10])
def test_a_block_never_scrolls(rows: int) -> None:
    console, screen = terminal(rows=rows)
    with TerminalBlock(console) as block:
        for number in range(20):
            block.show(lines(*(f"{number} {row}" for row in range(12))))
    assert screen.history == []
    assert screen.lines[:-1] == [f"19 {row}" for row in range(12)][-(rows - 1) :]


def test_a_long_line_is_cut() -> None:
    console, screen = terminal(columns=10)
    with TerminalBlock(console) as block:
        block.show(lines("0123456789abc", "d"))
        block.show(lines("0123456789abc", "e"))
    assert screen.lines == ["012345678", "e", ""]


def test_control_characters_of_a_line_are_escaped() -> None:
    console, screen = terminal()
    with TerminalBlock(console) as block:
        block.show(lines("a\x1b[2Jb"))
    assert screen.lines == ["a\\x1b[2Jb", ""]


def test_a_wider_or_narrower_terminal_keeps_the_output_above() -> None:
    console, screen = terminal(columns=30)
    say(console, "message")
    with TerminalBlock(console) as block:
        for columns in (30, 12, 40, 20):
            console.width = screen.columns = columns
            block.show(lines("a line of 28 characters here", "b"))
        block.show([])
    assert screen.text.split() == ["message"]


def test_after_a_stop_the_output_of_the_shell_stays() -> None:
    console, screen = terminal()
    with TerminalBlock(console) as block:
        block.show(lines("a", "b"))
        screen.feed(b"[1]+ Stopped\r\n$ fg\r\n")
        os.kill(os.getpid(), signal.SIGCONT)
        block.show(lines("c", "d"))
        block.show(lines("e", "f"))
    assert screen.lines == ["a", "b", "[1]+ Stopped", "$ fg", "e", "f", ""]


def test_an_error_leaves_the_last_lines_and_the_output_as_before() -> None:
    console, screen = terminal()
    stdout = sys.stdout
    with contextlib.suppress(KeyError), TerminalBlock(console) as block:
        block.show(lines("a", "b"))
        raise KeyError
    assert sys.stdout is stdout
    say(console, "error")
    assert screen.lines == ["a", "b", "error", ""]


def test_a_pipe_is_no_terminal_whatever_the_environment_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert Terminal(file=io.StringIO()).is_terminal
    assert not is_live(Terminal(file=io.StringIO()))
    monkeypatch.setenv("TERM", "xterm")
    assert is_live(Terminal(file=FakeTerminal(80, 24)))
    monkeypatch.setenv("TERM", "dumb")
    assert not is_live(Terminal(file=FakeTerminal(80, 24)))
