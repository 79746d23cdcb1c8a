"""The plan that a leg begins with, and `--dry-run`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runs.errors import ExitCode
from runs.record.layout import RunDir
from scenarios.leg.config import make_config
from scenarios.leg.forecast import Forecast, forecast
from scenarios.leg.plan import prepare
from tests.conftest import Finished, run_here
from tests.support.legs import OFFICIAL_LIMITS_CONF, arguments

RunMain = Callable[..., Finished]


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


@pytest.mark.parametrize(
    ("scenario", "first", "changed", "words"),
    [
        ("Server", ("--dummy-ttft-ms", 2100), {"target_qps": 900.0}, "did not keep its limits at 800 queries/s"),
        ("Offline", ("--dummy-ttft-ms", 250), {}, "it ends after"),
    ],
)
def test_what_was_measured_before(
    scenario: str, first: tuple[object, ...], changed: dict[str, Any], words: str, tmp_path: Path, run_main: RunMain
) -> None:
    (tmp_path / "runs").mkdir()
    run_main(*arguments(scenario, tmp_path / "runs" / "first", *first, conf=OFFICIAL_LIMITS_CONF))
    result = json.loads(RunDir(tmp_path / "runs" / "first").result.read_bytes())
    assert result["verdict"] in ("VALID", "INVALID")
    conf = tmp_path / "user.conf"
    conf.write_text(OFFICIAL_LIMITS_CONF.replace("min_duration = 200", "min_duration = 20000"))
    if scenario == "Offline":
        path = RunDir(tmp_path / "runs" / "first").result
        path.write_text(json.dumps({**result, "in_force": {**result["in_force"], "min_duration_ms": 20000}}))
    values = {"dummy_ttft_ms": float(str(first[1])), "output_log_dir": tmp_path / "runs" / "second", **changed}
    leg = prepare(make_config({"scenario": scenario, "engine": "dummy", "user_conf": conf, **values}), print)
    found = forecast(leg)
    assert found is not None
    assert any(words in doubt for doubt in found.doubts), found.doubts
    other = prepare(
        make_config({"scenario": scenario, "engine": "dummy", "user_conf": conf, **values, "dummy_slots": 3})
    )
    assert (forecast(other) or found).doubts == ()


def test_a_dry_run_starts_and_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "leg"
    finished = run_here(*arguments("Server", out, "--dry-run"))
    assert finished.code == ExitCode.OK, finished.stderr
    assert "Server performance of bytes (dummy)" in finished.stdout
    assert not out.exists()
    few = run_here(*arguments("Server", out, "--dry-run", conf="*.Server.min_duration = 60000\n"))
    assert few.code == ExitCode.NEGATIVE
    assert "will be INVALID: early stopping" in few.stdout
