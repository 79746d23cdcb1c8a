"""The parser of mlperf_log_trace.json."""

from pathlib import Path

import pytest

from runs.errors import InputError
from runs.loadgen.trace_log import NO_TIME, read_trace

HEAD = '{"traceEvents":[\n{"name":"LogDetail","ph":"X","pid":1,"tid":1,"ts":1.000,"dur":2.0,"args":{"key":""x""}},\n'
TAIL = '{"name":"LastTrace"}\n],\n"displayTimeUnit":"ns",\n"otherData":{\n"ts":1795255579315461.750\n}\n}\n'


def sample(seq: int, ts: str, delay_ns: int, done_ns: int, index: int = 7, name: str = "Sample") -> str:
    return (
        f'{{"name":"{name}","cat":"default","ph":"b","pid":1,"id":{seq},"ts":{ts},"args":{{"sample_seq":{seq},'
        f'"query_seq":{seq},"sample_idx":{index},"issue_start_ns":{delay_ns},"complete_ns":{done_ns}}}}},\n'
        f'{{"name":"{name}","cat":"default","ph":"e", "pid":1,"id":{seq},"ts":1.000}},\n'
    )


def first_token(ts: str, delay_ns: int, after_issue_ns: int) -> str:
    return (
        f'{{"name":"Token_Latency","ph": "C","pid":1,"ts":{ts},'
        f'"args":{{ "issue_delay":{delay_ns},"issue_to_done":{after_issue_ns}}}}},\n'
    )


def write(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "mlperf_log_trace.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_first_tokens_of_server_queries_are_matched(tmp_path: Path) -> None:
    # The issue delay distinguishes two queries that are scheduled in one nanosecond.
    body = (
        first_token("20.007", 300, 50)
        + first_token("20.007", 100, 40)
        + sample(2, "20.007", 300, 900)
        + sample(1, "20.007", 100, 800, index=3)
        + first_token("10.000", 5, 20)
        + sample(0, "10.000", 5, 70)
    )
    trace = read_trace(write(tmp_path, HEAD + body + TAIL))
    assert trace.sample_seq.tolist() == [0, 1, 2]
    assert trace.sample_index.tolist() == [7, 3, 7]
    assert trace.scheduled_ns.tolist() == [10_000, 20_007, 20_007]
    assert trace.issue_delay_ns.tolist() == [5, 100, 300]
    assert trace.complete_ns.tolist() == [70, 800, 900]
    assert trace.first_token_ns.tolist() == [25, 140, 350]


def test_single_stream_first_tokens_are_matched_by_sample(tmp_path: Path) -> None:
    body = sample(0, "1.000", 0, 11, name="Token") + sample(0, "1.000", 0, 99) + sample(1, "3.000", 0, 88)
    trace = read_trace(write(tmp_path, HEAD + body + TAIL))
    assert trace.first_token_ns.tolist() == [11, NO_TIME]
    assert len(trace) == 2


def test_an_empty_file_has_no_trace(tmp_path: Path) -> None:
    assert read_trace(write(tmp_path, "")) is None


def test_a_trace_without_samples_is_empty(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, HEAD + TAIL))
    assert len(trace) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hello\n", "line 1 is not the start"),
        (HEAD + sample(0, "1.000", 0, 1), "the end of the trace is missing"),
        (HEAD + sample(0, "1.000", 0, 1)[:80] + "\n" + TAIL, "line 3 is damaged"),
        (HEAD + sample(0, "1", 0, 1) + TAIL, "line 3 is damaged"),
        (HEAD + sample(0, "1.000", 0, 10**20) + TAIL, "line 3 has a number that is out of range"),
        (HEAD + sample(4, "1.000", 0, 1) * 2 + TAIL, "sample_seq 4 completes twice"),
        (HEAD + "x" * 2_000_000, "line 3 is longer than 1,024 KiB"),
    ],
)
def test_damaged_lines_are_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_trace(write(tmp_path, content))


WHOLE = HEAD + first_token("20.007", 3, 50) + sample(0, "20.007", 3, 90) + sample(1, "30.000", 1, 80) + TAIL
