"""Settings for LoadGen, and what is expected of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runs.errors import ExecutionError, InputError, SetupError
from scenarios.leg.config import make_config
from scenarios.leg.loadgen_settings import build_settings, check_engaged, expected_samples
from scenarios.leg.plan import prepare
from sut.dummy.engine import DummyEngine
from sut.replicas.pool import make_engine


def plan_of(**values: Any) -> Any:
    return prepare(make_config({"scenario": "Offline", "engine": "dummy", **values}), lambda text: None).plan


def test_samples_to_expect(tmp_path: Path) -> None:
    conf = tmp_path / "user.conf"
    conf.write_text("*.Offline.target_qps = 6\n*.*.min_duration = 10000\n*.*.min_query_count = 64\n")
    assert expected_samples(plan_of(), conf) == 128  # 1.1 × 10 s × 6/s = 66, rounded up to whole data sets
    assert expected_samples(plan_of(accuracy=True), conf) == 64
    assert expected_samples(plan_of(accuracy=True).model_copy(update={"audit": True}), conf) == 64
    assert expected_samples(plan_of().model_copy(update={"audit": True}), conf) is None
    assert expected_samples(plan_of(scenario="SingleStream"), conf) is None


@pytest.mark.parametrize(
    ("code", "token_latencies", "seed", "words"),
    [(-22, True, 1, "rejects"), (0, False, 1, "no settings for the model"), (0, True, 0, "no settings for the model")],
)
def test_loadgen_that_did_not_take_the_settings(code: int, token_latencies: bool, seed: int, words: str) -> None:
    class TestSettings:
        use_token_latencies = token_latencies
        schedule_rng_seed = seed

        def FromConfig(self, *arguments: object) -> int:
            return code

    lg = SimpleNamespace(TestSettings=TestSettings, TestScenario=SimpleNamespace(Offline=1))
    with pytest.raises(SetupError, match=words):
        build_settings(lg, plan_of(), "user.conf")  # type: ignore[arg-type]  # only named


@pytest.mark.parametrize(
    ("mode", "scenario", "accuracy", "audit", "fine"),
    [
        ("PerformanceOnly", "Offline", False, False, True),
        ("AccuracyOnly", "Offline", True, False, True),
        ("PerformanceOnly", "Offline", True, False, False),
        ("AccuracyOnly", "Offline", False, False, False),
        ("PerformanceOnly", "Server", False, False, False),
        (None, None, False, False, False),
        ("PerformanceOnly", "Offline", True, True, True),  # an audit may change the mode, that is its right
        ("PerformanceOnly", "Server", True, True, False),
    ],
)
def test_loadgen_ran_what_was_asked(mode: str, scenario: str, accuracy: bool, audit: bool, fine: bool) -> None:
    detail = {"effective_test_mode": mode, "effective_scenario": scenario}
    plan = plan_of(accuracy=accuracy).model_copy(update={"audit": audit})
    if fine:
        check_engaged(detail, plan)
        return
    with pytest.raises(ExecutionError, match="LoadGen ran with effective_"):
        check_engaged(detail, plan)


def test_engines() -> None:
    assert isinstance(make_engine(plan_of()), DummyEngine)
    with pytest.raises(SetupError, match="no engine 'other'"):
        make_engine(plan_of().model_copy(update={"engine": "other"}))
    broken = plan_of().model_copy(update={"engine_options": {**plan_of().engine_options, "faults": ["boom"]}})
    with pytest.raises(InputError, match="boom"):
        make_engine(broken)
