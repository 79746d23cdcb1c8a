"""The plan that a leg begins with, and `--dry-run`."""

from pathlib import Path
from typing import Any

from runs.errors import ExitCode
from scenarios.leg.config import make_config
from scenarios.leg.forecast import Forecast, forecast
from scenarios.leg.plan import prepare
from tests.conftest import run_here
from tests.support.legs import arguments


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
