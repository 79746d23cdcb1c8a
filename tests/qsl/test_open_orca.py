"""OpenOrca: the official pickle by its hash alone, and rows of one's own."""

import gzip
import os
import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas
import pytest

from qsl.dataset import load_dataset
from qsl.open_orca import FIRST_ANSWER_ID, encode_rows, official_rows, own_rows, read_table, render
from qsl.tokenizers import ByteTokenizer
from runs.errors import InputError
from tests.support import orca

COLUMNS = ("input", "tok_input", "output")
TABLE = {"input": ["a", "b"], "tok_input": [[1, 2], [3]], "output": ["x", "y"], "origin": ["cot", "niv"]}


def write_pickle(path: Path, value: Any, protocol: int = 4) -> str:
    data = pickle.dumps(value, protocol)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return sha256(data).hexdigest()


def frame() -> "pandas.DataFrame":
    """As pandas made it when the official file was written: columns of objects, of a sample with its index made new."""
    table = pandas.DataFrame({name: pandas.Series(cells, dtype=object) for name, cells in TABLE.items()})
    table.columns = table.columns.astype(object)
    return table.sample(n=2, random_state=1).reset_index(drop=True).sort_values("input", ignore_index=True)


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("name", ["table.pkl", "table.pkl.gz"])
def test_the_published_file_is_read(tmp_path: Path, name: str, protocol: int) -> None:
    path = tmp_path / name
    digest = write_pickle(path, frame(), protocol)
    assert official_rows(path, digest) == [
        {"input": "a", "tok_input": [1, 2], "output": "x"},
        {"input": "b", "tok_input": [3], "output": "y"},
    ]


def test_another_file_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "table.pkl"
    write_pickle(path, frame())
    with pytest.raises(InputError, match="the published one has b64e66e5"):
        official_rows(path)


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(Path(os.environ["PYTEST_HARM"])),)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_known_hash_alone_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int) -> None:
    """Were the published file itself harmful, nothing of it would run."""
    harm = tmp_path / "harm"
    monkeypatch.setenv("PYTEST_HARM", str(harm))
    path = tmp_path / "table.pkl"
    digest = write_pickle(path, Harmful(), protocol)
    with pytest.raises(InputError, match="is no part of a table"):
        read_table(path, digest, COLUMNS)
    assert not harm.exists()


@pytest.mark.parametrize(
    ("name", "attribute"), [("builtins", "eval"), ("pandas", "read_pickle"), ("numpy", "load"), ("pandas.io", "x")]
)
def test_no_function_is_reached(tmp_path: Path, name: str, attribute: str) -> None:
    data = b"\x80\x04" + pickle.SHORT_BINUNICODE + bytes([len(name)]) + name.encode()
    data += pickle.SHORT_BINUNICODE + bytes([len(attribute)]) + attribute.encode() + pickle.STACK_GLOBAL + b"."
    path = tmp_path / "table.pkl"
    path.write_bytes(data)
    with pytest.raises(InputError, match=f"{name}.{attribute} is no part of a table"):
        read_table(path, sha256(data).hexdigest(), COLUMNS)


@pytest.mark.parametrize(
    ("value", "problem"), [([1, 2], "holds a list"), (TABLE, "holds a dict"), (frame()[["input"]], "no column")]
)
def test_what_is_no_such_table(tmp_path: Path, value: Any, problem: str) -> None:
    path = tmp_path / "table.pkl"
    with pytest.raises(InputError, match=problem):
        read_table(path, write_pickle(path, value), COLUMNS)


def test_a_table_that_grows_beyond_all_measure(tmp_path: Path) -> None:
    path = tmp_path / "table.pkl.gz"
    path.write_bytes(gzip.compress(b"\0" * 1_000_000))
    with pytest.raises(InputError, match="holds more than 10,000 bytes"):
        read_table(path, "0" * 64, COLUMNS, max_bytes=10_000)


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"\x1f\x8b\x08", b"\x1f\x8bnothing", b"hello"])
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "table.pkl"
    path.write_bytes(content)
    with pytest.raises(InputError):
        read_table(path, sha256(content).hexdigest(), COLUMNS)


def test_prompts_have_llama_2s_form() -> None:
    assert render("", "Why?") == "<s>[INST] Why? [/INST]"
    assert render("Be brief.", "Why?") == "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nWhy? [/INST]"


class LlamaTwo(ByteTokenizer):
    vocab_size = 32000


def test_own_rows(tmp_path: Path) -> None:
    given = orca.write_rows(tmp_path / "rows.jsonl", 5)
    rows = own_rows(tmp_path / "rows.jsonl", 4)
    assert (len(rows), rows.system_prompts[0], rows.questions[1]) == (4, "", given[1]["question"])
    (first, *_) = list(encode_rows(rows, LlamaTwo()))
    assert first["tok_input"][-1] == FIRST_ANSWER_ID  # what every answer begins with is no first token
    (plain, *_) = list(encode_rows(rows, ByteTokenizer()))
    assert first["tok_input"][:-1] == plain["tok_input"]
    assert (first["input"], first["output"]) == (render("", given[0]["question"]), given[0]["response"])


def test_rows_as_the_reference_names_them(tmp_path: Path) -> None:
    given = pandas.DataFrame(orca.write_rows(tmp_path / "rows.jsonl", 5))
    given.rename(columns={"response": "output"}).assign(tok_input=[[1]] * 5).to_parquet(tmp_path / "rows.parquet")
    assert own_rows(tmp_path / "rows.parquet") == own_rows(tmp_path / "rows.jsonl")


def test_a_prepared_file_is_a_data_set(tmp_path: Path) -> None:
    dataset = load_dataset(orca.prepare(tmp_path, count=3))
    assert len(dataset) == 3
    assert dataset.targets[2].startswith("Because the")


def test_rows_without_a_question_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"system_prompt": "", "question": " ", "response": "x"}\n')
    with pytest.raises(InputError, match="row 0, column 'question': the cell is empty"):
        own_rows(path)
