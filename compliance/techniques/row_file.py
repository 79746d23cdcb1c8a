"""Rows in JSON files: those that the result store exports, and those of other programs."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from compliance.results.scoring import ScoreSources
from compliance.techniques.declaration import FIELD_NAMES, QUALITY_RESULTS, declaration_of
from compliance.techniques.declaration_rules import VALIDATION
from compliance.techniques.row import TechniqueRow, rows_of_runs
from compliance.techniques.technique_registry import Registries
from runs.errors import HarnessError, InputError
from runs.files.reading import MIB, json_value, read_whole
from runs.record.fingerprint import differences, value_text
from runs.rounds import ROUNDS
from runs.store_columns import COLUMNS

MAX_ROWS_BYTES = 64 * MIB  # maximum size of a file of rows; a row has some kilobytes
MAX_PARTS = 500_000  # maximum number of objects and lists; they take 20 times as much memory as in the file
_BY_SCORING = ("accuracy_passed", "audits")  # columns that depend on the dataset and the model for rescoring
# Columns that always have the values in the run's files.
_FROM_FILES = [
    *("status", "certification"),
    *(
        column.name
        for column in COLUMNS
        if column.source in ("conditions", "engine", "numbers", "accuracy") and column.name not in _BY_SCORING
    ),
]


def read_rows(path: Path, registries: Registries, sources: ScoreSources | None = None) -> list[TechniqueRow]:
    """Read a JSON file of one row or a list of rows, from the result store or another program.

    If a row's run directory still contains that run, its evidence is read again.

    Raises:
        InputError: If the file is unreadable, not JSON, has no rows or too many.
    """
    fix = "give a run directory or a JSON file of rows"
    text = read_whole(path, fix, max_bytes=MAX_ROWS_BYTES)
    if (parts := text.count(b"{") + text.count(b"[")) > MAX_PARTS:
        raise InputError(f"{path}: {parts:,} objects and lists, allowed: at most {MAX_PARTS:,}", fix)
    content = json_value(text, path, fix)
    rows = content if isinstance(content, list) else [content]
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise InputError(f"{path}: row {number}: must be a JSON object", "write a list of objects")
    runs = Counter(str(row["run_id"]) for row in rows if row.get("run_id"))
    if twice := next((run for run, count in runs.items() if count > 1), None):
        raise InputError(f"{path}: two rows of run {twice[:40]}", "keep one row of each run")
    for row in rows:
        if isinstance(named := row.get(QUALITY_RESULTS), str):
            row[QUALITY_RESULTS] = str(path.parent / named)
    return [_with_evidence(row, path, number, registries, sources) for number, row in enumerate(rows, start=1)]


def _with_evidence(
    row: dict[str, Any], path: Path, number: int, registries: Registries, sources: ScoreSources | None
) -> TechniqueRow:
    bare = TechniqueRow(row, source := f"{path}:{number}", path)
    directory = row.get("run_directory")
    if not isinstance(directory, str) or not Path(directory).is_dir():
        return bare
    try:
        in_round = ROUNDS.get(str(row.get("round")))
        by_runs = rows_of_runs([Path(directory)], declaration_of(row), registries, sources, in_round)
    except HarnessError:
        return bare
    current = next((row_of_run for row_of_run in by_runs if row_of_run.row["run_id"] == row.get("run_id")), None)
    if current is None:  # the directory now contains a different run
        return bare
    by_files = current.row
    in_row = {name: row[name] for name in _FROM_FILES if row.get(name) is not None}
    different = [
        (f"{name} of the row", value_text(in_files, 80), f"{value_text(in_store, 80)} (in the files of its run)")
        for name, (in_files, in_store) in differences(in_row, {name: by_files.get(name) for name in in_row}).items()
    ]
    # These columns come from the files, because the declaration of the run adds fields to the row.
    judged_columns = {name: by_files[name] for name in (VALIDATION, *_BY_SCORING, "valid", *FIELD_NAMES)}
    invalid = current.invalid or next(iter(different), None)
    return replace(current, row={**by_files, **row, **judged_columns}, source=source, file=path, invalid=invalid)
