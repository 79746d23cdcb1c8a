"""The data set is read beside the engine's start: when this process is idle, once, and never another file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from qsl.dataset import Dataset
from runs.errors import SetupError
from runs.record.manifest import LegPlan
from scenarios.leg import dataset_reader as dataset_beside
from scenarios.leg.config import make_config
from scenarios.leg.dataset_reader import LOOK_INTERVAL_S, DatasetBeside
from scenarios.leg.plan import prepare

READ_TIMEOUT_S = 30


class Clock:
    """Stands for the `time` module: the test says how much time passes, and how much of it is computed."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 100.0

    def monotonic(self) -> float:
        return self.wall_s

    def process_time(self) -> float:
        return self.cpu_s

    def passes(self, wall_s: float, busy_share: float) -> None:
        self.wall_s += wall_s
        self.cpu_s += wall_s * busy_share


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(dataset_beside, "time", clock)
    return clock


@pytest.fixture
def path(make_dataset: Callable[..., Path]) -> Path:
    return make_dataset([1, 2, 3], [4, 5])


@pytest.fixture
def plan(path: Path) -> LegPlan:
    return prepare(make_config({"scenario": "Offline", "engine": "dummy", "dataset_path": path}), print).plan


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read."""
    files: list[Path] = []
    load = dataset_beside.load_dataset

    def noting(path: Path, **more: object) -> Dataset:
        files.append(path)
        return load(path, **more)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(dataset_beside, "load_dataset", noting)
    return files


def test_waits_until_the_process_is_idle(plan: LegPlan, clock: Clock, read: list[Path]) -> None:
    beside = DatasetBeside(plan)
    for busy_share in (1.0, 1.9, 0.7):
        clock.passes(LOOK_INTERVAL_S, busy_share)
        beside.look()
    clock.passes(LOOK_INTERVAL_S / 2, 0.0)  # too short to tell
    beside.look()
    assert read == []
    clock.passes(LOOK_INTERVAL_S, 0.1)
    beside.look()
    assert beside.future.result(READ_TIMEOUT_S).prompts == [[1, 2, 3], [4, 5]]


def test_is_read_once(plan: LegPlan, clock: Clock, read: list[Path]) -> None:
    beside = DatasetBeside(plan)
    beside.begin()
    beside.begin()
    clock.passes(1, 0.0)
    beside.look()
    assert len(beside.future.result(READ_TIMEOUT_S)) == 2
    assert len(read) == 1


def test_a_file_that_changed_is_refused_and_the_next_look_says_so(plan: LegPlan, path: Path) -> None:
    path.write_text(path.read_text().replace("4", "6"))
    beside = DatasetBeside(plan)
    beside.begin()
    with pytest.raises(SetupError, match="changed since the leg was planned"):
        beside.future.result(READ_TIMEOUT_S)
    with pytest.raises(SetupError, match="changed since the leg was planned"):
        beside.look()
