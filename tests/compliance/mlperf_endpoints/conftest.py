"""Fixtures: the recorded run directories, which no test may change, and a copy of one of them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.mlperf_endpoints.endpoints_client import unpack
from tests.support.mlperf_endpoints.table_day import fix_day


@pytest.fixture(autouse=True)
def day_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    fix_day(monkeypatch)


@pytest.fixture(scope="package")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def copy_of(recorded: Path, tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(recorded / name, tmp_path / name))
