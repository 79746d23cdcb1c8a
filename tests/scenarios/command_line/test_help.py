"""`--help`: examples that parse for every command, whole sentences, nothing cut."""

import shlex

import click
import pytest

import main
from scenarios.command_line.command import Command, Group
from scenarios.command_line.dispatch import COMMANDS, cli
from tests.support.command_lines import parse


def of(name: str) -> Command | Group:
    found = cli.get_command(click.Context(cli), name)
    assert isinstance(found, Command | Group)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_can_be_typed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(of(name).examples) in (2, 3)
    for example in of(name).examples:
        words, colon, line = example.partition(": ")
        assert colon
        assert words
        assert line.split()[0] == name or name == "init"  # whose last one shows what comes next
        parse(shlex.split(line))
        assert main.main([name, "--help"]) == 0
        assert f"python main.py {line}\n" in capsys.readouterr().out


def test_whole_sentences_in_the_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for name in COMMANDS:
        first = " ".join(str(of(name).help).split()).partition(". ")[0].rstrip(".")
        assert f"{name} {first}." in text
    assert "…" not in text
    assert "..." not in text.partition("Commands")[2]
