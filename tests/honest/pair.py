"""A result as two legs in a directory, and how its files are changed as the leg's own process would have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from runs.record.layout import ResultDir, RunDir
from tests.signoff.forge.faults import set_manifest
from tests.support.editing import reseal


class Pair(ResultDir):
    """The legs of a result in a directory of their own."""

    @property
    def legs(self) -> tuple[RunDir, RunDir]:
        return self.performance, self.accuracy


Variation = Callable[[Pair], Path | None]


def varied(table: dict[str, Variation], name: str) -> Callable[[Variation], Variation]:
    """Put a variation into a table."""

    def add(variation: Variation) -> Variation:
        assert name not in table
        table[name] = variation
        return variation

    return add


def manifest_of(run: RunDir) -> dict[str, Any]:
    content: dict[str, Any] = orjson.loads(run.manifest.read_bytes())
    return content


def close(run: RunDir) -> None:
    """As the leg's own process would have closed such a record."""
    reseal(run)


def told(run: RunDir, **facts: Any) -> None:
    """Other facts in the manifest, by dotted name (__ for the dot)."""
    for name, value in facts.items():
        set_manifest(run, name.replace("__", "."), value)
    close(run)


def lagged(run: RunDir, lag: dict[str, float]) -> None:
    """Another lag of the event loop."""
    told(run, observed__loop_lag=lag)
