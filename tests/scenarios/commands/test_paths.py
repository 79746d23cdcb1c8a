"""Paths on the command line that no file can have, in every command that takes one."""

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
