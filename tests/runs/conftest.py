"""Shared by the tests of `runs`."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from runs.loadgen.counts import CountSettings, count_run
from runs.record.layout import RunDir
from tests.support.runs.loadgen_runs import Runs


@pytest.fixture(scope="session")
def loadgen_runs() -> Runs:
    """Real runs by name (`tests.support.runs.loadgen_runs`). Read them only; take `copied_run` to change one."""
    return Runs()


@pytest.fixture
def copied_run(loadgen_runs: Runs, tmp_path: Path) -> Callable[[str], RunDir]:
    """A copy of a run, to be changed."""

    def copy(name: str) -> RunDir:
        target = tmp_path / name
        shutil.copytree(loadgen_runs[name].root, target)
        return RunDir(target)

    return copy


def server_queries(seed: int, target_qps: float, min_duration_ms: int, min_query_count: int, set_size: int) -> int:
    """How many queries the product expects of a Server run that issues every sample equally often."""
    settings = CountSettings(
        "Server", set_size, set_size, target_qps, 0.0, min_duration_ms, min_query_count, True, schedule_rng_seed=seed
    )
    return count_run(settings, "performance").samples
