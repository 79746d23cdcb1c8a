"""Parquet files whose footers or pages claim more than they have, or that unpack to more than the limit."""

import contextlib
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from qsl import parquet_file
from qsl.datasets.cnn_dailymail import read_articles
from runs.errors import InputError
from runs.files.reading import MIB, Bounds

ROWS = 777


def write(path: Path, article: str = "a text", rows: int = ROWS, **options: object) -> bytes:
    table = pyarrow.table({"article": [article] * rows, "highlights": ["h"] * rows, "other": [[1]] * rows})
    pyarrow.parquet.write_table(table, path, **options)
    return path.read_bytes()


def number(value: int) -> bytes:
    """Return a whole number in Thrift's compact protocol."""
    value, written = (value << 1) ^ (value >> 63), b""
    while value > 127:
        written, value = written + bytes([value & 127 | 128]), value >> 7
    return written + bytes([value])


def claiming(content: bytes, had: int, has: int) -> bytes:
    """Return the file with one number of its footer (a field of 64 bits) replaced."""
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer = content[start:-8].replace(b"\x16" + number(had), b"\x16" + number(has))
    assert footer != content[start:-8]
    return content[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def refusal_of(path: Path) -> str:
    before = pyarrow.default_memory_pool().max_memory()
    with pytest.raises(InputError) as caught:
        read_articles(str(path))
    assert pyarrow.default_memory_pool().max_memory() < before + 64 * MIB
    assert str(path) in caught.value.message
    assert caught.value.fix
    return caught.value.message


@pytest.mark.parametrize("rows", [5_000_000_000, -5])
def test_an_impossible_number_of_rows_is_refused(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(claiming(write(path), ROWS, rows))
    assert f"{rows:,} rows" in refusal_of(path)


def test_more_claimed_rows_than_stored_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(claiming(write(path), ROWS, 5_000_000))
    refusal_of(path)


def test_claimed_sizes_above_the_limit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    content = write(path)
    size = pyarrow.parquet.read_metadata(path).row_group(0).column(0).total_uncompressed_size
    path.write_bytes(claiming(content, size, 2**40))
    assert "bytes in article, highlights, required: at most 2,147,483,648" in refusal_of(path)
    plain = {"use_dictionary": False, "compression": "none"}
    content = write(path, "x" * 1000, 1, **plain)
    start = content.index(b"x" * 1000)
    path.write_bytes(content[: start - 4] + (2**31 - 1).to_bytes(4, "little") + content[start:])
    assert "cannot be read as parquet" in refusal_of(path)


def test_a_long_text_shared_by_many_rows_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    assert len(write(path, "x" * 100_000)) < 10_000
    monkeypatch.setattr(parquet_file, "SOURCE_FILE", Bounds(50 * MIB))
    assert "required: at most 52,428,800" in refusal_of(path)
    assert read_articles(str(path), 2).articles == ["x" * 100_000] * 2


def test_truncated_and_changed_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    content = write(path)
    for end in (3, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        assert "cannot be read as parquet" in refusal_of(path)
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        with contextlib.suppress(InputError):  # no other exception is raised, whatever the byte
            read_articles(str(path))


def test_only_text_columns_are_read(tmp_path: Path) -> None:
    path, many = tmp_path / "a.parquet", ["é" * (number % 5) + f"text {number}" for number in range(10_000)]
    mixed = pyarrow.table({"article": many, "highlights": pyarrow.array(many, pyarrow.large_string())})
    pyarrow.parquet.write_table(mixed, path, row_group_size=3_000)
    assert read_articles(str(path), 9_000).articles == many[:9_000]
    assert read_articles(str(path)).highlights == many
    for cells, kind in (([1, 2], "int64"), ([b"a", b"b"], "binary"), ([["a"], ["b"]], "list")):
        pyarrow.parquet.write_table(pyarrow.table({"article": cells, "highlights": ["x", "y"]}), path)
        assert f"column 'article': its type is {kind}" in refusal_of(path)
    twice = pyarrow.table([["a"], ["b"], ["c"]], names=["article", "article", "highlights"])
    pyarrow.parquet.write_table(twice, path)
    assert "the column 'article' twice" in refusal_of(path)
    for cells, words in (([None, None], "row 0, column 'article': the cell is missing"), (["a", None], "row 1")):
        pyarrow.parquet.write_table(pyarrow.table({"article": cells, "highlights": ["x", "y"]}), path)
        assert words in refusal_of(path)
