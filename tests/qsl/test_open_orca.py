"""OpenOrca: the official pickle with its hash, and rows in other files."""

import gzip
import os
import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas
import pytest

from qsl.datasets.open_orca import FIRST_RESPONSE_ID, encode_questions, official_rows, own_rows, question_prompt
from qsl.tokenizers import ByteTokenizer
from runs.errors import InputError
from tests.support.runs import orca

TABLE = {"input": ["b", "a"], "tok_input": [[3], [1, 2]], "output": ["y", "x"], "origin": ["cot", "niv"]}
ROWS = [{"input": "b", "tok_input": [3], "output": "y"}, {"input": "a", "tok_input": [1, 2], "output": "x"}]


def write_pickle(path: Path, value: Any, protocol: int = 4) -> str:
    data = pickle.dumps(value, protocol)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return sha256(data).hexdigest()


def frame() -> "pandas.DataFrame":
    """Return a table with columns of objects, as in the official file."""
    return pandas.DataFrame({name: pandas.Series(cells, dtype=object) for name, cells in TABLE.items()})


@pytest.mark.parametrize(("name", "protocol"), [("table.pkl", 2), ("table.pkl.gz", 4), ("table.pkl", 5)])
def test_the_published_pickle_is_read(tmp_path: Path, name: str, protocol: int) -> None:
    path = tmp_path / name
    digest = write_pickle(path, frame(), protocol)
    assert official_rows(path, published_sha256=digest) == ROWS
    assert official_rows(path, 1, published_sha256=digest) == ROWS[:1]
    for count in (0, -1, 3):
        with pytest.raises(InputError, match=f"--count {count}: .* has 2 rows"):
            official_rows(path, count, published_sha256=digest)


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["HARM"],)


def test_a_pickle_with_another_hash_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARM", str(tmp_path / "harm"))
    write_pickle(tmp_path / "table.pkl", Harmful())
    with pytest.raises(InputError, match="the published pickle has b64e66e5"):
        official_rows(tmp_path / "table.pkl")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("content", [gzip.compress(b"\0" * 1_000_000), b"\x1f\x8b\x08", b"\x1f\x8bnothing"])
def test_damaged_pickles_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "table.pkl.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"unpacks to more than 10,000 bytes|cannot be read"):
        official_rows(path, max_bytes=10_000)


class LlamaTwo(ByteTokenizer):
    vocab_size = 32000


def test_rows_of_a_jsonl_file_are_read_and_tokenized(tmp_path: Path) -> None:
    source_rows = orca.write_rows(tmp_path / "rows.jsonl", 5)
    rows = own_rows(tmp_path / "rows.jsonl", 4)
    assert (len(rows), rows.system_prompts[0], rows.questions[1]) == (4, "", source_rows[1]["question"])
    (first, *_) = list(encode_questions(rows, LlamaTwo()))
    assert first["tok_input"][-1] == FIRST_RESPONSE_ID  # the ID that begins each response is in the prompt
    (plain, *_) = list(encode_questions(rows, ByteTokenizer()))
    assert first["tok_input"][:-1] == plain["tok_input"]
    assert (first["input"], first["output"]) == (
        question_prompt("", source_rows[0]["question"]),
        source_rows[0]["response"],
    )
    named = pandas.DataFrame(source_rows).rename(columns={"response": "output"})  # in the names of the reference
    named.assign(tok_input=[[1]] * 5).to_parquet(tmp_path / "rows.parquet")
    assert own_rows(tmp_path / "rows.parquet") == own_rows(tmp_path / "rows.jsonl")


def test_prompts_have_the_form_of_llama_2() -> None:
    assert question_prompt("", "Why?") == "<s>[INST] Why? [/INST]"
    assert question_prompt("Be brief.", "Why?") == "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nWhy? [/INST]"


def test_rows_without_a_question_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"system_prompt": "", "question": " ", "response": "x"}\n')
    with pytest.raises(InputError, match="row 0, column 'question': the cell is empty"):
        own_rows(path)
