"""The result store: migration, addition, queries and comparison."""

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from runs.errors import InputError
from runs.record.fingerprint import CONDITIONS
from runs.store import TABLE, ResultStore, compare_rows
from runs.store_columns import COLUMN_NAMES, COLUMNS

# The table of an older store: twelve columns, some of which no longer exist.
LEGACY = (
    "ID INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, gpu_type TEXT, model TEXT, engine TEXT, context_band TEXT, "
    "ttft_p50_ms REAL, ttft_p99_ms REAL, throughput_tok_s REAL, raw_result_json TEXT, status TEXT"
)
LEGACY_ROWS = [
    (1, "a", "2024-01-01T00:00:00+00:00", "h100", "m", "vllm", "8k", 1.5, 2.5, 1000.0, "{}", "success"),
    (2, "b", None, "h200", "m", "sglang", "32k", None, None, None, None, "failed"),
    (7, "a", "2024-01-02T00:00:00+00:00", "h100", "ü 'quoted'", "vllm", "8k", 0.0, -1.0, 1e300, "[1]", "timeout"),
]


def legacy(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {TABLE} ({LEGACY})")
    connection.executemany(f"INSERT INTO {TABLE} VALUES ({', '.join('?' * 12)})", LEGACY_ROWS)
    connection.commit()
    connection.close()
    return path


def run(run_id: str, **values: Any) -> dict[str, Any]:
    defaults = {"scenario": "Offline", "status": "success", "valid": 1, "mechanism": "baseline"}
    return {"run_id": run_id, **defaults, **values}


def test_a_legacy_database_is_migrated_with_all_rows(tmp_path: Path) -> None:
    path = legacy(tmp_path / "old.sqlite")
    with ResultStore.opened(path) as store:
        rows = store.rows()
        assert set(store.migrated) == set(COLUMN_NAMES) - {name.split()[0] for name in LEGACY.split(", ")}
        names = [name.split()[0] for name in LEGACY.split(", ")]
        assert store.columns()[:12] == names
        assert sorted(tuple(row[name] for name in names) for row in rows) == sorted(LEGACY_ROWS)
        assert all(row[name] is None for row in rows for name in store.migrated)
    before = path.read_bytes()
    with ResultStore.opened(path) as store:
        assert store.migrated == []
        assert store.rows() == rows
    assert path.read_bytes() == before
    with ResultStore.opened(path) as store:
        assert store.ingest([run("new", throughput_tok_s=5.0)]) == ["added"]
        assert store.find("new")["throughput_tok_s"] == 5.0
        assert {row["mechanism"]: row["runs"] for row in store.grouped(["mechanism"])} == {None: 3, "baseline": 1}


def test_an_older_table_with_additional_required_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {TABLE} (run_id TEXT, rack TEXT NOT NULL)")
    connection.close()
    with pytest.raises(InputError, match="rack"), ResultStore.opened(path) as store:
        store.ingest([run("a")])


def test_a_new_store_has_every_column_and_its_types(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "new.sqlite"
    with ResultStore.opened(path, create=True) as store:
        assert store.columns() == ["id", *COLUMN_NAMES]
    types = {row[1]: row[2] for row in sqlite3.connect(path).execute(f"PRAGMA table_info({TABLE})")}
    assert types == {"id": "INTEGER", **{column.name: column.type for column in COLUMNS}}
    assert len(set(COLUMN_NAMES)) == len(COLUMN_NAMES)


def test_a_file_that_is_not_a_store_is_refused_and_unchanged(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"), ResultStore.opened(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()
    text = tmp_path / "text"
    text.write_text("not a database, and longer than a header of SQLite's would have to be " * 3)
    with pytest.raises(InputError, match="not a SQLite database"), ResultStore.opened(text):
        pass
    foreign_path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(foreign_path)
    connection.executescript("CREATE TABLE runs (run_id TEXT); CREATE TABLE metrics (run_id TEXT);")
    connection.close()
    before = foreign_path.read_bytes()
    with pytest.raises(InputError, match="metrics, runs"), ResultStore.opened(foreign_path, create=True):
        pass
    assert foreign_path.read_bytes() == before
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputError, match="not a regular file"), ResultStore.opened(path, create=True):
            pass
    assert not list(tmp_path.glob("*-journal"))


def test_a_run_with_changed_values_requires_replace(tmp_path: Path) -> None:
    with ResultStore.opened(tmp_path / "db", create=True) as store:
        assert store.ingest([run("a", rouge1=38.0)]) == ["added"]
        before = store.rows()
        assert store.ingest([run("a", rouge1=38.0, run_directory="elsewhere")]) == ["unchanged"]
        with pytest.raises(InputError, match="run_id"):
            store.ingest([{"scenario": "Offline"}])
        with pytest.raises(InputError, match=r"rouge1 38.0 → 39.0; nothing was stored"):
            store.ingest([run("new"), run("a", rouge1=39.0)])
        names = ["samples_per_second", "throughput_tok_s", "duration_s", "rouge1", "rouge2", "rougeL"]
        for number, more in ((5, ""), (6, " and 1 more")):
            with pytest.raises(InputError, match=f"→ 7.0{more}; nothing was stored"):
                store.ingest([run("a", **dict.fromkeys(names[:number], 7.0))])
        assert store.rows() == before
        assert store.ingest([run("new"), run("a", rouge1=39.0)], replace=True) == ["added", "replaced"]
        assert [row["rouge1"] for row in store.rows()] == [39.0, None]


def test_concurrent_writers_lose_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "db"

    def write(name: str) -> None:
        for number in range(20):
            with ResultStore.opened(path, create=True) as store:
                store.ingest([run(f"{name}{number}")])

    threads = [threading.Thread(target=write, args=(name,)) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ResultStore.opened(path) as store:
        assert {row["run_id"] for row in store.rows()} == {f"{name}{number}" for name in "xy" for number in range(20)}


def test_groups_count_all_runs_and_average_valid_ones(tmp_path: Path) -> None:
    with ResultStore.opened(tmp_path / "db", create=True) as store:
        store.ingest(
            [
                run("a", throughput_tok_s=100.0),
                run("b", throughput_tok_s=300.0),
                run("c", throughput_tok_s=900.0, valid=0),
                run("d", scenario="Server", status="failed", valid=None),
            ]
        )
        groups = store.grouped(["scenario", "mechanism"])
        reported = [[group[name] for name in ("scenario", "runs", "succeeded", "valid_runs")] for group in groups]
        assert reported == [["Offline", 3, 3, 2], ["Server", 1, 0, 0]]
        assert [group["throughput_tok_s_mean"] for group in groups] == [200.0, None]
        assert [group["throughput_tok_s_best"] for group in groups] == [300.0, None]
        assert store.grouped(["scenario"], {"valid": "null"})[0]["runs"] == 1
        for column in ("throughput_tok_s", "nothing", "1; DROP TABLE benchmark_runs"):
            with pytest.raises(InputError, match="--group-by"):
                store.grouped([column])


def test_rows_are_selected_by_column_and_found_by_prefix(tmp_path: Path) -> None:
    with ResultStore.opened(tmp_path / "db", create=True) as store:
        store.ingest([run("abc1", tp=2), run("abc2", scenario="Server"), run("abc")])
        assert [row["run_id"] for row in store.rows({"scenario": "Server"})] == ["abc2"]
        assert [row["run_id"] for row in store.rows({"tp": "2", "valid": "1"})] == ["abc1"]
        assert [row["run_id"] for row in store.rows({"tp": "null"})] == ["abc2", "abc"]
        with pytest.raises(InputError, match="--where"):
            store.rows({'tp" OR 1 --': "1"})
        assert store.find("abc")["run_id"] == "abc"
        assert store.find("abc2")["run_id"] == "abc2"
        for unclear in ("ab", "x", "", "%"):
            with pytest.raises(InputError, match="run_id"):
                store.find(unclear)


def test_a_comparison_separates_conditions_from_techniques() -> None:
    options = '{"dtype": "float32", "kv_cache_dtype": "%s", "max_num_seqs": %d}'
    base = run("a", engine_options=options % ("auto", 64), throughput_tok_s=100.0, hostname="one")
    same = run("b", engine_options=options % ("fp8", 64), throughput_tok_s=150.0, hostname="one", kv_cache_dtype="fp8")
    comparison = compare_rows(base, same)
    assert comparison["same_conditions"]
    assert [technique["name"] for technique in comparison["techniques"]] == ["kv_cache_dtype"]
    assert [(number["name"], number["ratio"]) for number in comparison["numbers"]] == [("throughput_tok_s", 1.5)]
    other_host = compare_rows(base, {**same, "engine_options": options % ("fp8", 8), "hostname": "two"})
    assert (other_host["same_conditions"], other_host["conditions"]) == (True, [])
    assert [record["name"] for record in other_host["system"]] == ["hostname", "engine_options.max_num_seqs"]
    untold = compare_rows({**base, "dataset_sha256": "0"}, same)
    assert (untold["same_conditions"], untold["not_recorded"]) == (False, ["dataset_sha256"])
    cached = compare_rows({**base, "enable_prefix_caching": 0}, {**same, "enable_prefix_caching": 1})
    assert [condition["name"] for condition in cached["conditions"]] == ["enable_prefix_caching"]


def test_condition_columns_are_those_of_the_compare_command() -> None:
    facts = {
        "lg_model_name": "benchmark", "sample_count": "loadgen.samples", "sampling": "sampling.seed",
        "enable_prefix_caching": "engine_options.enable_prefix_caching", "target_qps": "scenario",
    }  # fmt: skip
    for column in COLUMNS:
        if column.role in ("condition", "system"):
            both = (facts.get(column.name, column.name), f"loadgen.{column.name}")
            assert bool(CONDITIONS.of(dict.fromkeys(both))) == (column.role == "condition"), column
