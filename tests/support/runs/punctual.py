"""Runs whose queries LoadGen issued on time, independent of the recording host."""

from dataclasses import replace

import numpy as np
import pytest

from runs.bench import measure


@pytest.fixture
def punctual_issue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the time from the schedule to the issue of each query to 0."""
    queries_of = measure.bench_queries

    def punctual(*arguments: object) -> object:
        queries = queries_of(*arguments)  # type: ignore[arg-type]
        late_ns = queries.late_issue_ns
        return queries if late_ns is None else replace(queries, late_issue_ns=np.zeros_like(late_ns))

    monkeypatch.setattr(measure, "bench_queries", punctual)
