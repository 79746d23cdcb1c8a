"""Paths on the command line that no file can have, in every command that takes one."""

import os
from pathlib import Path

import pytest

import main

COMMANDS = [
    ["run", "--scenario", "Offline", "--engine", "dummy", "--output-log-dir"],
    ["campaign", "--config"],
    ["verify"],
]
IDS = [command[0] for command in COMMANDS]


@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
def test_a_place_that_the_user_may_not_enter(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    user = os.geteuid()
    if user == 0:  # who may enter everything
        os.seteuid(65534)
    try:
        assert main.main([*command, str(tmp_path / "closed" / "x")]) == 2
    finally:
        os.seteuid(user)
    assert "x: you may not enter the directory that it lies in\n  fix: " in capsys.readouterr().err
