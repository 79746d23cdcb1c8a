"""The parser of mlperf_log_accuracy.json."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.errors import InputError
from runs.loadgen.accuracy_log import AccuracyEntry, read_accuracy_log

entries = st.builds(
    AccuracyEntry,
    seq_id=st.integers(0, 2**63),
    qsl_idx=st.integers(0, 13_367),
    data=st.binary(max_size=64),
    token_count=st.none() | st.integers(0, 128),
    token_data=st.none() | st.binary(max_size=4),
)


def as_loadgen_writes(rows: list[AccuracyEntry]) -> str:
    lines = []
    for row in rows:
        text = f'{{ "seq_id" : {row.seq_id}, "qsl_idx" : {row.qsl_idx}, "data" : "{row.data.hex().upper()}"'
        if row.token_data is not None:
            text += f', "token_data" : "{row.token_data.hex().upper()}"'
        if row.token_count is not None:
            text += f', "token_count" : {row.token_count}'
        lines.append(text + " }")
    return "[\n" + ",\n".join(lines) + "\n]\n"


@given(rows=st.lists(entries, max_size=8))
def test_entries_in_the_form_of_loadgen_are_read(tmp_path: Path, rows: list[AccuracyEntry]) -> None:
    path = tmp_path / "mlperf_log_accuracy.json"
    path.write_text(as_loadgen_writes(rows))
    assert read_accuracy_log(path) == rows


WHOLE = as_loadgen_writes([AccuracyEntry(n, n, b"\x01" * 9, 3, b"\x01") for n in range(3)])
ENTRY = '{ "seq_id" : 0, "qsl_idx" : 5, "data" : "0AFF" }'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("[\n", "is cut off"),
        (f"[\n{ENTRY[:30]}", "is cut off"),
        (f"[\n{ENTRY},\n{ENTRY[:30]}\n\n...\n\n{ENTRY[20:]}\n]\n", "truncated for submission"),
        (f"[\n{ENTRY[:30]}\r\n\r\n...\r\n\r\n{ENTRY[20:]}\r\n]\r\n", "truncated for submission"),
        ("{}", "Expected `array`"),
        ("[1]", r"Expected `object`, got `int` - at `\$\[0\]`"),
        (f"[{ENTRY}, null]", r"\$\[1\]"),
        (f"[{ENTRY}, {ENTRY.replace('5', '-5')}]", r"\$\[1\].qsl_idx"),
        (f"[{ENTRY.replace('5', 'true')}]", r"\$\[0\].qsl_idx"),
        (f"[{ENTRY.replace('0AFF', '0AF')}]", "entry 1: data or token_data is not hexadecimal"),
        (f"[{ENTRY.replace('0AFF', '0A FF')}]", "entry 1: data or token_data is not hexadecimal"),
        ('[{ "seq_id" : 0, "qsl_idx" : 5, "data" : "", "token_data" : null }]', r"\$\[0\].token_data"),
        ('[{ "seq_id" : 0, "qsl_idx" : 5, "data" : 7 }]', r"\$\[0\].data"),
        (f"[{ENTRY.replace('data', 'text')}]", "unknown field `text`"),
        ('[{ "qsl_idx" : 5, "data" : "" }]', "missing required field `seq_id`"),
        ("[x]", "is not valid JSON"),
    ],
)
def test_logs_of_another_structure_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "mlperf_log_accuracy.json"
    path.write_bytes(content.encode())
    with pytest.raises(InputError, match=message):
        read_accuracy_log(path)
