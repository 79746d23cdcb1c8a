"""Files and texts of unknown origin: reading them, describing others, and writing files completely or not at all."""

import os
import resource
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.errors import InputError
from runs.files.reading import MAX_LOG_BYTES, Bounds, bounded_lines, files_below, read_object, read_record, read_whole
from runs.files.writing import sha256_of, write_atomic
from runs.loadgen.accuracy_log import read_accuracy_log
from runs.loadgen.detail_log import read_detail
from runs.loadgen.summary_log import read_summary
from runs.loadgen.trace_log import read_trace
from runs.record.engines.engine_log import read_engine_log
from runs.record.manifest import read_manifest
from runs.record.requests_log import RequestLogLine, read_request_table
from runs.wording import duration, printable
from tests.runs.loadgen import test_accuracy_log, test_detail_log, test_summary_log, test_trace_log
from tests.support.files.damage import damaged, deep_folder, input_error
from tests.support.runs.request_lines import encode_line


def test_a_json_object_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": [1, -2.5, 18446744073709551615, "\\ud83d\\ude00"]}')
    assert read_object(path, "") == {"a": [1, -2.5, 2**64 - 1, "😀"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "cannot be read: it is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "cannot be read: it is a git-lfs pointer"),
        (b"{", "cannot be read: it is not JSON"),
        (b"\xff", "cannot be read: it is not JSON"),
        (b"[" * 100_000, "cannot be read: it is not JSON"),
        (b'{"a": 1, "a": 1}', "cannot be read: it has 'a' twice"),
        (b'{"a": {"b": 1, "b": 2}}', "it has 'b' twice"),
        (b'{"a": NaN}', "NaN is too large, or not a number"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b'{"a": 18446744073709551616}', "18446744073709551616 is too large"),
        (b'{"a": {"b": [1, [-Infinity]]}}', "-Infinity is too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "9999"),
        (b"[1e999]", "1e999 is too large"),
        (b'{"a": "\\ud800"}', "surrogates not allowed"),
        (b"\xef\xbb\xbf{}", "cannot be read: it is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
    ],
)
def test_invalid_json_files_are_refused_with_the_fix(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_object(path, "mend it")
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.fix == "mend it"


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(MAX_LOG_BYTES + 1)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _link_outside(path: Path) -> None:
    outside = path.parent.parent / "outside.json"
    outside.write_text("{}")
    path.symlink_to(outside)


def _missing(path: Path) -> None:
    pass


NO_FILES = {
    "a pipe": _pipe, "outside its directory": _endless, "bytes, required": _sparse, "": _loop, "No such file": _missing,
    "a directory": Path.mkdir,
}  # fmt: skip
# Small complete files of the parsers
FILES: dict[Callable[[Path], object], bytes] = {
    read_detail: test_detail_log.COMPLETE.encode(),
    read_summary: test_summary_log.TEXT.encode(),
    read_accuracy_log: test_accuracy_log.WHOLE.encode(),
    read_trace: test_trace_log.WHOLE.encode(),
    read_request_table: b"".join(
        encode_line(RequestLogLine(seq, 27, 812, 128, 10, 20, 30, "length", "ab" * 32)) for seq in range(3)
    ),
}


@pytest.mark.parametrize("read", FILES)
@given(data=st.data())
def test_randomly_damaged_files_raise_only_input_errors(
    tmp_path: Path, read: Callable[[Path], object], data: st.DataObject
) -> None:
    path = tmp_path / "file"
    path.write_bytes(data.draw(damaged(FILES[read]) | st.binary(max_size=60)))
    problem = input_error(lambda: read(path))
    assert problem is None or str(path) in problem.message


@pytest.mark.parametrize("message", NO_FILES)
@pytest.mark.parametrize("read", [*FILES, read_manifest, read_engine_log])
def test_pipes_devices_and_outside_links_are_refused(
    tmp_path: Path, message: str, read: Callable[[Path], object]
) -> None:
    """None of these objects may block or fill the memory."""
    path = tmp_path / "run" / "file"
    path.parent.mkdir()
    NO_FILES[message](path)
    with pytest.raises(InputError) as caught:
        read(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message


def test_records_must_be_in_their_directory_and_configurations_may_be_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.json"
    path.parent.mkdir()
    _link_outside(path)
    assert read_whole(path, "") == b"{}"
    with pytest.raises(InputError, match="outside its directory"):
        read_record(path, "")


def test_a_device_as_dataset_is_refused() -> None:
    with pytest.raises(InputError, match="a device"):
        read_whole(Path("/dev/zero"), "")


def test_a_hash_of_a_pipe_is_refused(tmp_path: Path) -> None:
    _pipe(tmp_path / "a")
    with pytest.raises(InputError, match="a pipe"):
        sha256_of(tmp_path / "a")


def test_a_line_above_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"ab\n" + b"c" * 2000)
    lines = bounded_lines(path, Bounds(10_000, 1024), "")
    assert next(lines) == (1, b"ab\n")
    with pytest.raises(InputError, match="line 2 is longer than 1 KiB"):
        next(lines)


def test_files_at_any_depth_are_found(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with deep_folder(tmp_path):
        below = files_below(tmp_path)
    assert [path.name for path in below] == ["file", "link", "pipe"]
    assert len(below[0].parts) > 1500
    assert files_below(tmp_path / "nowhere") == []


def test_a_link_is_replaced_instead_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    for name in ("file", "link"):
        write_atomic(tmp_path / name, "new")
        assert (tmp_path / name).read_text() == "new"
    assert (tmp_path / "target").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "target"]


def test_a_link_at_the_temporary_name_is_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "record.json"
    victim.write_text("before")
    (tmp_path / f".record.json.{os.getpid()}.tmp").symlink_to(victim)
    write_atomic(path, "content")
    assert (path.read_text(), victim.read_text()) == ("content", "before")
    assert not path.is_symlink()


def test_a_pipe_receives_the_complete_content(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    while not reader.is_alive() or not read:
        try:
            write_atomic(pipe, b"x" * 200_000)
            break
        except OSError:  # not open yet
            continue
    reader.join(10)
    assert read == [b"x" * 200_000]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


@pytest.mark.parametrize("name", ["pipe", "folder", "."])
def test_a_path_that_cannot_be_written_is_an_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("folder").mkdir()
    with pytest.raises(OSError, match=r"No such device|Is a directory"):
        write_atomic(Path(name), "new")
    assert sorted(path.name for path in Path().iterdir()) == ["folder", "pipe"]


def test_a_file_above_the_size_limit_of_the_process_is_named(tmp_path: Path) -> None:
    path, before = tmp_path / "file", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            write_atomic(path, b"x" * 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with é, × and 模型", "plain, with é, × and 模型"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x7f\x9b2J\r", r"\x7f\x9b2J\r"),
        ("a\u202eb\ud800", r"a\u202eb\ud800"),
        ("two\nlines\t", r"two\nlines\t"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_line_breaks_may_stay_and_long_texts_are_cut() -> None:
    assert printable("one\n\ttwo\x1b", lines=True) == "one\n\ttwo\\x1b"
    assert printable("x" * 9, 9) == "x" * 9
    assert printable("x" * 10, 9) == "x" * 9 + "..."
    assert printable("\x1b" * 9, 9) == "\\x1b\\x1b\\..."


def test_error_messages_escape_control_characters() -> None:
    error = InputError("named \x1b[31m", "rename \x07 it")
    assert str(error) == "named \\x1b[31m\n  fix: rename \\x07 it"


@pytest.mark.parametrize(("seconds", "text"), [(89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h")])
def test_a_duration_has_a_readable_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text
