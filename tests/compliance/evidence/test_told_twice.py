"""One way to compare what two files tell of one leg."""

import math
from pathlib import Path
from typing import Any

import pytest

from compliance.evidence.told_twice import Fact, contradicted

RULE = "record-manifest"


@pytest.mark.parametrize(
    ("told", "record", "share", "same"),
    [
        (1, 1.0, 0.0, True),
        (1.00001, 1, 1e-4, True),
        (1.001, 1, 1e-4, False),
        (True, 1, 0.0, False),
        (0, None, 0.0, False),
        ("8", 8, 0.0, False),
        (math.nan, math.nan, 1.0, False),
        (math.inf, 1, 1.0, False),
        (2**64, 1.0, 1.0, False),
        ([7], [7], 0.0, True),
        ({"a": 1}, {"a": 2}, 1.0, False),
        (None, None, 0.0, True),
    ],
)
def test_facts_are_the_same_by_type_and_value(told: Any, record: Any, share: float, same: bool) -> None:
    found = list(contradicted([Fact(RULE, "rate", Path("dir/manifest.json"), told, record, share, line=3)]))
    assert (found == []) is same
    for one in found:
        assert (one.rule, one.where, one.numbers["fact"]) == (RULE, "dir/manifest.json:3", "rate")
