"""Dataset files: each accepted form, a clear refusal of all others; and the sample library."""

import gzip
import json
import os
import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qsl.dataset import Dataset, load_dataset, load_references
from qsl.sample_library import SampleLibrary
from runs.errors import ExecutionError, InputError
from runs.wording import printable

ROWS: list[dict[str, Any]] = [
    {"input": "An article — one.", "tok_input": [1, 5, 300], "output": "First ."},
    {"input": 'Two {braces} "quoted"]', "tok_input": [1, 7], "output": "Second .\nLine ."},
    {"input": "Três", "tok_input": [1, 2, 3, 4], "output": "Third ."},
]
IDS = [row["tok_input"] for row in ROWS]
TARGETS = [row["output"] for row in ROWS]


def rows_with_cell(row: int, column: str, value: object) -> list[dict[str, Any]]:
    rows = [dict(row) for row in ROWS]
    rows[row][column] = value
    return rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data.json"


def write(path: Path, rows: object) -> Path:
    path.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    return path


def refusal_of(path: Path, **options: int) -> InputError:
    """Return the error of a run on a file. Judges report the same, except for IDs that are out of range."""
    with pytest.raises(InputError) as caught:
        load_dataset(path, **options)
    if not options and "outside 0" not in caught.value.message and "column 'input'" not in caught.value.message:
        with pytest.raises(InputError) as by_judges:
            load_references(path)
        assert by_judges.value.message == caught.value.message
    assert printable(str(path)) in caught.value.message or "count" in caught.value.message
    assert caught.value.fix
    assert len(str(caught.value)) < 700
    return caught.value


@pytest.mark.parametrize("shape", ["array", "indented", "lines", "pandas", "bom", "one line", "more columns"])
def test_all_accepted_file_formats_give_equal_rows(file: Path, shape: str) -> None:
    rows = ROWS[:1] if shape == "one line" else ROWS
    match shape:
        case "array":
            write(file, rows)
        case "indented":
            file.write_text(json.dumps(rows, indent=4), encoding="utf-8")
        case "lines" | "one line":
            file.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n", encoding="utf-8")
        case "pandas":
            pd.DataFrame(rows).to_json(file)
        case "more columns":
            write(file, [{**row, "instruction": None, "more": [1]} for row in rows])
        case "bom":
            file.write_bytes(b"\xef\xbb\xbf" + json.dumps(rows).encode())
    dataset = load_dataset(file)
    assert dataset.prompts == IDS[: len(rows)]
    assert dataset.targets == TARGETS[: len(rows)]
    assert len(dataset) == len(rows)
    references = load_references(file)
    assert (references.sha256, references.texts) == (dataset.sha256, dataset.targets)
    assert references.prompt_tokens.tolist() == list(map(len, dataset.prompts))


def test_count_takes_the_first_rows_and_keeps_the_hash_of_the_file(file: Path) -> None:
    from runs.files.writing import sha256_of

    write(file, ROWS)
    dataset = load_dataset(file, count=2)
    assert dataset.sha256 == sha256_of(file) == load_dataset(file).sha256
    assert dataset.prompts == IDS[:2]
    assert dataset.longest_prompt == 3
    assert load_dataset(file).longest_prompt == 4
    assert "3 rows" in refusal_of(file, count=4).message
    assert "-3" in refusal_of(file, count=-3).message
    write(file, rows_with_cell(2, "tok_input", "x" * 1_000_000))  # rows beyond the count are not checked
    assert len(load_dataset(file, count=2)) == 2
    assert len(refusal_of(file).message) < 300 + len(str(file))


@pytest.mark.parametrize(
    ("row", "column", "value", "words"),
    [
        (1, "input", 5, "5 is not a string"),
        (0, "input", "", "is empty"),
        (2, "output", "  \n", "is empty"),
        (2, "output", None, "None is not a string"),
        (1, "tok_input", "1 2 3", "not a list"),
        (1, "tok_input", {}, "not a list"),
        (1, "tok_input", [], "is empty"),
        (1, "tok_input", [1, "2"], "'2' at position 1"),
        (1, "tok_input", [1, 2.0], "2.0 at position 1"),
        (1, "tok_input", [True, 2], "True at position 0"),
        (1, "tok_input", [[1], [2]], "[1] at position 0"),
        (0, "tok_input", [5, -1], "ID -1 at position 1"),
        (0, "tok_input", [5, 2**31], "ID 2147483648 at position 1"),
        (0, "tok_input", [5, 2**63], "ID 9223372036854775808 at position 1"),
    ],
)
def test_invalid_cells_are_named_with_row_and_column(
    file: Path, row: int, column: str, value: object, words: str
) -> None:
    message = refusal_of(write(file, rows_with_cell(row, column, value))).message
    assert f"row {row}, column {column!r}" in message
    assert words in message


def test_ids_outside_the_vocabulary_are_refused(file: Path) -> None:
    write(file, ROWS)
    assert load_dataset(file, vocab_size=301).prompts == IDS
    error = refusal_of(file, vocab_size=300)
    assert "row 0, column 'tok_input': ID 300 at position 2 is outside 0 to 299" in error.message
    assert "another model" in error.fix


def test_prompts_longer_than_the_engine_accepts_are_refused(file: Path) -> None:
    write(file, ROWS)
    assert len(load_dataset(file, max_prompt_tokens=4)) == 3
    assert "row 2, column 'tok_input': 4 tokens" in refusal_of(file, max_prompt_tokens=3).message


@pytest.mark.parametrize("column", ["input", "tok_input", "output"])
def test_missing_columns_are_named(file: Path, column: str) -> None:
    rows = [dict(row) for row in ROWS]
    del rows[1][column]
    message = refusal_of(write(file, rows)).message
    assert f"row 1: no column {column!r}" in message
    pd.DataFrame([{k: v for k, v in row.items() if k != column} for row in ROWS]).to_json(file)
    assert f"no column {column!r}" in refusal_of(file).message


@pytest.mark.parametrize("column", ["input", "tok_input", "output"])
def test_columns_with_different_rows_are_refused(file: Path, column: str) -> None:
    table = json.loads(pd.DataFrame(ROWS).to_json())
    del table[column]["1"]
    assert "do not have the same rows" in refusal_of(write(file, table)).message


@pytest.mark.parametrize("value", [5, "text", None, [1, 2], [[1]], {"input": 5}, {}, [], [{}]])
def test_json_of_another_structure_is_refused(file: Path, value: object) -> None:
    refusal_of(write(file, value))


@pytest.mark.parametrize("shape", ["array", "indented", "columns"])
def test_truncated_files_are_reported_as_cut(file: Path, shape: str) -> None:
    match shape:
        case "array":
            text = json.dumps(ROWS, ensure_ascii=False)
        case "indented":
            text = json.dumps(ROWS, indent=1, ensure_ascii=True)
        case _:
            text = pd.DataFrame(ROWS).to_json()
    data = text.encode()
    for length in range(1, len(data)):
        file.write_bytes(data[:length])
        message = refusal_of(file).message
        assert "the file is cut" in message, (data[:length], message)
        assert f"byte {length} " in message


def test_truncated_json_lines_are_reported_with_their_line(file: Path) -> None:
    data = "\n".join(json.dumps(row) for row in ROWS).encode()
    file.write_bytes(data[:-9])
    message = refusal_of(file).message
    assert f"line 3 (row 2): the JSON ends at byte {len(data) - 9}" in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'[{"input": nul}]', "not JSON at byte 11"),
        ('[{"é": 1} x]'.encode(), "not JSON at byte 11"),
        (b'[{"a": 1}] trailing', "not JSON at byte 11"),
        (b'{"input": "a"}\n{"input" "b"}\n{"input": "c"}', "line 2 (row 1): not JSON at byte 24"),
        (b'{"input": "a"}\n5\n', "line 2 (row 1): 5 is not an object"),
        (b"[{'input': 'python'}]", "not JSON at byte"),
        (b"hello", "not JSON at byte 0"),
        (b"", "is empty"),
        (b" \n\t ", "is empty"),
        (b'[{"input": "caf\xe9"}]', "byte 15 (b'\\xe9') is not UTF-8"),
        ('[{"input": "x"}]'.encode("utf-16"), "UTF-16"),
        (b"PAR1....", "Parquet"),
        (b"PK\x03\x04....", "zip"),
        (gzip.compress(b"[]", mtime=0), "gzip"),
    ],
)
def test_damaged_files_are_refused(file: Path, content: bytes, words: str) -> None:
    file.write_bytes(content)
    assert words in refusal_of(file).message


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["BOMB"],)


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize("name", ["data.pkl", "data.json", "data.pickle.gz", "data.json.gz"])
def test_pickles_are_refused_and_never_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int, name: str
) -> None:
    monkeypatch.setenv("BOMB", str(tmp_path / "exploded"))
    content = pickle.dumps(_Bomb(), protocol)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    message = refusal_of(path).message
    if protocol >= 2 or ".p" in name:
        assert "can run any code" in message
    assert not (tmp_path / "exploded").exists()


@settings(max_examples=200)
@given(data=st.data())
def test_randomly_damaged_files_are_refused_or_read(file: Path, data: st.DataObject) -> None:
    content = bytearray(json.dumps(ROWS).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(content)
    try:
        dataset = load_dataset(file)
    except InputError:
        return
    assert len(dataset) == 3
    assert all(type(i) is int and i >= 0 for prompt in dataset.prompts for i in prompt)


def test_an_already_checked_file_is_not_checked_again(file: Path) -> None:
    write(file, rows_with_cell(1, "tok_input", [1, -7]))
    digest = sha256(file.read_bytes()).hexdigest()
    assert load_dataset(file, checked_sha256=digest).prompts[1] == [1, -7]
    with pytest.raises(InputError, match="ID -7"):
        load_dataset(file, checked_sha256=digest[:-1] + ("0" if digest[-1] != "0" else "1"))
    with pytest.raises(InputError, match="more than the 3 rows"):
        load_dataset(file, checked_sha256=digest, count=4)


DATASET = Dataset(Path("d.json"), "0" * 64, [[1, 2], [3], [4, 5, 6]], ["a", "b", "c"])


def test_unloaded_samples_stay_available() -> None:
    seen: list[BaseException] = []
    library = SampleLibrary(DATASET, seen.append)
    library.load([0, 2])
    library.unload([2])
    assert library.prompt(2) is DATASET.prompts[2]
    assert seen == []


@pytest.mark.parametrize("index", [3, -1])
def test_an_index_out_of_range_is_reported_without_exception(index: int) -> None:
    seen: list[BaseException] = []
    library = SampleLibrary(DATASET, seen.append)
    library.load([0, index])
    (error,) = seen
    assert isinstance(error, ExecutionError)
    assert f"sample {index}" in error.message


def test_an_exception_in_the_error_callback_is_ignored() -> None:
    reported: list[BaseException] = []

    def broken(error: BaseException) -> None:
        reported.append(error)
        raise RuntimeError("observer")

    library = SampleLibrary(DATASET, broken)
    library.load([7])
    library.load(None)  # type: ignore[arg-type]
    assert [type(error) for error in reported] == [ExecutionError, TypeError]


@pytest.mark.parametrize("value", [None, 5, [1], [0, 3], [4, 3], [1, True], [1, 2.0]])
def test_invalid_output_lengths_are_refused(tmp_path: Path, value: object) -> None:
    row = {"input": "a", "tok_input": [1], "output": "b"}
    path = tmp_path / "data.json"
    path.write_text(json.dumps([row | {"output_lengths": [1, 3]}, row | {"output_lengths": [2, 2]}]))
    assert load_dataset(path).output_lengths == [(1, 3), (2, 2)]
    path.write_text(json.dumps([row | {"output_lengths": [1, 3]}, row | {"output_lengths": value}]))
    with pytest.raises(InputError, match="row 1, column 'output_lengths'"):
        load_dataset(path)
