"""Columns of text, read from the Hugging Face Hub or a local file, and checked."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qsl.dataset_file import shorten
from qsl.hub import first_line, from_hub
from qsl.parquet_file import ParquetRows
from runs.errors import InputError, SetupError
from runs.files.reading import SOURCE_FILE, open_file
from runs.files.temporary import temporary_folder

HUB = "hub"
PARQUET = ".parquet"  # suffix of Parquet files

# Arguments of the `datasets` library for other kinds of files. Without keep_default_na=False, the text "NA" is missing.
_BUILDERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".csv": ("csv", {"keep_default_na": False}),
    ".tsv": ("csv", {"keep_default_na": False, "sep": "\t"}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
}


class HubTable(NamedTuple):
    """A table on the Hugging Face Hub."""

    dataset: str
    config: str
    split: str

    def __str__(self) -> str:
        return " ".join(self)


def read_columns(
    source: str,
    columns: Sequence[str],
    count: int | None = None,
    *,
    may_be_empty: Sequence[str] = (),
    or_named: Mapping[str, str] | None = None,
    hub: HubTable | None = None,
) -> dict[str, list[str]]:
    """Read and check columns of text.

    Args:
        source: `HUB`, or the path of a Parquet, CSV, TSV, JSON or JSON lines file.
        count: number of rows to read; None = all.
        may_be_empty: columns whose cells may be empty.
        or_named: alternative name of each column.
        hub: table that `HUB` names.

    Raises:
        InputError: If the file is missing or of an unsupported kind, or columns, cells or rows are missing or invalid.
        SetupError: If the Hugging Face Hub is unreachable.
    """
    with temporary_folder("prepare-dataset-") as cache:
        table = _Rows(_from_hub(hub)) if hub and source == HUB else _from_file(Path(source), str(cache))
        name = str(hub) if hub and source == HUB else source
        total = len(table)
        if total == 0:
            raise InputError(f"{name} has no rows", "give a source with rows")
        alternatives = {} if or_named is None else or_named
        named = {
            column: column if column in table.column_names else alternatives.get(column, column) for column in columns
        }
        for column, column_name in named.items():
            if column_name not in table.column_names:
                raise InputError(
                    f"{name} has no column {column!r}; its columns are {shorten(sorted(table.column_names), 200)}",
                    f"rename its columns: they must be {', '.join(map(repr, columns))}",
                )
        check_count(count, total, name)
        cells = dict(zip(columns, table.cells(list(named.values()), count or total), strict=True))
    for column in columns:
        _check_cells(name, column, cells[column], may_be_empty=column in may_be_empty)
    return cells


class _Rows:
    """A table read with the `datasets` library."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.column_names: list[str] = table.column_names

    def __len__(self) -> int:
        return len(self._table)

    def cells(self, columns: Sequence[str], count: int) -> list[list[Any]]:
        """Return the first `count` cells of each column."""
        rows = self._table.select(range(count))
        return [list(rows[column]) for column in columns]


def check_count(count: int | None, total: int, name: str) -> None:
    """Refuse a `count` (None = all) that is not between 1 and `total`.

    Raises:
        InputError: If `count` is not a number from 1 to `total`.
    """
    if count is not None and not 1 <= count <= total:
        raise InputError(
            f"--count {count}: {name} has {total:,} rows", f"give 1 to {total}, or remove --count to use all rows"
        )


def _check_cells(name: str, column: str, cells: Sequence[object], *, may_be_empty: bool) -> None:
    for number, cell in enumerate(cells):
        if not isinstance(cell, str):
            problem = "is missing" if cell is None else f"is {shorten(cell)}, not a string"
        elif not cell.strip() and not may_be_empty:
            problem = f"is empty ({shorten(cell)})"
        else:
            continue
        raise InputError(f"{name}, row {number}, column {column!r}: the cell {problem}", "correct or remove the row")


def _from_hub(table: HubTable) -> Any:
    def fetch(local: bool) -> Any:
        import datasets

        mode = datasets.DownloadConfig(local_files_only=local)
        return datasets.load_dataset(table.dataset, table.config, split=table.split, download_config=mode)

    name = f"{table.dataset} {table.config}"
    try:
        return from_hub(name, fetch)
    except SetupError:
        raise
    except Exception as error:  # the hub's client raises exceptions of many libraries
        raise SetupError(
            f"{name} could not be fetched from the Hugging Face Hub: {first_line(error)}",
            f"check the network, or fetch the Parquet file of the {table.split} split elsewhere and give it with "
            "--source FILE",
        ) from error


def _from_file(path: Path, cache: str) -> _Rows | ParquetRows:
    if not path.exists():
        raise InputError(f"source file {path} does not exist", f"check --source; {HUB!r} fetches the official articles")
    if not path.is_file():
        raise InputError(f"source {path} is not a file", "give the Parquet, CSV, TSV, JSON or JSON lines file itself")
    if path.suffix.lower() not in (PARQUET, *_BUILDERS):
        raise InputError(
            f"source file {path} has the suffix {path.suffix!r}",
            f"give one of {', '.join((PARQUET, *_BUILDERS))}, with this suffix",
        )
    with open_file(path, "split the file", max_bytes=SOURCE_FILE.file_bytes) as stream:
        if not stream.peek(1):
            raise InputError(f"source file {path} is empty", "give a file with articles")
    if path.suffix.lower() == PARQUET:
        return ParquetRows(path)
    import datasets

    datasets.disable_progress_bars()
    builder, options = _BUILDERS[path.suffix.lower()]
    try:
        table = datasets.load_dataset(builder, data_files=os.fspath(path), split="train", cache_dir=cache, **options)
    except Exception as error:  # exceptions of Arrow, pandas or wrappers, depending on the file
        reason = first_line(error.__cause__ or error)
        if "corresponds to no data" in reason:
            raise InputError(f"source file {path} has no rows", "give a file with articles") from error
        raise InputError(
            f"source file {path} cannot be read as {builder}: {reason}", "repair or export it again"
        ) from error
    if any(column.startswith("__index_level_") for column in table.column_names):
        raise InputError(
            f"source file {path} has rows with more cells than its header",
            "put cells that contain a delimiter or a line break in quotes",
        )
    return _Rows(table)
