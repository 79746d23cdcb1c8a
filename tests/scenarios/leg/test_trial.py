"""The embedded model's Server and Interactive legs that nobody named a rate for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runs.environment import usable_cores
from runs.loadgen.detail_log import read_detail
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from scenarios.leg import trial
from scenarios.leg.config import make_config
from scenarios.leg.plan import prepare
from sut.engines import engine_kind
from tests.conftest import Finished, StartedMain

RunMain = Callable[..., Finished]
StartMain = Callable[..., StartedMain]


@pytest.mark.slow
@pytest.mark.timed
def test_the_rate_is_found_said_and_on_record(tmp_path: Path, start_main: StartMain) -> None:
    """Legs of a minute each, of both scenarios at once: their engines only wait."""
    started = {
        scenario: start_main("--scenario", scenario, "--engine", "dummy", "--output-log-dir", tmp_path / scenario)
        for scenario in ("Server", "Interactive")
    }
    for scenario, one in started.items():
        finished, out = one.wait(), tmp_path / scenario
        # A busy machine misses what Interactive asks for.
        assert finished.code in ([0, 1] if scenario == "Interactive" else [0]), finished.stdout + finished.stderr
        manifest = read_manifest(RunDir(out).manifest)
        chosen = manifest.chosen_rate
        assert chosen is not None
        assert 0 < chosen.target_qps <= trial.HIGHEST_QPS
        assert read_detail(RunDir(out).detail).number("effective_target_qps") == pytest.approx(chosen.target_qps)
        assert f"target_qps = {chosen.target_qps:.4f}" in RunDir(out).user_conf.read_text()
        assert trial.WHY_UNOFFICIAL in manifest.unofficial_reasons
        assert "VALID" in finished.stdout
        assert str(chosen) in finished.stdout


def test_an_engine_that_is_too_slow_alone_is_refused_before_loadgen(tmp_path: Path, run_main: RunMain) -> None:
    out = tmp_path / "leg"
    finished = run_main(
        "--scenario", "Server", "--engine", "dummy", "--dummy-tpot-ms", 600, "--dummy-shortest-tokens", 2,
        "--sampling-arg", "max_tokens=4",
        "--output-log-dir", out,
    )  # fmt: skip
    assert finished.code == 3
    assert "the TPOT limit is 100 ms" in finished.stderr
    assert not RunDir(out).detail.exists()


@pytest.mark.parametrize(
    "named",
    [
        {"target_qps": 5.0},
        {"user_conf": Path("user.conf")},
        {"dataset_path": Path("d.json")},
        {"audit_conf": Path("audit.config")},
        {"accuracy": True},
        {"scenario": "Offline"},
        {"scenario": "SingleStream"},
    ],
)
def test_whatever_is_named_holds(named: dict[str, object]) -> None:
    assert trial.is_trial(make_config({"scenario": "Server"}))
    assert not trial.is_trial(make_config({"scenario": "Server", **named}))


def test_on_a_cpu_it_is_small_enough_for_ten_minutes() -> None:
    config = make_config({"scenario": "Server", "model_path": None})
    assert trial.is_cut(config)
    assert not trial.is_cut(make_config({"scenario": "Server", "engine": "dummy"}))
    assert trial.QUERIES % trial.ARTICLES == 0


def test_on_a_cpu_it_leaves_a_core_to_other_programs() -> None:
    config = make_config({"scenario": "Server"})
    planned = prepare(config, print, alone=True).plan.environment
    assert planned == engine_kind(config.engine).early_environment(config) | trial.spared_core(config)
    assert int(planned["OMP_NUM_THREADS"]) == max(1, len(usable_cores()) - 1)
    for named in ({"target_qps": 5.0}, {"engine": "dummy"}, {"scenario": "Offline"}):
        assert not trial.spared_core(make_config({"scenario": "Server", **named}))


def test_the_plan_says_so() -> None:
    leg = prepare(make_config({"scenario": "Server", "engine": "dummy"}), print, alone=True)
    assert leg.plan.rate_choice == trial.rate_choice()
    assert trial.WHY_UNOFFICIAL in leg.unofficial_reasons
    assert any("target_qps is chosen after the warm-up" in note for note in leg.notes)
    assert leg.plan.sample_count == 64


@pytest.mark.parametrize("scenario", ["Offline", "SingleStream"])
def test_the_other_scenarios_are_valid_at_any_speed(scenario: str, tmp_path: Path, run_main: RunMain) -> None:
    finished = run_main("--scenario", scenario, "--engine", "dummy", "--output-log-dir", tmp_path / "leg")
    assert finished.code == 0, finished.stdout + finished.stderr
