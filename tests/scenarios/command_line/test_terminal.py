"""Texts from files cannot control the terminal: one stream writes, and it escapes control characters."""

import ast
import io
import json
import shutil
from pathlib import Path

import pytest
from rich.live import Live
from rich.table import Table
from rich.text import Text

from compliance.trees.tree import Tree
from runs.wording import json_printable
from scenarios.command_line.command_output import SteadyStream
from scenarios.dispatch import main
from scenarios.terminal import Terminal
from tests.conftest import ROOT
from tests.support.files.editing import edit_detail
from tests.support.trees.clean_trees import short_tree

HOSTILE = "a\x1b]0;title\x07b\x9b31m\rc\x7f"


def test_a_stream_escapes_control_characters_of_texts() -> None:
    plain = io.StringIO()
    stream = SteadyStream(plain)
    assert stream.write(f"{HOSTILE}\nnext\tline\r\n") == len(HOSTILE) + 12
    assert plain.getvalue() == "a\\x1b]0;title\\x07b\\x9b31m\\rc\\x7f\nnext\tline\r\n"


def test_a_terminal_keeps_its_colors_and_escapes_texts() -> None:
    plain = io.StringIO()
    console = Terminal(file=plain, force_terminal=True, color_system="standard", width=80)
    table = Table("name")
    table.add_row(HOSTILE)
    for shown in (Text(HOSTILE, style="red"), table, HOSTILE):
        console.print(shown)
    written = plain.getvalue()
    assert "\x1b[31m" in written
    assert not {"\x07", "\x9b", "\x7f", "\r"} & set(written)
    assert "\x1b]0;" not in written


def test_a_live_display_moves_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = io.StringIO()
    monkeypatch.setattr("sys.stdout", SteadyStream(plain))
    with Live(console=Terminal(force_terminal=True, width=80), auto_refresh=False) as live:
        live.update(Text(f"first {HOSTILE}"), refresh=True)
        live.update(Text("second"), refresh=True)
    assert "\r\x1b[2K" in plain.getvalue()
    assert "\\x1b[2K" not in plain.getvalue()
    assert "\x1b]0;" not in plain.getvalue()


def test_an_escaped_json_text_keeps_its_meaning() -> None:
    value = {"name": HOSTILE + "é \U0001f600 \U000e0001"}
    text = json_printable(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert text.isprintable()


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_dataset_name_cannot_control_the_terminal(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = Tree(Path(shutil.copytree(short_tree()[0].root, tmp_path / "tree")))
    edit_detail(tree.performance(next(tree.places())), "qsl_name", HOSTILE)
    main(["check", str(tree.root), *options])
    printed = capsys.readouterr()
    assert "title" in printed.out
    assert not {"\x1b", "\x07", "\x9b", "\x7f"} & set(printed.out + printed.err)


# These modules write only their own messages at a signal
OTHERS = ("scenarios/dispatch.py", "scenarios/launch/run_process.py", "runs/processes/listening.py")


def test_consoles_are_created_in_one_module() -> None:
    places = []
    for folder in ("scenarios", "compliance", "runs", "qsl"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Console":
                    places.append(f"{name}:{node.lineno}")
                if isinstance(node, ast.Attribute) and ast.unparse(node) in (
                    "os.write",
                    "sys.__stdout__",
                    "sys.__stderr__",
                ):
                    places += [f"{name}:{node.lineno}"] * (not name.startswith(OTHERS))
    assert places == []
