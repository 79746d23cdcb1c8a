"""What is kept of engines' starts, to be shown at the next one."""

import json
from pathlib import Path

import pytest

from qsl.cache import CACHE_VARIABLE
from runs.record.manifest import LegPlan
from scenarios.leg.config import make_config
from scenarios.leg.plan import prepare
from scenarios.leg.start_times import MOST_STARTS, recall, remember


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LegPlan:
    """Of a leg; with a cache of its own."""
    planned = prepare(make_config({"scenario": "Offline", "engine": "dummy"})).plan
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return planned


def test_the_last_start_of_the_same_engine_is_told(plan: LegPlan) -> None:
    assert recall(plan) == {}
    remember(plan, {"loading weights": 3.0})
    remember(plan, {"loading weights": 31.0})
    assert recall(plan) == {"loading weights": 31.0}
    assert recall(plan.model_copy(update={"model_path": "another"})) == {}


def test_the_oldest_is_left_out(plan: LegPlan, tmp_path: Path) -> None:
    kept = tmp_path / "cache" / "start-times.json"
    kept.parent.mkdir()
    kept.write_text(json.dumps({str(number): {"profiling": 1.0} for number in range(MOST_STARTS)}))
    remember(plan, {"loading weights": 3.0})
    known = json.loads(kept.read_bytes())
    assert (len(known), "0" in known) == (MOST_STARTS, False)
    assert recall(plan) == {"loading weights": 3.0}


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}'])
def test_a_file_that_is_none_is_passed_over(plan: LegPlan, tmp_path: Path, content: str) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "start-times.json").write_text(content)
    assert recall(plan) == {}
    remember(plan, {"loading weights": 3.0})
    assert recall(plan) == {"loading weights": 3.0}
