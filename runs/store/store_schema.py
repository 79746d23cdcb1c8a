"""The table of the result store: its columns, what they say of two rows, and the migration of an older table."""

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from runs.errors import InputError
from runs.record.conditions import differences

TABLE = "benchmark_runs"

Role = Literal["identity", "condition", "technique", "number", "record"]


@dataclass(frozen=True)
class Column:
    """One column. Conditions have to be equal for two runs' numbers to be compared; techniques are what is compared."""

    name: str
    type: Literal["TEXT", "REAL", "INTEGER"]
    role: Role


def _columns(role: Role, text: str = "", real: str = "", integer: str = "") -> list[Column]:
    kinds: tuple[tuple[Literal["TEXT", "REAL", "INTEGER"], str], ...] = (
        ("TEXT", text), ("REAL", real), ("INTEGER", integer),
    )  # fmt: skip
    return [Column(name, kind, role) for kind, names in kinds for name in names.split()]


COLUMNS: tuple[Column, ...] = (
    *_columns(
        "identity",
        text="run_id timestamp ingested_at run_directory status error_message certification manifest_sha256",
        integer="valid official",
    ),
    *_columns(
        "condition",
        text="scenario lg_model_name loadgen_version gpu_type hostname cpu model model_sha256 dataset_sha256 engine "
        "engine_version dtype engine_options sampling attention_backend harness_commit",
        real="target_qps",
        integer="min_duration_ms min_query_count performance_sample_count gpu_count cores_usable sample_count tp "
        "max_model_len max_num_seqs enable_prefix_caching",
    ),
    *_columns(
        "technique",
        text="mechanism mechanism_variant compression_method compression_scope",
        real="compression_ratio compression_overhead_ms decompression_overhead_ms",
    ),
    *_columns(
        "technique",
        text="quality_eval_id quality_eval_status quality_delta_summary draft_model_id",
        real="speculative_acceptance_rate",
        integer="speculative_wasted_tokens",
    ),
    *_columns(
        "technique",
        text="mechanism_notes support_status kv_cache_dtype quantization draft_model",
        integer="mechanism_eval_registered quality_eval_registered speculative",
    ),
    *_columns(
        "number",
        text="numbers_from audits",
        real="samples_per_second throughput_tok_s duration_s ttft_p50_ms ttft_p99_ms tpot_p50_ms tpot_p99_ms "
        "latency_p50_ms latency_p99_ms output_tokens_mean rouge1 rouge2 rougeL rougeLsum",
        integer="samples gen_len gen_num accuracy_passed",
    ),
    *_columns("record", text="raw_result_json"),
)
COLUMN_NAMES = tuple(column.name for column in COLUMNS)
_HELD: dict[str, tuple[type, ...]] = {"TEXT": (str,), "REAL": (int, float), "INTEGER": (int,)}


def odd_values(row: Mapping[str, Any], left_out: Collection[str] = ()) -> Iterator[str]:
    """Values that their columns do not hold, as sentences; None is always held."""
    for column in COLUMNS:
        value = row.get(column.name)
        if value is not None and column.name not in left_out and not isinstance(value, _HELD[column.type]):
            yield f"{column.name} is {str(value)[:40]!r}, a {type(value).__name__} in a column of {column.type}"


GROUPABLE = (
    "scenario", "lg_model_name", "model", "gpu_type", "gpu_count", "tp", "dtype", "engine", "engine_version",
    "hostname", "status", "valid", "official", "support_status", "kv_cache_dtype",
    "mechanism", "mechanism_variant", "compression_method", "compression_scope", "quality_eval_id",
    "quality_eval_status",
)  # fmt: skip

_INDICES = {
    "run_id": ("run_id",),
    "grouping": ("scenario", "lg_model_name", "model", "gpu_type", "mechanism"),
}


def migrate(connection: sqlite3.Connection) -> tuple[str, list[str]]:
    """Create the table, or add the columns and indices that it lacks; a table that has them all is not written to.

    Existing rows keep every value, and are NULL in new columns.

    Returns:
        The table's name, and the columns that were added; all of them for a new table.

    Raises:
        InputError: the database is another program's.
    """
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        table = _table(connection)
        if table is None:
            table = TABLE
            definitions = ", ".join(f'"{column.name}" {column.type}' for column in COLUMNS)
            connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {definitions})")
            added = list(COLUMN_NAMES)
        else:
            # SQLite compares names without case; a second spelling of a column cannot be added.
            there = {name.lower() for name in existing_columns(connection, table)}
            missing = [column for column in COLUMNS if column.name.lower() not in there]
            for column in missing:
                connection.execute(f'ALTER TABLE "{table}" ADD COLUMN "{column.name}" {column.type}')
            added = [column.name for column in missing]
        for name, columns in _INDICES.items():
            listed = ", ".join(columns)
            connection.execute(f'CREATE INDEX IF NOT EXISTS "idx_{table}_{name}" ON "{table}" ({listed})')
    return table, added


def _table(connection: sqlite3.Connection) -> str | None:
    """The table with the runs: TABLE, or the only one of an older store under another name; None in an empty file."""
    query = "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
    kinds = {str(name): str(kind) for name, kind in connection.execute(query)}
    if not kinds:
        return None
    if kinds.get(TABLE) == "table":
        return TABLE
    names = sorted(kinds)
    one = names[0] if len(names) == 1 and kinds[names[0]] == "table" else None
    if one is not None and '"' not in one and "run_id" in existing_columns(connection, one):
        return one
    raise InputError(f"the database has {', '.join(names[:5])} and no table {TABLE}", "name a result store with --db")


def existing_columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """A table's columns in their order; older tables have some that are not in COLUMNS."""
    return [str(row[1]) for row in connection.execute(f'PRAGMA table_info("{table}")')]


# Options that are techniques, not conditions; they have columns of their own.
_TECHNIQUES = {column.name for column in COLUMNS if column.role == "technique"} | {"speculative_config"}
_PACKED = ("engine_options", "sampling")  # columns that hold several settings as JSON


def compare_rows(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two rows side by side: were they made under the same conditions, and what differs.

    Returns:
        `same_conditions` (both tell their conditions, and they are equal), `conditions` and `techniques` that differ,
        `numbers` that either run has, each with `name`, `first`, `second` and `ratio` (second over first, of measured
        quantities); and `not_recorded`, conditions that one of the two does not tell.
    """
    conditions, techniques, numbers, not_recorded = [], [], [], []
    for column in COLUMNS:
        name, a, b = column.name, first.get(column.name), second.get(column.name)
        if column.role == "condition" and (a is None) != (b is None):
            not_recorded.append(name)
        elif name in _PACKED:
            found = differences(_settings(a), _settings(b))
            conditions += [_pair(f"{name}.{key}", *found[key]) for key in sorted(found) if key not in _TECHNIQUES]
        elif column.role == "condition" and a != b:
            conditions.append(_pair(name, a, b))
        elif column.role == "technique" and a != b:
            techniques.append(_pair(name, a, b))
        elif column.role == "number" and (a is not None or b is not None):
            both = isinstance(a, int | float) and isinstance(b, int | float)
            numbers.append(_pair(name, a, b, b / a if both and a and column.type == "REAL" else None))
    parts = {"conditions": conditions, "techniques": techniques, "numbers": numbers, "not_recorded": not_recorded}
    return {"same_conditions": not conditions and not not_recorded, **parts}


def _pair(name: str, first: Any, second: Any, ratio: float | None = None) -> dict[str, Any]:
    return {"name": name, "first": first, "second": second, "ratio": ratio}


def _settings(text: Any) -> dict[str, Any]:
    try:
        value = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        value = text
    return value if isinstance(value, dict) else {"": value}
