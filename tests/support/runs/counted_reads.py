"""Count how often each file of a run is parsed."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runs.record import finished_run

READERS = ("read_detail", "read_summary", "read_request_table", "read_accuracy_log", "read_trace", "read_engine_log")


def count_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, Path]]:
    """Return a counter by reader and path. It counts the calls in all modules that are imported now."""
    reads: Counter[tuple[str, Path]] = Counter()

    def counting(name: str) -> Any:
        read = getattr(finished_run, name)

        def reading(path: Path, *more: Any) -> Any:
            reads[name, path.resolve()] += 1
            return read(path, *more)

        return reading

    for name in READERS:
        original, replacement = getattr(finished_run, name), counting(name)
        for module in [*sys.modules.values()]:
            if vars(module).get(name) is original:
                monkeypatch.setattr(module, name, replacement)
    return reads
