"""Fixtures of the tests of `runs`."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from runs.loadgen.counts import CountSettings, count_run
from runs.record.layout import RunDir
from tests.support.runs.loadgen_runs import LoadgenRuns


@pytest.fixture(scope="session")
def loadgen_runs() -> LoadgenRuns:
    """Return real runs by name (`tests.support.runs.loadgen_runs`). Only read them; `copied_run` gives a copy."""
    return LoadgenRuns()


@pytest.fixture
def copied_run(loadgen_runs: LoadgenRuns, tmp_path: Path) -> Callable[[str], RunDir]:
    """Return a function that copies a run."""

    def copy(name: str) -> RunDir:
        target = tmp_path / name
        shutil.copytree(loadgen_runs[name].root, target)
        return RunDir(target)

    return copy


def server_queries(seed: int, target_qps: float, min_duration_ms: int, min_query_count: int, set_size: int) -> int:
    """Return the expected number of queries of a Server run that issues each sample equally often."""
    settings = CountSettings(
        "Server", set_size, set_size, target_qps, 0.0, min_duration_ms, min_query_count, True, schedule_rng_seed=seed
    )
    return count_run(settings, "performance").samples
