"""requests.jsonl: written, read, and refused with the line of each damage."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from runs.errors import InputError
from runs.record.requests_log import MAX_REASONS, NO_TIME, RequestLogLine, read_request_table
from tests.support.runs.request_lines import encode_line

integers = st.integers(0, 2**63 - 1)
records = st.builds(
    RequestLogLine,
    seq=integers,
    sample_index=integers,
    prompt_tokens=integers,
    output_tokens=integers,
    issue_ns=integers,
    first_token_ns=st.none() | integers,
    complete_ns=integers,
    finish_reason=st.sampled_from(["stop", "length", "Ende – ß"]),
    output_sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
    submit_ns=st.just(UNSET) | integers,
    token_gaps_us=st.lists(st.integers(0, 2**32 - 1), max_size=5),
)
# Other tools rely on these names.
NAMES = (
    "seq", "sample_index", "prompt_tokens", "output_tokens", "issue_ns", "first_token_ns", "complete_ns",
    "finish_reason", "output_sha256", "replica",
)  # fmt: skip
GOOD = RequestLogLine(0, 27, 812, 128, 10, 20, 30, "length", "ab" * 32)


@given(rows=st.lists(records, max_size=12, unique_by=lambda record: record.seq))
def test_written_requests_are_read_in_order_of_issue(tmp_path: Path, rows: list[RequestLogLine]) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"".join(encode_line(row) for row in rows))
    table = read_request_table(path)
    rows.sort(key=lambda record: record.seq)
    assert len(table) == len(rows)
    assert table.seq.tolist() == [row.seq for row in rows]
    assert table.sample_index.tolist() == [row.sample_index for row in rows]
    assert table.complete_ns.tolist() == [row.complete_ns for row in rows]
    assert table.first_token_ns.tolist() == [
        NO_TIME if row.first_token_ns is None else row.first_token_ns for row in rows
    ]
    submitted = [row.submit_ns if isinstance(row.submit_ns, int) else NO_TIME for row in rows]
    assert (table.submit_ns is None) == (set(submitted) <= {NO_TIME})
    assert table.submit_ns is None or table.submit_ns.tolist() == submitted
    assert table.finish_reason == [row.finish_reason for row in rows]
    gaps = [] if table.token_gaps is None else [values.tolist() for values in table.token_gaps.each()]
    assert gaps == [row.token_gaps_us for row in rows]
    assert list(table.output_sha256) == [row.output_sha256 for row in rows]


@pytest.mark.parametrize(("name", "value"), zip(NAMES, [-1, 1.5, True, [], {}, 2**63, -1, 1.5, True, [3]], strict=True))
def test_an_invalid_field_is_refused_with_its_line(tmp_path: Path, name: str, value: Any) -> None:
    raw = json.loads(encode_line(GOOD)) | {"seq": 1, name: value}
    path = tmp_path / "requests.jsonl"
    path.write_bytes(encode_line(GOOD) + json.dumps(raw).encode() + b"\n")
    with pytest.raises(InputError, match=rf"line 2 is not a line of a request log: .*\$\.{name}`"):
        read_request_table(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (encode_line(GOOD) + encode_line(GOOD)[:50], "line 2 is not a line of a request log"),
        (encode_line(GOOD) + b"\n", "line 2 is not a line of a request log"),
        (b"[1, 2]\n", "line 1 is not a line of a request log"),
        (b"\xff\xfe\n", "line 1 is not a line of a request log"),
        (encode_line(GOOD)[:-2] + b',"seq":3}\n', "line 1 contains a field twice"),
        (encode_line(GOOD)[:-2] + b',"other":3}\n', "unknown field `other`"),
        (encode_line(replace(GOOD, submit_ns=12))[:-2] + b',"submit_ns":13}\n', "line 1 contains a field twice"),
        (encode_line(GOOD)[:-2] + b',"submit_ns":null}\n', "line 1 is not a line of a request log"),
        (b"x" * 1_100_000, "line 1 is longer than 1,024 KiB"),
        (encode_line(GOOD) * 2, "line 2: field 'seq' is 0, as on line 1"),
        *(
            (encode_line(GOOD).replace(b'"%s":' % name, b'"x":'), "line 1 is not a line of a request log")
            for name in (b"seq", b"issue_ns")
        ),
        (encode_line(replace(GOOD, output_sha256="G" * 64)), "line 1: output_sha256 is not 64 lower-case hex digits"),
        (encode_line(replace(GOOD, finish_reason="r" * 200)), r"line 1 .*finish_reason"),
        (
            b"".join(encode_line(replace(GOOD, seq=seq, finish_reason=f"{seq}")) for seq in range(MAX_REASONS + 1)),
            r"line 101: more than 100 different values of finish_reason",
        ),
    ],
)
def test_damaged_lines_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_request_table(path)


def test_tpot_omits_requests_with_fewer_than_two_tokens(tmp_path: Path) -> None:
    rows = [(0, 3, 100), (1, 1, 100), (2, 3, None), (3, 5, 100)]
    lines = [
        RequestLogLine(
            seq=seq, sample_index=seq, prompt_tokens=1, output_tokens=tokens, issue_ns=0, first_token_ns=first,
            complete_ns=900, finish_reason="length", output_sha256="00" * 32,
        )
        for seq, tokens, first in rows
    ]  # fmt: skip
    (tmp_path / "requests.jsonl").write_bytes(b"".join(map(encode_line, lines)))
    table = read_request_table(tmp_path / "requests.jsonl")
    assert table.tpot_ns().tolist() == [400.0, 200.0]
    assert table.tpot_ns(table.seq == 3).tolist() == [200.0]


def test_a_line_has_the_documented_keys() -> None:
    assert tuple(json.loads(encode_line(GOOD))) == NAMES
    assert tuple(json.loads(encode_line(replace(GOOD, submit_ns=12)))) == (*NAMES, "submit_ns")  # in a closed loop
    assert tuple(json.loads(encode_line(replace(GOOD, token_gaps_us=[9])))) == (*NAMES, "token_gaps_us")  # of a server


def test_token_gaps_are_read_only_if_all_responses_have_them(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(encode_line(replace(GOOD, token_gaps_us=[9])) + encode_line(replace(GOOD, seq=1)))
    assert read_request_table(path).token_gaps is None
    path.write_bytes(encode_line(replace(GOOD, token_gaps_us=[-1])))
    with pytest.raises(InputError, match="token_gaps_us"):
        read_request_table(path)


def test_an_error_does_not_keep_the_read_lines_in_memory(tmp_path: Path) -> None:
    """In an error, 900,000 lines needed 700 MB of memory."""
    path = tmp_path / "requests.jsonl"
    path.write_bytes(encode_line(GOOD) * 5000)
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as raised:
            read_request_table(path)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000, raised.value


def test_millions_of_requests_take_little_memory(tmp_path: Path) -> None:
    """The largest file has 3.6 million lines. With 290 bytes each, judging it needed more than 1 GB."""
    path, lines = tmp_path / "requests.jsonl", 20_000
    path.write_bytes(b"".join(encode_line(replace(GOOD, seq=seq, output_sha256=f"{seq:064x}")) for seq in range(lines)))
    tracemalloc.start()
    try:
        table = read_request_table(path)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(table) == lines
    assert kept < 110 * lines
    assert most < 200 * lines


def test_the_replica_of_each_request_is_read(tmp_path: Path) -> None:
    """A run with one engine has none."""
    path = tmp_path / "requests.jsonl"
    lines = [encode_line(replace(GOOD, seq=seq, replica=replica)) for seq, replica in ((1, 0), (0, 2))]
    path.write_bytes(b"".join(lines))
    replica = read_request_table(path).replica
    assert replica.tolist() == [2, 0]
    path.write_bytes(encode_line(GOOD).replace(b',"replica":null', b"") + encode_line(replace(GOOD, seq=1)))
    assert read_request_table(path).replica is None
