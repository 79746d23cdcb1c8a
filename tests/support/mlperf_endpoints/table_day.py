"""A fixed day for the age of the tables of MLPerf Endpoints."""

from datetime import date

import pytest

TABLE_DAY = date(2026, 10, 5)  # no cohort was published since the tables were made


def fix_day(monkeypatch: pytest.MonkeyPatch, day: date = TABLE_DAY) -> None:
    """Let the age of the tables be that of a day."""
    monkeypatch.setattr("compliance.mlperf_endpoints.round_tables.today", lambda: day)
