"""A directory that one command fills: what is told when it cannot be held."""

import errno
import fcntl
from pathlib import Path

import pytest

from runs.errors import SetupError
from scenarios.resumed import held


def test_a_file_system_without_locks_is_not_another_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(SetupError, match="cannot be locked: No locks available"), held(tmp_path / "lock", "tune"):
        pass
