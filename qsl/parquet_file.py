"""Columns of text of a Parquet file. A small file can claim, or unpack to, any number of rows and bytes: the rows, the
sizes in the footer and the text itself are therefore bounded, and only the requested columns are read.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qsl.hub import first_line
from runs.errors import InputError
from runs.files.reading import PARQUET_ROWS, SOURCE_FILE, open_file

_REPAIR = "repair it, or export it again"
_BATCH_ROWS = 4096
_ERRORS = (OSError, ValueError, NotImplementedError, MemoryError)  # exceptions of Arrow, and for text that is not UTF-8


class ParquetRows:
    """A Parquet file; the constructor reads only its footer.

    Raises:
        InputError: If the footer cannot be read, or has too many rows.
    """

    def __init__(self, path: Path) -> None:
        from pyarrow.parquet import read_metadata

        self._path = path
        with open_file(path, _REPAIR, max_bytes=SOURCE_FILE.file_bytes) as stream:
            try:
                self._footer = read_metadata(stream)
                self._schema = self._footer.schema.to_arrow_schema()
            except _ERRORS as error:
                raise self._broken(error) from error
        self._rows, self.column_names = int(self._footer.num_rows), list[str](self._schema.names)
        if not 0 <= self._rows <= PARQUET_ROWS:
            raise InputError(
                f"source file {path} has {self._rows:,} rows according to its footer, required: at most "
                f"{PARQUET_ROWS:,}",
                "split the file, or export it again",
            )

    def __len__(self) -> int:
        return self._rows

    def cells(self, columns: Sequence[str], count: int) -> list[list[str | None]]:
        """Return the first `count` cells of each column.

        Raises:
            InputError: If a column is not text, has too much of it, or cannot be read.
        """
        from pyarrow.parquet import ParquetFile

        self._check_columns(columns)
        cells: list[list[str | None]] = [[] for _ in columns]
        total = 0
        with open_file(self._path, _REPAIR, max_bytes=SOURCE_FILE.file_bytes) as stream:
            try:
                # Read as dictionaries; otherwise a long text in many rows would be copied for each row.
                file = ParquetFile(stream, metadata=self._footer, read_dictionary=list(columns))
                for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
                    batch = batch.slice(0, count - len(cells[0]))
                    parts = [_compact(batch.column(column)) for column in columns]
                    total += sum(_text_bytes(*part) for part in parts)
                    if total > SOURCE_FILE.file_bytes:
                        raise self._too_large(columns, total)
                    for column, part in zip(cells, parts, strict=True):
                        column += _texts(*part)
                    if len(cells[0]) >= count:
                        return cells
            except _ERRORS as error:
                raise self._broken(error) from error
        raise InputError(
            f"source file {self._path}: the footer states {self._rows:,} rows, but the file contains fewer", _REPAIR
        )

    def _check_columns(self, columns: Sequence[str]) -> None:
        """Check the columns' types in the footer before allocating memory for them."""
        for column in columns:
            if self._schema.names.count(column) > 1:
                raise InputError(f"source file {self._path} has the column {column!r} twice", _REPAIR)
            if not _is_text(kind := _value_type(self._schema.field(column).type)):
                raise InputError(
                    f"source file {self._path}, column {column!r}: its type is {kind!s:.60}, not string", _REPAIR
                )
        footer = self._footer
        places = [number for number in range(footer.num_columns) if footer.schema.column(number).path in columns]
        groups = (footer.row_group(number) for number in range(footer.num_row_groups))
        claimed = [group.column(place).total_uncompressed_size for group in groups for place in places]
        if not 0 <= min(claimed, default=0) <= sum(claimed) <= SOURCE_FILE.file_bytes:
            raise self._too_large(columns, sum(claimed))

    def _too_large(self, columns: Sequence[str], size: int) -> InputError:
        return InputError(
            f"source file {self._path} has {size:,} bytes in {', '.join(columns)}, required: at most "
            f"{SOURCE_FILE.file_bytes:,}",
            "split the file, or export it again",
        )

    def _broken(self, error: Exception) -> InputError:
        return InputError(f"source file {self._path} cannot be read as parquet: {first_line(error)}", _REPAIR)


def _value_type(kind: Any) -> Any:
    from pyarrow import types

    return kind.value_type if types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_null))


def _compact(array: Any) -> tuple[Any, Any]:
    """Return the distinct texts of an array, and for each cell the index of its text.

    Each batch has the whole dictionary of its column. Reading all of it for each batch would take quadratic time.
    """
    from pyarrow import compute, types

    if types.is_null(array.type):
        array = array.cast("string")
    if not types.is_dictionary(array.type):
        array = array.dictionary_encode()
    used = array.indices.unique()
    return array.dictionary.take(used), compute.index_in(array.indices, value_set=used)


def _text_bytes(texts: Any, places: Any) -> int:
    """Return the size of the texts in bytes, each counted as often as it occurs."""
    from pyarrow import compute

    lengths = compute.binary_length(texts).cast("int64")
    return int(compute.sum(lengths.take(places)).as_py() or 0)


def _texts(texts: Any, places: Any) -> list[str | None]:
    values = texts.to_pylist()
    return [values[place] for place in places.to_pylist()]
