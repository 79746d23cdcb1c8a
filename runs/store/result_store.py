"""The result store: one SQLite table with a row a run.

Opening a store brings an older one up to date; its rows stay as they are.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson

from runs.errors import InputError, SetupError
from runs.reading import open_file
from runs.store.store_schema import COLUMN_NAMES, GROUPABLE, existing_columns, migrate

Ingested = Literal["added", "unchanged", "replaced"]

BUSY_TIMEOUT_S = 30.0  # another process may be ingesting
RAW = "raw_result_json"
_NOT_COMPARED = ("ingested_at", "run_directory", RAW)  # may change while the run stays the same


class ResultStore:
    """An open store; a context manager."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path
        table, self.migrated = migrate(connection)  # the columns that opening added
        self._table = f'"{table}"'

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path, *, create: bool = False) -> Iterator["ResultStore"]:
        """Open a store, bring it up to date, and close it at the end.

        Args:
            create: make it if it is not there.

        Raises:
            InputError: it is not there, or no such database.
            SetupError: it cannot be written.
        """
        if path.exists():  # SQLite would take a device for a database, and write a journal beside it
            open_file(path, "name a result store", max_bytes=2**60, option="--db").close()
        elif not create:
            raise InputError(f"--db {path} does not exist", "name a result store, or make one with `store ingest`")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise SetupError(f"--db {path} cannot be opened: {error}", "name a file that you may write") from error
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        try:
            yield cls(connection, path)
        except sqlite3.OperationalError as error:
            raise SetupError(f"--db {path}: {error}", "name a file that you may write, not used by another") from error
        except sqlite3.IntegrityError as error:
            raise InputError(f"--db {path}: {error}", "the older table asks for values that runs lack") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter: of names in a damaged file
            raise InputError(f"--db {path} is no SQLite database: {error}", "name a result store") from error
        finally:
            connection.close()

    def ingest(self, rows: list[dict[str, Any]], *, replace: bool = False) -> list[Ingested]:
        """Store rows, all or none. A run that is there with the same values is left alone.

        Args:
            rows: each with a `run_id`; what has no column is kept in raw_result_json with the rest.
            replace: overwrite a run whose values differ.

        Raises:
            InputError: a run is there with other values, and `replace` was not given; nothing is stored then.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        with self._connection:
            return [self._ingest_one(row, replace) for row in rows]

    def _ingest_one(self, row: dict[str, Any], replace: bool) -> Ingested:
        run_id = row.get("run_id")
        if not isinstance(run_id, str) or not run_id:
            raise InputError("a row without run_id cannot be stored", "give each row the run_id of its run")
        values = {name: _plain(row.get(name)) for name in COLUMN_NAMES}
        values["ingested_at"] = datetime.now(UTC).replace(microsecond=0).isoformat()
        values[RAW] = orjson.dumps(row, option=orjson.OPT_SORT_KEYS).decode()
        there = self._connection.execute(f"SELECT * FROM {self._table} WHERE run_id = ?", (run_id,)).fetchall()
        if not there:
            names = ", ".join(f'"{name}"' for name in values)
            marks = ", ".join("?" * len(values))
            self._connection.execute(f"INSERT INTO {self._table} ({names}) VALUES ({marks})", list(values.values()))
            return "added"
        different = [name for name in values if name not in _NOT_COMPARED and there[0][name] != values[name]]
        if not different:
            return "unchanged"
        if not replace:
            shown = ", ".join(f"{name} {there[0][name]!r} → {values[name]!r}" for name in different[:5])
            more = f" and {len(different) - 5} more" if len(different) > 5 else ""
            raise InputError(
                f"run {run_id} is in {self.path} with other values: {shown}{more}; nothing was stored",
                "ingest with --replace to overwrite them",
            )
        changes = ", ".join(f'"{name}" = ?' for name in values)
        self._connection.execute(f"UPDATE {self._table} SET {changes} WHERE run_id = ?", [*values.values(), run_id])
        return "replaced"

    def rows(self, where: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """All rows, oldest first.

        Args:
            where: column → value as text; "null" for NULL.

        Raises:
            InputError: no such column.
        """
        condition, values = self._condition(where or {})
        query = f"SELECT * FROM {self._table}{condition} ORDER BY timestamp, rowid"
        return [_readable(row) for row in self._connection.execute(query, values)]

    def grouped(self, by: list[str], where: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Counts and means for each combination of values; means and the best rate are over valid runs.

        Raises:
            InputError: a column that cannot be grouped by.
        """
        if unknown := [name for name in by if name not in GROUPABLE]:
            raise InputError(f"--group-by {unknown[0]}: no column to group by", f"choose from {', '.join(GROUPABLE)}")
        condition, values = self._condition(where or {})
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
        query = (
            f"SELECT {names}, COUNT(*) AS runs, SUM(status IS 'success') AS succeeded, SUM(valid IS 1) AS valid_runs, "
            f"{measures} FROM {self._table}{condition} GROUP BY {names} ORDER BY {names}"
        )
        return [_readable(row) for row in self._connection.execute(query, values)]

    def find(self, run: str) -> dict[str, Any]:
        """The row of a run id, or of the start of one.

        Raises:
            InputError: none, or several.
        """
        query = f"SELECT * FROM {self._table} WHERE substr(run_id, 1, length(?1)) = ?1"
        found = [_readable(row) for row in self._connection.execute(query, (run,))]
        exact = [row for row in found if row["run_id"] == run]
        if len(exact or found) != 1 or not run:
            problem = "no run" if not found else f"{len(found)} runs"
            raise InputError(f"{problem} in {self.path} with run_id {run!r}", "see `store query` for the run ids")
        return (exact or found)[0]

    def columns(self) -> list[str]:
        """The table's columns, those of an older table included."""
        return existing_columns(self._connection, self._table.strip('"'))

    def _condition(self, where: Mapping[str, str]) -> tuple[str, list[str]]:
        known = self.columns()
        if unknown := [name for name in where if name not in known]:
            raise InputError(f"--where {unknown[0]}: there is no such column", f"columns: {', '.join(known)}")
        parts = [
            f'"{name}" IS NULL' if value == "null" else f'CAST("{name}" AS TEXT) = ?' for name, value in where.items()
        ]
        values = [value for value in where.values() if value != "null"]
        return (f" WHERE {' AND '.join(parts)}" if parts else ""), values


def _readable(row: sqlite3.Row) -> dict[str, Any]:
    """A row; bytes, which we store none of, as hexadecimal text."""
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in dict(row).items()}


def _plain(value: Any) -> Any:
    """A value as SQLite holds it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dict | list):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return value
