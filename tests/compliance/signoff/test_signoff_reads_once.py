"""A sign-off parses each file of a leg once, however many of its rules look at it."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from compliance.signoff import sign_off
from runs.record import leg as leg_module
from tests.support.signoff_fixtures import FrozenLegs

READERS = ("read_detail", "read_summary", "read_requests", "read_accuracy_log", "read_trace", "read_engine_log")


def test_every_file_is_parsed_once(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: Counter[tuple[str, Path]] = Counter()

    def counted(name: str) -> Any:
        read = getattr(leg_module, name)

        def reading(path: Path, *more: Any) -> Any:
            parsed[name, path] += 1
            return read(path, *more)

        return reading

    for name in READERS:
        monkeypatch.setattr(leg_module, name, counted(name))
    legs = FrozenLegs(tmp_path_factory)
    verdict = sign_off("harness", legs.paths("srv-trace", "srv-acc"))
    assert verdict.outcome == "PASS"
    assert {name for name, _ in parsed} == set(READERS)
    assert set(parsed.values()) == {1}
