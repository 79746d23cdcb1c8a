"""The dummy's compute model and cheats as options: how they reach the engine, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runs.errors import InputError
from scenarios.leg.config import make_config
from scenarios.leg.leg_engine import make_engine
from scenarios.leg.plan import prepare
from sut.dummy.cheats import OvercountingSut
from sut.engines import engine_kind
from sut.loadgen_sut import LoadgenSut

Prepare = Callable[..., Any]


@pytest.fixture
def plan(tmp_path: Path, make_dataset: Callable[..., Path]) -> Prepare:
    def make(**options: Any) -> Any:
        values = {"scenario": "Offline", "engine": "dummy", "dataset_path": make_dataset([1, 2, 3], [1, 2, 4])}
        return prepare(make_config({**values, "output_log_dir": tmp_path / "leg", **options})).plan

    return make


def test_defaults_are_honest(plan: Prepare) -> None:
    made = plan()
    options = made.engine_options
    assert (options["slots"], options["prefill_us"], options["cheats"]) == (0, 0.0, [])
    assert engine_kind("dummy").sut_class(made) is LoadgenSut


def test_options_reach_the_engine(plan: Prepare) -> None:
    made = plan(dummy_slots=3, dummy_prefill_us=1.5, dummy_cheat=["pad-eos", "reference"])
    options = made.engine_options
    assert (options["slots"], options["prefill_us"], options["cheats"]) == (3, 1.5, ["pad-eos", "reference"])
    engine: Any = make_engine(made)
    assert engine.slots == 3
    assert len(engine.cheats) == 2
    assert engine_kind("dummy").sut_class(made) is LoadgenSut


def test_only_the_harness_itself_can_miscount(plan: Prepare) -> None:
    made = plan(dummy_cheat=["overcount"])
    assert engine_kind("dummy").sut_class(made) is OvercountingSut
    engine: Any = make_engine(made)
    assert engine.cheats == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dummy_cheat": ["sleep"]}, "--dummy-cheat sleep: unknown kind"),
        ({"dummy_cheat": ["drop"], "engine": "vllm"}, "the vllm engine takes no --dummy-cheat"),
        ({"dummy_slots": -1}, "--dummy-slots -1"),
        ({"dummy_prefill_us": -0.5}, "--dummy-prefill-us -0.5"),
    ],
)
def test_refused(plan: Prepare, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        plan(**options)
    assert message in refused.value.message
