"""The row of a recorded result, and the table of columns."""

from compliance.techniques.declaration import declaration_of
from compliance.techniques.quality_gate import stored_row
from compliance.techniques.row import rows_of_runs
from compliance.techniques.technique_registry import load_registries
from runs.store_columns import COLUMNS, RAW
from tests.support.runs.recorded import RESULTS, recorded

REGISTRIES = load_registries()


def test_a_row_has_all_columns_that_the_store_does_not_write_itself() -> None:
    (row,) = rows_of_runs([recorded() / RESULTS["Offline"]], declaration_of(), REGISTRIES)
    assert {column.name for column in COLUMNS if column.source not in ("gate", "store")} <= row.row.keys()
    stored = stored_row(row, REGISTRIES)
    assert [column.name for column in COLUMNS if column.name not in stored] == ["ingested_at", RAW]


def test_a_row_has_the_values_of_each_origin() -> None:
    (row,) = rows_of_runs([recorded() / RESULTS["Offline"]], declaration_of(), REGISTRIES)
    empty = {column.source for column in COLUMNS} - {
        column.source for column in COLUMNS if row.row.get(column.name) is not None
    }
    assert empty <= {"gate", "store", "audits"}
