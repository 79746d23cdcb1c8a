"""The result store: a SQLite table with a row per run, and the comparison of two rows.

Opening an older store adds missing columns.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson

from runs.errors import InputError, SetupError
from runs.files.reading import open_file
from runs.record.fingerprint import differences
from runs.store_columns import COLUMN_NAMES, COLUMNS, GROUPABLE, RAW, ColumnRole

TABLE = "benchmark_runs"
BUSY_TIMEOUT_S = 30.0  # another process may be writing
_NOT_COMPARED = ("ingested_at", "run_directory", RAW)  # may change for an unchanged run
_INDICES = {"run_id": "run_id", "grouping": "scenario, lg_model_name, model, gpu_type, mechanism"}

Ingested = Literal["added", "unchanged", "replaced"]


class ResultStore:
    """An open result store."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path
        self.migrated = self._migrate()  # columns that were added at opening

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path, *, create: bool = False) -> Iterator["ResultStore"]:
        """Open a store for the block, and add missing columns; with `create`, create a missing store.

        Raises:
            InputError: If the store does not exist, or the file is not a store.
            SetupError: If the store cannot be written.
        """
        if path.exists():  # SQLite would open a device and write a journal next to it
            open_file(path, "give a result store", max_bytes=2**60, option="--db").close()
        elif not create:
            raise InputError(
                f"--db {path} does not exist", "give a result store, or create a store with `store ingest`"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise SetupError(f"--db {path} cannot be opened: {error}", "give a file that you may write") from error
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        try:
            yield cls(connection, path)
        except sqlite3.OperationalError as error:
            raise SetupError(
                f"--db {path}: {error}", "give a file that you may write and that no other process uses"
            ) from error
        except sqlite3.IntegrityError as error:
            raise InputError(
                f"--db {path}: the store is from an earlier version and requires other columns: {error}",
                "give a new file",
            ) from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # UnicodeDecodeError: names in a damaged file
            raise InputError(f"--db {path} is not a SQLite database: {error}", "give a result store") from error
        finally:
            connection.close()

    def _migrate(self) -> list[str]:
        """Create the table, or add missing columns and indices; new columns are NULL in existing rows.

        Raises:
            InputError: If the database belongs to another program.
        """
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        with self._connection:
            query = "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
            kinds = {str(name): str(kind) for name, kind in execute(query)}
            if kinds and kinds.get(TABLE) != "table":
                names = ", ".join(sorted(kinds)[:5])
                raise InputError(f"the database has {names} but no table {TABLE}", "give a result store with --db")
            if not kinds:
                execute(f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY)")
            # SQLite compares names without case: a second spelling of a column cannot be added.
            existing = {name.lower() for name in self.columns()}
            added = [column for column in COLUMNS if column.name.lower() not in existing]
            for column in added:
                execute(f'ALTER TABLE {TABLE} ADD COLUMN "{column.name}" {column.type}')
            for name, columns in _INDICES.items():
                execute(f"CREATE INDEX IF NOT EXISTS idx_{TABLE}_{name} ON {TABLE} ({columns})")
        return [column.name for column in added]

    def columns(self) -> list[str]:
        """The table's columns in their order; older tables have columns that are not in COLUMNS."""
        return [str(row[1]) for row in self._connection.execute(f"PRAGMA table_info({TABLE})")]

    def ingest(self, rows: list[dict[str, Any]], *, replace: bool = False) -> list[Ingested]:
        """Store all rows or none; existing runs with the same values stay unchanged.

        Args:
            rows: rows with a `run_id`; raw_result_json keeps the complete row.
            replace: whether to overwrite runs whose values differ.

        Raises:
            InputError: If the values of an existing run differ, without `replace`.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        with self._connection:
            return [self._ingest_one(row, replace) for row in rows]

    def _ingest_one(self, row: dict[str, Any], replace: bool) -> Ingested:
        run_id = row.get("run_id")
        if not isinstance(run_id, str) or not run_id:
            raise InputError("a row without run_id cannot be stored", "give each row a run_id")
        values = {name: _plain(row.get(name)) for name in COLUMN_NAMES}
        values["ingested_at"] = datetime.now(UTC).replace(microsecond=0).isoformat()
        values[RAW] = sorted_json(row)
        stored = self._connection.execute(f"SELECT * FROM {TABLE} WHERE run_id = ?", (run_id,)).fetchone()
        if stored is None:
            names, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
            self._connection.execute(f"INSERT INTO {TABLE} ({names}) VALUES ({marks})", list(values.values()))
            return "added"
        different = [name for name in values if name not in _NOT_COMPARED and stored[name] != values[name]]
        if not different:
            return "unchanged"
        if not replace:
            shown = ", ".join(f"{name} {stored[name]!r} → {values[name]!r}" for name in different[:5])
            more = f" and {len(different) - 5} more" if len(different) > 5 else ""
            raise InputError(
                f"run {run_id} is in {self.path} with other values: {shown}{more}; nothing was stored",
                "ingest with --replace to overwrite them",
            )
        changes = ", ".join(f'"{name}" = ?' for name in values)
        self._connection.execute(f"UPDATE {TABLE} SET {changes} WHERE run_id = ?", [*values.values(), run_id])
        return "replaced"

    def rows(self, where: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Return all rows, oldest first; `where` has column values as text, "null" for NULL."""
        return self._selected("*", where or {}, "ORDER BY timestamp, rowid")

    def grouped(self, by: list[str], where: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Return counts for each combination of values, and means and the best rate of valid runs."""
        if unknown := [name for name in by if name not in GROUPABLE]:
            raise InputError(
                f"--group-by {unknown[0]}: not a column for grouping", f"use one of {', '.join(GROUPABLE)}"
            )
        names = ", ".join(by)
        measures = ", ".join(
            f"{function}(CASE WHEN valid = 1 THEN {column} END) AS {column}_{word}"
            for function, word, column in (
                ("AVG", "mean", "throughput_tok_s"),
                ("MAX", "best", "throughput_tok_s"),
                ("AVG", "mean", "ttft_p99_ms"),
                ("AVG", "mean", "tpot_p99_ms"),
            )
        )
        counts = "COUNT(*) AS runs, SUM(status IS 'success') AS succeeded, SUM(valid IS 1) AS valid_runs"
        return self._selected(f"{names}, {counts}, {measures}", where or {}, f"GROUP BY {names} ORDER BY {names}")

    def _selected(self, columns_sql: str, where: Mapping[str, str], order: str) -> list[dict[str, Any]]:
        columns = self.columns()
        if unknown := [name for name in where if name not in columns]:
            raise InputError(f"--where {unknown[0]}: unknown column", f"columns: {', '.join(columns)}")
        parts = [
            f'"{name}" IS NULL' if value == "null" else f'CAST("{name}" AS TEXT) = ?' for name, value in where.items()
        ]
        query = f"SELECT {columns_sql} FROM {TABLE} WHERE {' AND '.join(parts) or 'TRUE'} {order}"
        return [
            _readable(row)
            for row in self._connection.execute(query, [value for value in where.values() if value != "null"])
        ]

    def find(self, run: str) -> dict[str, Any]:
        """Return the row of a run ID or of its beginning; raise InputError unless exactly one row matches."""
        query = f"SELECT * FROM {TABLE} WHERE substr(run_id, 1, length(?1)) = ?1"
        rows = [_readable(row) for row in self._connection.execute(query, (run,))]
        exact = [row for row in rows if row["run_id"] == run]
        if len(exact or rows) != 1 or not run:
            problem = "no run" if not rows else f"{len(rows)} runs"
            raise InputError(f"{problem} in {self.path} with run_id {run!r}", "see `store query` for the run IDs")
        return (exact or rows)[0]


def _readable(row: sqlite3.Row) -> dict[str, Any]:
    """Return a row; bytes, which another program wrote, become hexadecimal text."""
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in dict(row).items()}


def _plain(value: Any) -> Any:
    """Return a value as SQLite stores it."""
    return int(value) if isinstance(value, bool) else sorted_json(value) if isinstance(value, dict | list) else value


def sorted_json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


# Two rows ----------------------------------------------------------------------------------------------------------

# Engine options that are techniques with their own columns.
_TECHNIQUES = {column.name for column in COLUMNS if column.role == "technique"} | {"speculative_config"}
_PACKED = ("engine_options", "sampling")  # columns with multiple settings as JSON


def compare_rows(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two rows.

    Returns:
        `same_conditions` (all are recorded and equal); `conditions`, `system` and `techniques` that differ; `numbers`
        of either run, each with `name`, `first`, `second` and `ratio` (second over first, of measured quantities);
        `not_recorded`, conditions that one of the rows lacks.
    """
    parts: dict[ColumnRole, list[dict[str, Any]]] = {
        role: [] for role in ("condition", "system", "technique", "number")
    }
    not_recorded = []
    for column in COLUMNS:
        name, a, b = column.name, first.get(column.name), second.get(column.name)
        if column.role == "condition" and (a is None) != (b is None):
            not_recorded.append(name)
        elif name in _PACKED:
            unequal = differences(_settings(a), _settings(b))
            names = sorted(key for key in unequal if key not in _TECHNIQUES)
            parts[column.role] += [_pair(f"{name}.{key}", *unequal[key]) for key in names]
        elif column.role == "number" and (a is not None or b is not None):
            both = isinstance(a, int | float) and isinstance(b, int | float)
            parts["number"].append(_pair(name, a, b, b / a if both and a and column.type == "REAL" else None))
        elif column.role in ("condition", "system", "technique") and a != b:
            parts[column.role].append(_pair(name, a, b))
    return {
        "same_conditions": not parts["condition"] and not not_recorded,
        "conditions": parts["condition"], "system": parts["system"], "techniques": parts["technique"],
        "numbers": parts["number"], "not_recorded": not_recorded,
    }  # fmt: skip


def _pair(name: str, first: Any, second: Any, ratio: float | None = None) -> dict[str, Any]:
    return {"name": name, "first": first, "second": second, "ratio": ratio}


def _settings(text: Any) -> dict[str, Any]:
    try:
        value = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        value = text
    return value if isinstance(value, dict) else {"": value}
