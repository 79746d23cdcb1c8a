"""What a leg begins with: its plan, `--dry-run`, and the rate where none is named."""

from pathlib import Path
from typing import Any

import pytest

from runs.errors import ExitCode
from runs.loadgen.detail_log import read_detail
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from scenarios.leg.config import EMBEDDED_CONF, TRIAL_CONF, make_config
from scenarios.leg.forecast import Forecast, forecast
from scenarios.leg.plan import TRIAL_REASON, prepare
from scenarios.tune.config import load_tune
from tests.conftest import RunMain, run_here
from tests.support.legs import arguments

HOUR_NS = 3_600_000_000_000


@pytest.mark.slow
def test_a_slow_engine_is_valid(tmp_path: Path, run_main: RunMain) -> None:
    """Each query takes 6 s, far over the official limits; they overlap, so the leg is no longer than its schedule."""
    out = tmp_path / "leg"
    finished = run_main(
        "--scenario", "Server", "--engine", "dummy", "--dummy-ttft-ms", 3000, "--dummy-tpot-ms", 600,
        "--sampling-arg", "max_tokens=6", "--output-log-dir", out,
    )  # fmt: skip
    assert finished.code == 0, finished.stdout + finished.stderr
    before, after = finished.stdout.split("VALID", 1)
    assert "not official: trial" in before
    assert "official p99" in after
    assert "next: the same command with --target-qps 0.3" in after
    detail = read_detail(RunDir(out).detail)
    assert detail.number("effective_target_latency_percentile") == 0.9
    assert detail.integer("requested_server_ttft_latency") == detail.integer("requested_server_tpot_latency") == HOUR_NS
    assert detail.flag("early_stopping_met") is True
    assert read_manifest(RunDir(out).manifest).unofficial_reasons[0] == TRIAL_REASON


@pytest.mark.parametrize(
    "named",
    [
        {"target_qps": 5.0},
        {"user_conf": Path("user.conf")},
        {"scenario": "Offline"},
        {"scenario": "SingleStream"},
    ],
)
def test_whatever_is_named_holds(named: dict[str, object]) -> None:
    asked = {"scenario": "Server", "engine": "dummy"}
    assert prepare(make_config(asked)).conf_path == TRIAL_CONF
    leg = prepare(make_config({**asked, **named}))
    assert not leg.is_trial
    assert TRIAL_REASON not in leg.unofficial_reasons


def test_a_tune_looks_for_a_rate_within_the_official_limits() -> None:
    assert load_tune(None, {}, {"scenario": "Server"}).values["user_conf"] == EMBEDDED_CONF
    named = {"scenario": "Server", "dataset_path": Path("d.json")}
    assert "user_conf" not in load_tune(None, {}, named).values


@pytest.mark.parametrize(("scenario", "ttft_ms"), [("Server", "2,000"), ("Interactive", "500")])
def test_at_most_three_lines_come_before_the_engine_starts(scenario: str, ttft_ms: str, tmp_path: Path) -> None:
    arguments = ("--scenario", scenario, "--engine", "dummy", "--dry-run", "--output-log-dir", tmp_path / "leg")
    said = run_here(*arguments).stdout.splitlines()
    assert said[-1].startswith("dry run")
    assert len(said[:-1]) <= 3
    assert max(map(len, said)) <= 240
    assert f"official limits, not applied: TTFT {ttft_ms} ms" in "".join(said)
    assert len(run_here(*arguments, "--verbose").stdout.splitlines()) > len(said)


@pytest.mark.parametrize("scenario", ["Offline", "SingleStream"])
def test_the_other_scenarios_are_valid_at_any_speed(scenario: str, tmp_path: Path, run_main: RunMain) -> None:
    finished = run_main("--scenario", scenario, "--engine", "dummy", "--output-log-dir", tmp_path / "leg")
    assert finished.code == 0, finished.stdout + finished.stderr


def forecast_of(conf: Path, text: str, **values: Any) -> Forecast:
    conf.write_text(text)
    found = forecast(prepare(make_config({"engine": "dummy", "user_conf": conf, **values}), print))
    assert found is not None
    return found


def test_too_few_queries_for_early_stopping(tmp_path: Path) -> None:
    conf = tmp_path / "user.conf"
    few = forecast_of(conf, "*.Server.target_qps = 0.5\n*.Server.min_duration = 60000\n", scenario="Server")
    assert few.count.samples == 128
    (reason,) = few.invalid_because
    assert f"set `*.Server.min_query_count = 459` in {conf}" in reason
    line = reason[reason.index("`") + 1 : reason.rindex("`")]
    enough = forecast_of(conf, conf.read_text() + line + "\n", scenario="Server")
    assert enough.invalid_because == ()
    assert enough.count.samples >= 459


def test_an_accuracy_leg_has_no_such_limit(tmp_path: Path) -> None:
    text = "*.Server.target_qps = 0.5\n"
    assert forecast_of(tmp_path / "user.conf", text, scenario="Server", accuracy=True).invalid_because == ()


def test_single_stream_needs_64(tmp_path: Path) -> None:
    text = "*.SingleStream.min_duration = 0\n*.SingleStream.min_query_count = 40\n"
    few = forecast_of(tmp_path / "user.conf", text, scenario="SingleStream", total_sample_count=50)
    assert few.count.samples == 50
    assert "early stopping needs at least 64 queries, there will be 50" in few.invalid_because[0]


def test_a_dry_run_starts_and_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "leg"
    finished = run_here(*arguments("Server", out, "--dry-run"))
    assert finished.code == ExitCode.OK, finished.stderr
    assert "Server performance of bytes (dummy)" in finished.stdout
    assert not out.exists()
    few = run_here(*arguments("Server", out, "--dry-run", conf="*.Server.min_duration = 60000\n"))
    assert few.code == ExitCode.NEGATIVE
    assert "will be INVALID: early stopping" in few.stdout
