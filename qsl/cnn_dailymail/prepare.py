"""Articles and highlights, read from the Hugging Face Hub or a local file.

Sources, read at mlcommons/inference commit b66003e1 (2026-08-20):
  [ref]   language/llama3.1-8b/prepare-calibration.py
  [list]  calibration/CNNDailyMail/calibration-list.txt: 1,000 IDs, 998 different
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qsl.dataset_file import shorten
from qsl.hub import first_line, from_hub
from qsl.parquet_file import ParquetRows
from runs.errors import InputError, SetupError
from runs.files.reading import SOURCE_FILE, open_file, read_whole
from runs.files.temporary import temporary_folder

HUB = "hub"
PARQUET = ".parquet"  # suffix of Parquet files
HUB_DATASET, HUB_CONFIG, HUB_SPLIT = "cnn_dailymail", "3.0.0", "validation"
CALIBRATION_SPLIT = "train"  # [ref] prepare-calibration.py
CALIBRATION_LIST_SHA256 = "4de1bc2bcf345ba8fc118788455dfaf2e09530fd9ed4daedf2b15661324ad9a7"  # [list]

ID, ARTICLE, HIGHLIGHTS = "id", "article", "highlights"

# Arguments of the `datasets` library for other kinds of files. Without keep_default_na=False, the text "NA" is missing.
_BUILDERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".csv": ("csv", {"keep_default_na": False}),
    ".tsv": ("csv", {"keep_default_na": False, "sep": "\t"}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
}


@dataclass(frozen=True)
class Articles:
    """Checked articles and their highlights (reference summaries), by row."""

    articles: list[str]
    highlights: list[str]

    def __len__(self) -> int:
        return len(self.articles)


def read_articles(source: str, count: int | None = None) -> Articles:
    """Read and check the articles of the hub's dataset or of a local file.

    Args:
        source: "hub", or a Parquet, CSV, TSV, JSON or JSON lines file with the columns article and highlights.


    Raises:
        InputError: If the file is missing or of an unsupported kind, or columns, cells or rows are missing or invalid.
        SetupError: If the Hugging Face Hub is unreachable.
    """
    cells = read_columns(source, (ARTICLE, HIGHLIGHTS), count)
    return Articles(cells[ARTICLE], cells[HIGHLIGHTS])


def read_calibration(source: str, ids: Path) -> Articles:
    """Return the articles of a list of IDs, in the order of the list. From the hub, read the training split.

    Args:
        source: source as in `read_source`, with an additional column ID.
        ids: text file with an ID per line.

    Raises:
        InputError: If `read_source` raises it, or the list is unreadable, empty, or has the ID of a missing article.
    """
    fix = "give calibration-list.txt of mlcommons/inference"
    named = read_whole(ids, fix, option="--ids").decode(errors="replace").split()
    if not named:
        raise InputError(f"--ids {ids} contains no ID", fix)
    cells = read_columns(source, (ID, ARTICLE, HIGHLIGHTS), split=CALIBRATION_SPLIT)
    place = {one: number for number, one in enumerate(cells[ID])}
    if unknown := [one for one in named if one not in place]:
        raise InputError(
            f"{len(unknown)} of the {len(named)} IDs of {ids} are not in {source}; the first is {shorten(unknown[0])}",
            f"give CNN-DailyMail's {CALIBRATION_SPLIT} split",
        )
    rows = [place[one] for one in named]
    return Articles(*([cells[column][row] for row in rows] for column in (ARTICLE, HIGHLIGHTS)))


def read_columns(
    source: str,
    columns: Sequence[str],
    count: int | None = None,
    *,
    may_be_empty: Sequence[str] = (),
    or_named: Mapping[str, str] | None = None,
    split: str = HUB_SPLIT,
) -> dict[str, list[str]]:
    """Read and check columns of text. `read_source` does this for the columns of articles.

    Args:
        may_be_empty: columns whose cells may be empty.
        or_named: alternative name of each column.
        split: split of the hub's dataset.
    """
    with temporary_folder("prepare-dataset-") as cache:
        table = _Rows(_from_hub(split)) if source == HUB else _from_file(Path(source), str(cache))
        name = f"{HUB_DATASET} {HUB_CONFIG} {split}" if source == HUB else source
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


def _from_hub(split: str) -> Any:
    def fetch(local: bool) -> Any:
        import datasets

        mode = datasets.DownloadConfig(local_files_only=local)
        return datasets.load_dataset(HUB_DATASET, HUB_CONFIG, split=split, download_config=mode)

    try:
        return from_hub(f"{HUB_DATASET} {HUB_CONFIG}", fetch)
    except SetupError:
        raise
    except Exception as error:  # the hub's client raises exceptions of many libraries
        raise SetupError(
            f"{HUB_DATASET} {HUB_CONFIG} could not be fetched from the Hugging Face Hub: {first_line(error)}",
            f"check the network, or fetch the {split} split's Parquet file elsewhere and give it with --source FILE",
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
