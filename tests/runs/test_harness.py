"""The git state of a checkout: reading it leaves no trace, for any owner and environment."""

import os
import subprocess
from pathlib import Path

import pytest

from runs import harness
from runs.harness import git
from tests.conftest import ROOT


def test_reading_the_git_state_takes_no_lock(tmp_path: Path) -> None:
    def do(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e", *arguments], check=True)

    do("init", "-q")
    (tmp_path / "file").write_text("text")
    do("add", "file")
    do("commit", "-q", "-m", "one")
    os.utime(tmp_path / "file", (1, 1))  # git would compare the file again, and store that it is unchanged
    index = (tmp_path / ".git" / "index").read_bytes()
    assert git(tmp_path, "status", "--porcelain") == b""
    assert (tmp_path / ".git" / "index").read_bytes() == index
    do("status", "--porcelain")
    assert (tmp_path / ".git" / "index").read_bytes() != index  # git does this if it may


def test_the_commit_of_a_checkout_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout, unrelated = tmp_path / "checkout", tmp_path / "other"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(checkout)], check=True)
    commit = git(checkout, "rev-parse", "HEAD").decode().strip()
    monkeypatch.setattr(harness, "HARNESS_ROOT", checkout)
    monkeypatch.setattr(harness, "IN_CHECKOUT", True)

    def on_record() -> tuple[str, bool]:
        facts = harness.harness_facts()
        return facts["git_commit"], facts["git_changed"]

    subprocess.run(["git", "init", "-q", str(unrelated)], check=True)
    with monkeypatch.context() as hook:  # as in a hook of another repository
        hook.setenv("GIT_DIR", str(unrelated / ".git"))
        hook.setenv("GIT_WORK_TREE", str(tmp_path))
        assert on_record() == (commit, False)
    (checkout / "README.md").chmod(0o777)  # some disks keep no modes
    assert on_record() == (commit, False)
    # Root installs the harness and another user runs it. git refuses such a folder unless it is named.
    if os.geteuid() == 0:
        for path in (checkout, *checkout.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        assert on_record() == (commit, False)
        monkeypatch.setattr(harness, "HARNESS_ROOT", ROOT)
        with pytest.raises(subprocess.CalledProcessError):
            git(checkout, "rev-parse", "HEAD")
        monkeypatch.setattr(harness, "HARNESS_ROOT", checkout)
    (checkout / "README.md").write_text("other")
    assert on_record() == (commit, True)
