"""Rows from a JSON file: one row or a list of them, as the result store exports them or another tool wrote them."""

from pathlib import Path
from typing import Any

import orjson

from compliance.evidence.accuracy import ScoreSources
from compliance.mechanisms.declaration import FIELD_NAMES, SUPPORT_STATUS, Declaration, declare, known_status
from compliance.mechanisms.registry import Registries
from compliance.mechanisms.row import JudgedRow, rows_of_runs
from compliance.mechanisms.validation import RECORD
from runs.errors import HarnessError, InputError
from runs.reading import MIB, read_whole

MAX_ROWS_BYTES = 64 * MIB  # a row has some kilobytes


def read_rows(
    path: Path, registries: Registries | None, load_error: str | None = None, sources: ScoreSources | None = None
) -> list[JudgedRow]:
    """Read rows; where a row's run directory is at hand, and still holds that run, its evidence is read again.

    Raises:
        InputError: unreadable, not JSON, or not rows.
    """
    try:
        content = orjson.loads(
            read_whole(path, "name a run directory or a JSON file of rows", max_bytes=MAX_ROWS_BYTES)
        )
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path} is not JSON: {error}", "name a run directory or a JSON file of rows") from error
    rows = content if isinstance(content, list) else [content]
    judged = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise InputError(f"{path}: row {number} is {type(row).__name__}, not an object", "give a list of objects")
        judged.append(_with_evidence(row, f"{path}:{number}", registries, load_error, sources))
    return judged


def _with_evidence(
    row: dict[str, Any], source: str, registries: Registries | None, load_error: str | None, sources: Any
) -> JudgedRow:
    directory, run_id = row.get("run_directory"), row.get("run_id")
    if not isinstance(directory, str) or not Path(directory).is_dir():
        return JudgedRow(row, None, source)
    try:
        found = rows_of_runs([Path(directory)], _declared(row), registries, load_error, sources)
    except HarnessError:
        return JudgedRow(row, None, source)
    same = next((one for one in found if one.row["run_id"] == run_id), None)
    if same is None:  # another run has taken the place of this one: what lies there says nothing of the row
        return JudgedRow(row, None, source)
    told = {name: same.row[name] for name in (RECORD, *FIELD_NAMES)}  # what the row leaves open, its run declares
    return JudgedRow({**same.row, **row, **told}, same.evidence, source)


def _declared(row: dict[str, Any]) -> Declaration:
    return declare(row, support_status=known_status(row.get(SUPPORT_STATUS)))
