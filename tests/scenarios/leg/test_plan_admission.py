"""Admission options: what they become in a leg's plan, and which contradict each other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runs.errors import InputError
from runs.record.manifest import AdmissionPlan, LegPlan
from scenarios.leg.config import make_config
from scenarios.leg.plan import prepare

Planned = Callable[..., LegPlan]


@pytest.fixture
def planned(small_model: Path, make_dataset: Callable[..., Path]) -> Planned:
    """The plan of an Interactive leg of vLLM on a CPU, unless told otherwise."""
    path = make_dataset([1] * 10, [2] * 20)
    common = {"scenario": "Interactive", "model_path": str(small_model), "dataset_path": path}

    def plan(**values: Any) -> LegPlan:
        return prepare(make_config({**common, **values}), lambda text: None).plan

    return plan


def test_bounds_reach_the_plan(planned: Planned) -> None:
    assert planned(admission="off").admission is None
    bounds = {"admission_tokens": 512, "admission_queries": 28}
    assert planned(admission="deadline", **bounds).admission == AdmissionPlan(
        policy="deadline", prefill_tokens=512, queries=28
    )


def test_priority_asks_the_engine_to_schedule_by_it(planned: Planned) -> None:
    assert planned(admission="priority").engine_options["scheduling_policy"] == "priority"
    assert "scheduling_policy" not in planned(admission="deadline").engine_options


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"admission": "off", "admission_tokens": 64}, "--admission-tokens has no effect"),
        ({"admission": "off", "admission_queries": 8}, "--admission-queries has no effect"),
        ({"admission": "priority", "engine_arg": {"scheduling_policy": "fcfs"}}, "scheduling_policy=fcfs contradict"),
        ({"admission": "priority", "engine": "dummy"}, "engine dummy has no priorities"),
        ({"admission": "fcfs", "scenario": "SingleStream"}, "SingleStream has no first-token limit"),
        ({"admission": "fcfs", "admission_queries": 0}, "--admission-queries 0"),
    ],
)
def test_contradictions_are_bad_input(planned: Planned, values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        planned(**values)
    assert words in refused.value.message
    assert refused.value.fix
