"""Shared by the tests of `runs`."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from runs.record.layout import RunDir
from tests.support.loadgen_runs import Runs

# A machine may be busy with other things: no example has to be quick.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "data" / "published"


@pytest.fixture(scope="session")
def loadgen_runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Real runs by name (`tests.support.loadgen_runs`). Read them only; take `copied_run` to change one."""
    return Runs(tmp_path_factory)


@pytest.fixture
def copied_run(loadgen_runs: Runs, tmp_path: Path) -> Callable[[str], RunDir]:
    """A copy of a run, to be changed."""

    def copy(name: str) -> RunDir:
        target = tmp_path / name
        shutil.copytree(loadgen_runs[name].root, target)
        return RunDir(target)

    return copy
