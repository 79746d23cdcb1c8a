"""Writing files: whole or not at all, and never in the place of something that is no file."""

import os
import resource
import stat
import threading
from pathlib import Path

import pytest

from runs.files import write_atomic


def test_a_file_and_a_link_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    for name in ("file", "link"):
        write_atomic(tmp_path / name, "new")
        assert (tmp_path / name).read_text() == "new"
    assert (tmp_path / "target").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "target"]


def test_a_pipe_that_is_read_gets_everything(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    while not reader.is_alive() or not read:
        try:
            write_atomic(pipe, b"x" * 200_000)
            break
        except OSError:  # it is not open there yet
            continue
    reader.join(10)
    assert read == [b"x" * 200_000]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


@pytest.mark.parametrize("name", ["pipe", "folder", "."])
def test_what_cannot_be_written_is_an_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("folder").mkdir()
    with pytest.raises(OSError, match=r"No such device|Is a directory"):
        write_atomic(Path(name), "new")
    assert sorted(path.name for path in Path().iterdir()) == ["folder", "pipe"]


def test_a_file_that_may_not_become_so_large_is_named(tmp_path: Path) -> None:
    path, before = tmp_path / "file", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            write_atomic(path, b"x" * 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []
