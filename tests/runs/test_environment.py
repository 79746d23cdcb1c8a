"""What is asked of git leaves no trace in the repository."""

import os
import subprocess
from pathlib import Path

from runs.environment import git


def test_git_takes_no_lock(tmp_path: Path) -> None:
    def do(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e", *arguments], check=True)

    do("init", "-q")
    (tmp_path / "file").write_text("text")
    do("add", "file")
    do("commit", "-q", "-m", "one")
    os.utime(tmp_path / "file", (1, 1))  # git would look at it again, and write down that it is the same
    index = (tmp_path / ".git" / "index").read_bytes()
    assert git(tmp_path, "status", "--porcelain") == b""
    assert (tmp_path / ".git" / "index").read_bytes() == index
    do("status", "--porcelain")
    assert (tmp_path / ".git" / "index").read_bytes() != index  # as it does when it may
