"""The reader of run directories of the MLPerf Endpoints client, on any content."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import pytest

from runs.errors import InputError
from runs.mlperf_endpoints.events import NO_TIME, TEXT, Events
from runs.mlperf_endpoints.folder import EndpointsRun, read_folder
from runs.mlperf_endpoints.layout import EVENTS, SAMPLES, SUMMARY, is_run_folder

Lines = list[bytes]
STATISTICS = {"total": 4, "min": 1, "max": 3, "percentiles": {"50.0": 1.0}}


def _event(kind: str, time_ns: int, uuid: str = "", **more: object) -> bytes:
    return orjson.dumps({"event_type": kind, "timestamp_ns": time_ns, "sample_uuid": uuid, "data": None, **more})


LINES = (
    _event("session.started", 10),
    _event("session.start_performance_tracking", 11),
    _event("sample.issued", 12, "a", data=["PromptData", "two words"]),
    _event("sample.recv_first", 20, "a"),
    _event("sample.complete", 25, "a", data=["TextModelOutput", ["one ", "two ü"]], finish_reason="stop"),
    _event("session.stop_performance_tracking", 30),
    _event("session.ended", 31),
)


def _folder(root: Path, lines: Sequence[bytes] = LINES) -> Path:
    summary = {
        "version": "0.1.0", "n_samples_issued": 1, "n_samples_completed": 1, "n_samples_failed": 0, "duration_ns": 14,
        "state": "complete", "complete": True, "ttft": STATISTICS, "tpot": {}, "latency": STATISTICS,
        "output_sequence_lengths": {}, "of a later release": [1],
    }  # fmt: skip
    (root / "performance").mkdir(parents=True)
    (root / SUMMARY).write_bytes(orjson.dumps(summary))
    (root / "config.yaml").write_text("version: '1.0'\ntype: online\nmodel_params: {name: m, streaming: 'on'}\n")
    (root / EVENTS).write_bytes(b"\n".join(lines) + b"\n")
    (root / SAMPLES).write_text('{"performance": {"a": 7}}')
    return root


def test_a_run_directory_is_read(tmp_path: Path) -> None:
    run = read_folder(_folder(tmp_path / "run"))
    events = run.events
    assert run.config.streaming is True
    assert run.summary.latency.percentiles == {"50.0": 1.0}
    assert (events.issued_ns[0], events.first_ns[0], events.complete_ns[0]) == (12, 20, 25)
    assert (events.prompt_kind[0], events.prompt_size[0]) == (TEXT, 9)
    assert (events.response_bytes[0], events.rest_bytes[0]) == (10, 6)
    assert events.reasons == {"stop": 0}
    assert events.tracked.all()
    assert not events.odd
    assert run.sample_index().tolist() == [7]
    assert [(row, response.text, response.rest) for row, response in events.responses()] == [(0, "one two ü", "two ü")]
    assert run.missing == ("metrics/final_snapshot.json", "report.txt")


def test_other_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mlperf_log_detail.txt").touch()
    assert not is_run_folder(tmp_path)
    with pytest.raises(InputError, match="no run of the MLPerf Endpoints client"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "before", "after"), [(SUMMARY, b'"0.1.0"', b'"0.2.0"'), ("config.yaml", b"'1.0'", b"'2.0'")]
)
def test_an_unsupported_release_is_refused(tmp_path: Path, name: str, before: bytes, after: bytes) -> None:
    path = _folder(tmp_path / "run") / name
    path.write_bytes(path.read_bytes().replace(before, after))
    with pytest.raises(
        InputError,
        match=r"client release 0\.\d\.0 in format \d\.0; this harness supports release 0\.1 with format 1\.0",
    ):
        read_folder(tmp_path / "run")


def test_warm_up_and_unfinished_requests_are_not_counted(tmp_path: Path) -> None:
    lines = (
        LINES[0], _event("sample.issued", 10, "warm", data=["PromptData", "x"]), LINES[1], LINES[2],
        _event("sample.complete", 13, "warm", data=["TextModelOutput", "x"]), _event("session.ended", 14),
    )  # fmt: skip
    events = Events(_folder(tmp_path / "run", lines) / EVENTS)
    assert events.tracked.tolist() == [False, True]
    assert events.complete_ns.tolist() == [13, NO_TIME]
    assert events.phases == [[11, NO_TIME]]
    assert not events.odd


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], "second issue of a sample"),
        (lambda lines: [*lines[:4], lines[3], *lines[4:]], "second first token"),
        (lambda lines: [*lines[:5], lines[4], *lines[5:]], "second completion"),
        (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], "chunk of a response after its completion"),
        (lambda lines: [*lines[:2], *lines[3:]], "event of a sample that was not issued"),
        (lambda lines: [*lines, lines[4]], "after the session's end"),
        (lambda lines: [lines[0], *lines], "second start of the session"),
        (lambda lines: [*lines[:2], *lines[1:]], "measuring started twice"),
        (lambda lines: [*lines[:6], *lines[5:]], "measuring stopped twice"),
        (
            lambda lines: [*lines[:3], _event("sample.recv_non_first", 20, "a"), *lines[4:]],
            "chunk of a response before",
        ),
        (lambda lines: [*lines[:5], _event("error.generic", 25, "a"), *lines[5:]], "error of a sample after"),
        (lambda lines: [*lines[:4], *[_event("error.generic", 22, "a")] * 2, *lines[4:]], "second error of a sample"),
        (lambda lines: lines[1:], "before the session's start"),
        (
            lambda lines: [*lines[:2], _event("session.x", 5), *lines[2:]],
            "event with an earlier time than the previous event",
        ),
    ],
)
def test_inconsistent_events_are_kept_for_findings(tmp_path: Path, change: Callable[[Lines], Lines], what: str) -> None:
    odd = Events(_folder(tmp_path / "run", change([*LINES])) / EVENTS).odd
    assert any(value.startswith(what) for value in odd)


@pytest.mark.parametrize(
    "content",
    [
        b"not json\n",
        b'{"event_type": "sample.issued", "timestamp_ns": 1.5}\n',
        b'{"event_type": "sample.issued", "timestamp_ns": -1}\n',
        b'{"event_type": "other", "timestamp_ns": 1}\n',
        b'{"timestamp_ns": 1}\n',
        LINES[0] + b"\n" + LINES[2][:40],
        b"\n".join([*LINES[:3], _event("sample.complete", 25, "a", data=["TextModelOutput", [[]]])]),
        b"\n".join([*LINES[:2], _event("sample.issued", 25, "a", data=["PromptData", None, [[1]]])]),
        b'{"event_type": "session.started", "timestamp_ns": 1, "data": ' + b"[" * 200_000 + b"\n",
        b"\xff\xfe\n",
        b'{"event_type": "sample.issued", "timestamp_ns": 1, "data": "' + b"x" * (17 * 2**20) + b'"}\n',
    ],
)
def test_a_damaged_event_is_refused_with_its_line(tmp_path: Path, content: bytes) -> None:
    folder = _folder(tmp_path / "run")
    (folder / EVENTS).write_bytes(content)
    with pytest.raises(InputError, match=r"events\.jsonl line \d"):
        Events(folder / EVENTS)


@pytest.mark.parametrize(
    "content",
    [
        b"[]", b'{"performance": {"a": -1}}', b'{"performance": {"a": 1, "a": 2}}', b'{"performance": 1}', b"{",
        b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_damaged_sample_map_is_refused(tmp_path: Path, content: bytes) -> None:
    folder = _folder(tmp_path / "run")
    (folder / SAMPLES).write_bytes(content)
    with pytest.raises(InputError, match=r"sample_idx_map\.json"):
        _ = read_folder(folder).indices


@pytest.mark.parametrize("name", [SUMMARY, EVENTS, SAMPLES, "config.yaml"])
@pytest.mark.parametrize("kind", ["pipe", "directory", "link", "outside"])
def test_a_path_that_is_not_a_regular_file_is_named(tmp_path: Path, name: str, kind: str) -> None:
    path = _folder(tmp_path / "run") / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("nowhere" if kind == "link" else "/etc/hostname")
    run = EndpointsRun(tmp_path / "run")
    with pytest.raises(InputError, match=path.name.replace(".", r"\.")):
        _ = run.config, run.summary, run.events, run.indices
