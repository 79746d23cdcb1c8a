"""requests.jsonl and the running statistics: no lost lines, close percentiles, and a reported full disk."""

import hashlib
import threading
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.errors import ExecutionError
from runs.record.requests_log import RequestLogLine, read_request_table
from sut.engine import Request
from sut.request_writer import FinishedRequest, LatencyHistogram, RequestLogWriter, partial_path, rescue_partial
from tests.support.engines.fakes import FakeSink
from tests.support.processes.patience import until
from tests.support.runs.request_lines import encode_line

MS = 1_000_000
COMPLETE_NS = 1_500 * MS


def outcome(seq: int, *, ids: tuple[int, ...] = (5, 6, 7), first_ns: int = 0) -> FinishedRequest:
    request = Request(FakeSink(), [1] * 40, seq=seq, sample_index=seq % 7, issue_ns=1_000 * MS)
    request.first_token_ns = first_ns
    return (request, array("i", ids), "stop")


def no_error(error: BaseException) -> None:
    raise AssertionError(f"told of {error}")


def test_a_line_has_the_fields_of_its_request(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    request_log = RequestLogWriter(path, no_error)
    assert not path.exists()
    request_log.append(COMPLETE_NS, [outcome(3, first_ns=1_100 * MS)])
    request_log.append(COMPLETE_NS + 1, [outcome(4, ids=(9,))])
    request_log.close()
    digests = [hashlib.sha256(array("i", ids)).hexdigest() for ids in ((5, 6, 7), (9,))]
    records = [
        RequestLogLine(3, 3, 40, 3, 1_000 * MS, 1_100 * MS, COMPLETE_NS, "stop", digests[0]),
        RequestLogLine(4, 4, 40, 1, 1_000 * MS, None, COMPLETE_NS + 1, "stop", digests[1]),
    ]
    assert path.read_bytes() == b"".join(encode_line(record) for record in records)
    assert not partial_path(path).exists()
    rescue_partial(path)  # no partial file
    assert list(tmp_path.iterdir()) == [path]


def test_running_statistics_equal_the_requests(tmp_path: Path) -> None:
    request_log = RequestLogWriter(tmp_path / "requests.jsonl", no_error)
    for seq in range(100):
        request_log.append(COMPLETE_NS, [outcome(seq, first_ns=1_100 * MS)])
    request_log.append(COMPLETE_NS, [outcome(100, ids=(9,), first_ns=1_100 * MS)])  # one token: no time between tokens
    request_log.close()
    assert request_log.done == 101
    assert request_log.output_tokens == 301
    assert request_log.ttft.percentile_ms(99) == pytest.approx(100, rel=0.02)
    assert request_log.tpot.percentile_ms(99) == pytest.approx(200, rel=0.02)


def test_concurrent_writers_lose_no_lines(tmp_path: Path) -> None:
    request_log = RequestLogWriter(tmp_path / "requests.jsonl", no_error)

    def append(first: int) -> None:
        for seq in range(first, 8_000, 8):
            request_log.append(COMPLETE_NS, [outcome(seq)])

    threads = [threading.Thread(target=append, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    request_log.close()
    assert read_request_table(tmp_path / "requests.jsonl").seq.tolist() == list(range(8_000))
    assert request_log.done == 8_000


@settings(max_examples=30)
@given(st.lists(st.floats(1e3, 1e13), min_size=1, max_size=300), st.sampled_from([50.0, 90.0, 99.0, 99.9]))
def test_percentiles_are_within_two_percent(values_ns: list[float], percentile: float) -> None:
    histogram = LatencyHistogram()
    for part in np.array_split(np.asarray(values_ns), 3):
        histogram.add(part)
    exact_ms = sorted(values_ns)[min(int(len(values_ns) * percentile / 100), len(values_ns) - 1)] / 1e6
    assert histogram.percentile_ms(percentile) == pytest.approx(exact_ms, rel=0.0201)


def test_values_outside_the_range_are_counted_at_its_ends() -> None:
    histogram = LatencyHistogram()
    assert histogram.percentile_ms(99) is None
    histogram.add(np.array([0.0, -5.0, 1e18]))
    assert histogram.percentile_ms(50) == pytest.approx(0.001)
    assert histogram.percentile_ms(99.9) == pytest.approx(1e-3 * 1.02**1199, rel=1e-3)  # value of the last bin


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    reported: list[BaseException] = []
    seen = threading.Event()
    path = tmp_path / "requests.jsonl"
    partial_path(path).symlink_to("/dev/full")  # each write fails there with "no space left on device"

    def note(error: BaseException) -> None:
        reported.append(error)
        seen.set()

    request_log = RequestLogWriter(path, note)
    request_log.append(COMPLETE_NS, [outcome(0)])
    until(seen.is_set, "the error")
    assert isinstance(reported[0], ExecutionError)
    assert reported[0].message == f"the disk of {tmp_path} is full"
    request_log.append(COMPLETE_NS, [outcome(1)])
    with pytest.raises(ExecutionError, match="is full"):
        request_log.close()
    assert not path.exists()


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="No such file"):
        RequestLogWriter(tmp_path / "none" / "requests.jsonl", no_error)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (b'{"seq":0}\n{"seq":1}\n{"se', b'{"seq":0}\n{"seq":1}\n'),
        (b'{"seq":0}\n', b'{"seq":0}\n'),
        (b'{"se', b""),
        (b"", b""),
        (b"x" * 300_000 + b"\n" + b"y" * 70_000, b"x" * 300_000 + b"\n"),
    ],
)
def test_complete_lines_of_a_killed_run_are_kept(written: bytes, kept: bytes, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    partial_path(path).write_bytes(written)
    rescue_partial(path)
    assert path.read_bytes() == kept
    assert list(tmp_path.iterdir()) == [path]
