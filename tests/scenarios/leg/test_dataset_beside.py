"""The data set is read beside the engine's start: when this process is idle, once, and never another file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qsl.dataset import Dataset, load_dataset
from runs.errors import SetupError
from runs.record.manifest import LegPlan
from scenarios.leg.config import make_config
from scenarios.leg.dataset_reader import LOOK_INTERVAL_S, DatasetBeside
from scenarios.leg.plan import prepare

READ_TIMEOUT_S = 30


class Clock:
    """The test says how much time passes, and how much of it is computed."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 100.0

    def __call__(self) -> tuple[float, float]:
        return self.wall_s, self.cpu_s

    def passes(self, wall_s: float, busy_share: float) -> None:
        self.wall_s += wall_s
        self.cpu_s += wall_s * busy_share


class Reader:
    """Notes the files that it reads."""

    def __init__(self) -> None:
        self.files: list[Path] = []

    def __call__(self, path: Path, **more: Any) -> Dataset:
        self.files.append(path)
        return load_dataset(path, **more)


@pytest.fixture
def path(make_dataset: Callable[..., Path]) -> Path:
    return make_dataset([1, 2, 3], [4, 5])


@pytest.fixture
def plan(path: Path) -> LegPlan:
    return prepare(make_config({"scenario": "Offline", "engine": "dummy", "dataset_path": path}), print).plan


def test_waits_until_the_process_is_idle(plan: LegPlan) -> None:
    clock, read = Clock(), Reader()
    beside = DatasetBeside(plan, read, clock)
    for busy_share in (1.0, 1.9, 0.7):
        clock.passes(LOOK_INTERVAL_S, busy_share)
        beside.look()
    clock.passes(LOOK_INTERVAL_S / 2, 0.0)  # too short to tell
    beside.look()
    assert read.files == []
    clock.passes(LOOK_INTERVAL_S, 0.1)
    beside.look()
    assert beside.future.result(READ_TIMEOUT_S).prompts == [[1, 2, 3], [4, 5]]


def test_is_read_once(plan: LegPlan) -> None:
    clock, read = Clock(), Reader()
    beside = DatasetBeside(plan, read, clock)
    beside.begin()
    beside.begin()
    clock.passes(1, 0.0)
    beside.look()
    assert len(beside.future.result(READ_TIMEOUT_S)) == 2
    assert len(read.files) == 1


def test_a_file_that_changed_is_refused_and_the_next_look_says_so(plan: LegPlan, path: Path) -> None:
    path.write_text(path.read_text().replace("4", "6"))
    beside = DatasetBeside(plan)
    beside.begin()
    with pytest.raises(SetupError, match="changed since the leg was planned"):
        beside.future.result(READ_TIMEOUT_S)
    with pytest.raises(SetupError, match="changed since the leg was planned"):
        beside.look()
