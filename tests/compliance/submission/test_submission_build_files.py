"""Files of a tree that are made from others: the truncated accuracy log with its hash, and the source."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from compliance.evidence.truncate import submitted_accuracy
from compliance.submission.source import read_documentation, read_source
from runs.errors import InputError, SetupError
from runs.record.layout import RunDir
from runs.record.manifest import Manifest
from tests.support.published import CHECKOUT, needs_checkout
from tests.support.submission_manifests import manifest

pytestmark = pytest.mark.slow

SIZES = (2, 4095, 4096, 4097, 8191, 8192, 10_240, 100_000)


def leg_with_answers(root: Path, size: int) -> RunDir:
    root.mkdir(parents=True)
    run = RunDir(root)
    run.accuracy_log.write_text("[" + "".join(chr(97 + n % 26) for n in range(size - 2)) + "]")
    run.accuracy_text.write_text("Results\n\n{'rouge1': '1.0'}\n")
    return run


@pytest.mark.parametrize("size", SIZES)
def test_truncation_keeps_both_ends_and_the_hash(tmp_path: Path, size: int) -> None:
    run = leg_with_answers(tmp_path / "leg", size)
    whole = run.accuracy_log.read_bytes()
    submitted = submitted_accuracy(run)
    assert run.accuracy_log.read_bytes() == whole
    assert submitted.text.endswith(f"\nhash={hashlib.sha256(whole).hexdigest()}\n".encode())
    if size < 4096:
        assert submitted.log == whole
    else:
        assert submitted.log == whole[:4096] + b"\n\n...\n\n" + whole[-4096:]


def test_a_log_that_was_truncated_before_keeps_its_hash(tmp_path: Path) -> None:
    run = leg_with_answers(tmp_path / "leg", 100_000)
    first = submitted_accuracy(run)
    run.accuracy_log.write_bytes(first.log)
    with pytest.raises(InputError, match="has no hash= line"):
        submitted_accuracy(run)
    run.accuracy_text.write_bytes(first.text)
    assert submitted_accuracy(run) == first
    run.accuracy_text.unlink()
    with pytest.raises(InputError, match=r"cannot read .*accuracy\.txt"):
        submitted_accuracy(run)


@needs_checkout
@pytest.mark.parametrize("size", SIZES)
def test_the_official_tool_leaves_the_same_bytes(tmp_path: Path, size: int) -> None:
    run = leg_with_answers(tmp_path / "in/closed/Org/results/Box/llama3.1-8b/Offline/accuracy", size)
    ours = submitted_accuracy(run)
    tool = Path(CHECKOUT) / "tools/submission/truncate_accuracy_log.py"
    command = [sys.executable, tool, "--input", tmp_path / "in", "--submitter", "Org", "--output", tmp_path / "out"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    theirs = RunDir(tmp_path / "out/closed/Org/results/Box/llama3.1-8b/Offline/accuracy")
    assert theirs.accuracy_log.read_bytes() == ours.log
    assert theirs.accuracy_text.read_bytes() == ours.text


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two tracked files, a dot file and a link, in one commit; and a file that git does not know."""
    root = tmp_path / "repository"
    (root / "sub").mkdir(parents=True)
    (root / "main.py").write_text("first\n")
    (root / "sub" / "tool.py").write_text("tool\n")
    (root / ".gitignore").write_text("x\n")
    (root / "link").symlink_to("main.py")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "one")
    (root / "untracked.txt").write_text("not ours\n")
    return root


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def ran(commit: str | None, changed: bool | None = False) -> list[Manifest]:
    return [manifest(harness={"version": "0.1.0", "git_commit": commit, "git_changed": changed})]


def test_the_source_is_the_commit_that_ran(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    (repository / "main.py").write_text("second\n")  # later than the legs
    source = read_source(None, ran(commit), repository)
    assert source.files == {"main.py": b"first\n", "sub/tool.py": b"tool\n"}
    assert source.left_out == [".gitignore", "link"]
    assert commit in source.readme()


def test_a_source_that_cannot_be_had_is_asked_for(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    for manifests, found in (
        (ran("f" * 40), "is not in .*repository"),
        (ran(None), "name no commit"),
        (ran(commit, changed=True), "had changes"),
        (ran(commit, changed=None), "had changes"),  # nobody knows
    ):
        with pytest.raises(SetupError, match=found) as caught:
            read_source(None, manifests, repository)
        assert "--source DIR" in caught.value.fix


def test_a_named_source_is_copied(repository: Path, tmp_path: Path) -> None:
    (repository / "main.py").write_text("second\n")
    source = read_source(repository, ran("f" * 40, changed=True))
    assert source.files == {"main.py": b"second\n", "sub/tool.py": b"tool\n"}
    assert "with changes that are not in it" in source.readme()
    assert f"The legs ran with commit `{'f' * 40}` and changes to it." in source.readme()
    (repository / "diagrams").mkdir()  # in a checkout, and nothing in it tracked
    (repository / "diagrams" / "network.svg").write_text("a box\n")
    assert read_documentation(repository / "diagrams") == {"network.svg": b"a box\n"}
    plain = tmp_path / "plain"
    (plain / "__pycache__").mkdir(parents=True)
    (plain / "__pycache__" / "x.pyc").write_text("")
    (plain / ".env").write_text("secret")
    with pytest.raises(InputError, match="has no file"):
        read_source(plain, ran(None))
    (plain / "run.py").write_text("")
    assert read_source(plain, ran(None)).files == {"run.py": b""}
    with pytest.raises(InputError, match="is no directory"):
        read_source(plain / "run.py", ran(None))
