"""Values of the first benchmark and of the current round, as many tests ask for them."""

from dataclasses import replace
from typing import Any

import pytest

from runs.benchmarks import BENCHMARKS
from runs.rounds import CURRENT_ROUND

DATACENTER, EDGE = BENCHMARKS["llama3_1-8b"], BENCHMARKS["llama3_1-8b-edge"]
INTERACTIVE = BENCHMARKS["llama3_1-8b-interactive"]
SAMPLING = DATACENTER.sampling["performance"]
SEEDS = CURRENT_ROUND.seeds


def change_benchmarks(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Give every benchmark of the register other numbers, for legs that take seconds."""
    for key, benchmark in BENCHMARKS.items():
        monkeypatch.setitem(BENCHMARKS, key, replace(benchmark, **changes))


def shorten_benchmarks(monkeypatch: pytest.MonkeyPatch, samples: int, min_duration_ms: int) -> None:
    """Let short legs on a small data set be whole ones."""
    change_benchmarks(
        monkeypatch, performance_samples=samples, accuracy_samples=samples, min_duration_ms=min_duration_ms
    )
