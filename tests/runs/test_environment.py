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


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(tmp_path / "checkout")], check=True)
    return tmp_path / "checkout"


def on_record(checkout: Path, **around: str) -> tuple[str, bool]:
    """What the harness of a checkout says of itself: its commit, and whether it was changed."""
    program = "import json; from runs.environment import harness_facts; print(json.dumps(harness_facts()))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=checkout, env={**os.environ, **around}, capture_output=True, check=True
    )
    facts = json.loads(done.stdout)
    return facts["git_commit"], facts["git_changed"]


def head(checkout: Path) -> str:
    return git(checkout, "rev-parse", "HEAD").decode().strip()


def test_a_checkout_of_another_user_has_a_commit(checkout: Path) -> None:
    """Root installs it, somebody runs it: git refuses such a folder unless it is named."""
    if os.geteuid():
        pytest.skip("only root gives files away")
    commit = head(checkout)
    for path in (checkout, *checkout.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    with pytest.raises(subprocess.CalledProcessError):
        head(checkout)
    assert on_record(checkout) == (commit, False)


def test_a_repository_that_the_environment_names_is_not_meant(checkout: Path, tmp_path: Path) -> None:
    """As under a hook of another one."""
    subprocess.run(["git", "init", "-q", str(tmp_path / "other")], check=True)
    around = {"GIT_DIR": str(tmp_path / "other" / ".git"), "GIT_WORK_TREE": str(tmp_path)}
    assert on_record(checkout, **around) == (head(checkout), False)


def test_modes_of_files_are_no_change_and_their_bytes_are(checkout: Path) -> None:
    (checkout / "README.md").chmod(0o777)
    assert on_record(checkout) == (head(checkout), False)
    (checkout / "README.md").write_text("other")
    assert on_record(checkout) == (head(checkout), True)
