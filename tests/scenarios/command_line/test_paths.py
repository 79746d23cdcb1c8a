"""Paths on the command line that no file can have, in every command that takes one."""

import os
from pathlib import Path

import pytest

import main

COMMANDS = [
    ["run", "--scenario", "Offline", "--engine", "dummy", "--output-log-dir"],
    ["audit", "--test", "TEST06", "--scenario", "Offline", "--engine", "dummy", "--output-log-dir"],
    ["tune", "--scenario", "Server", "--engine", "dummy", "--output-log-dir"],
    ["campaign", "--config"],
    ["doctor", "--dataset-path"],
    ["signoff", "--ref"],
    ["verify"],
    ["check"],
    ["status"],
    ["results"],
]
IDS = [command[0] for command in COMMANDS]


@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "is empty"),
        ("loop", "links that lead in a circle"),
        ("x" * 300, "the name is too long"),
        ("M\udcfcller", "is not UTF-8"),
        ("a\0b", "null byte"),
    ],
    ids=["empty", "loop", "long", "bytes", "nul"],
)
def test_refused_before_anything_is_done(
    command: list[str],
    name: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("other")
    (tmp_path / "other").symlink_to("loop")
    assert main.main([*command, name]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert "fix: " in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop", "other"]


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
