"""Fixtures: `main.py gate` and `main.py store`, and runs for them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import compliance.results.run_evidence
from compliance.techniques.declaration import FIELD_NAMES
from runs.benchmark import Target
from runs.record.layout import ResultDir
from tests.conftest import run_here
from tests.support.runs.dummy_runs import DummyRuns


@pytest.fixture(scope="module")
def runs() -> DummyRuns:
    return DummyRuns()


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Return a function that runs `gate …` or `store …` without external declaration.

    It returns the exit code, and the output or the message of the error.
    """
    for name in FIELD_NAMES:
        monkeypatch.delenv(name.upper(), raising=False)

    def run(*words: object) -> tuple[int, str]:
        finished = run_here(*words)
        return finished.code, finished.stdout or finished.stderr

    return run


@pytest.fixture
def result(runs: DummyRuns, tmp_path: Path) -> ResultDir:
    """Return a copy of a performance and an accuracy run of one result."""
    result_dir = ResultDir(tmp_path / "result")
    runs.copy(result_dir.performance.root, "Offline")
    runs.copy(result_dir.accuracy.root, "Offline", "accuracy")
    return result_dir


@pytest.fixture
def with_target(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, Target]], None]:
    """Return a function that gives the model of the dummy engine reference scores."""
    return lambda target: monkeypatch.setattr(
        compliance.results.run_evidence, "target_of", lambda _: (target, "reference of this test")
    )
