"""The dummy's compute model as options: how they reach the engine; and what a cheat leaves in the record."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runs.errors import ExitCode, InputError
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from scenarios.leg.config import make_config
from scenarios.leg.plan import prepare
from sut.dummy.engine import DummyEngine
from sut.engines import engine_kind
from sut.loadgen_sut import LoadgenSut
from sut.replicas.pool import make_engine
from tests.conftest import Finished
from tests.support.cheats import CHEAT
from tests.support.legs import arguments

Prepare = Callable[..., Any]
RunMain = Callable[..., Finished]


@pytest.fixture
def plan(tmp_path: Path, make_dataset: Callable[..., Path]) -> Prepare:
    def make(**options: Any) -> Any:
        values = {"scenario": "Offline", "engine": "dummy", "dataset_path": make_dataset([1, 2, 3], [1, 2, 4])}
        return prepare(make_config({**values, "output_log_dir": tmp_path / "leg", **options})).plan

    return make


def test_options_reach_the_engine(plan: Prepare) -> None:
    made = plan(dummy_slots=3, dummy_prefill_us=1.5)
    assert (made.engine_options["slots"], made.engine_options["prefill_us"]) == (3, 1.5)
    engine: Any = make_engine(made)
    assert type(engine) is DummyEngine
    assert engine.slots == 3
    assert engine_kind("dummy").sut_class(made) is LoadgenSut


def test_a_leg_that_cheats_has_the_record_of_an_honest_one(run_main: RunMain, tmp_path: Path) -> None:
    records = []
    for kind in ("", "overcount"):
        out = tmp_path / (kind or "honest")
        finished = run_main(*arguments("Offline", out), environment={CHEAT: kind})
        assert finished.code == (ExitCode.FAILED if kind else ExitCode.OK), finished.stderr
        manifest = read_manifest(RunDir(out).manifest)
        records.append((manifest.plan.engine_options, manifest.asked.keys()))
    assert records[0] == records[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"dummy_slots": -1}, "--dummy-slots -1"), ({"dummy_prefill_us": -0.5}, "--dummy-prefill-us -0.5")],
)
def test_refused(plan: Prepare, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        plan(**options)
    assert message in refused.value.message
