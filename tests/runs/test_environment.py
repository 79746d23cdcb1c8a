"""What is asked of git leaves no trace in the repository, and is answered whoever asks, from wherever."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runs.environment import git
from tests.conftest import ROOT


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


def on_record(checkout: Path, **around: str) -> tuple[str, bool]:
    """What the harness of a checkout says of itself: its commit, and whether it was changed."""
    program = "import json; from runs.environment import harness_facts; print(json.dumps(harness_facts()))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=checkout, env={**os.environ, **around}, capture_output=True, check=True
    )
    facts = json.loads(done.stdout)
    return facts["git_commit"], facts["git_changed"]


def test_the_commit_of_a_checkout(tmp_path: Path) -> None:
    checkout, other = tmp_path / "checkout", tmp_path / "other"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(checkout)], check=True)
    commit = git(checkout, "rev-parse", "HEAD").decode().strip()
    # as under a hook of another repository
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    assert on_record(checkout, GIT_DIR=str(other / ".git"), GIT_WORK_TREE=str(tmp_path)) == (commit, False)
    (checkout / "README.md").chmod(0o777)  # some disks keep no modes
    assert on_record(checkout) == (commit, False)
    if os.geteuid() == 0:  # root installs it, another user runs it: git refuses such a folder unless it is named
        for path in (checkout, *checkout.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        with pytest.raises(subprocess.CalledProcessError):
            git(checkout, "rev-parse", "HEAD")
    (checkout / "README.md").write_text("other")
    assert on_record(checkout) == (commit, True)
