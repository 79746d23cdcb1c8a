"""The beginning of a run: its plan, `--dry-run`, and the rate if none is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from runs.attestation.attestation import read_attestation
from runs.benchmark import SCENARIOS, Benchmark, Scenario
from runs.errors import ExitCode
from runs.loadgen.conf_lines import read_stored
from runs.loadgen.detail_log import read_detail
from runs.loadgen.early_stopping import is_supported, min_queries
from runs.loadgen.schedule import poisson_offsets_ns
from runs.numbers.result import read_result
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from runs.rounds import CURRENT_ROUND
from scenarios.launch import run_page
from scenarios.launch.forecast import Forecast, forecast
from scenarios.launch.plan import TRIAL_REASON, prepare
from scenarios.launch.run_config import EMBEDDED_CONF, OWN_DATA_CONF, USER_CONF, make_config, without_trial
from scenarios.launch.trial import TRIAL_CONF, trial_settings
from scenarios.tune.tune_config import load_tune
from tests.conftest import ROOT, RunMain, run_here
from tests.support.runs.run_commands import arguments

HOUR_NS = 3_600_000_000_000


@pytest.mark.parametrize("scenario", ["Server", "Interactive"])
@pytest.mark.parametrize("per_second", [0.004, 0.02, 0.12, 0.33, 1.0, 15.0, 5_000.0])
def test_a_trial_rate_is_below_the_measured_capacity_and_ends_in_time(scenario: Scenario, per_second: float) -> None:
    settings = trial_settings(scenario, per_second)
    rate, count = settings["target_qps"], int(settings["min_query_count"])
    assert rate <= 0.7 * per_second
    assert is_supported(count, 0.5)
    last_s = poisson_offsets_ns(CURRENT_ROUND.seeds.schedule_rng_seed, rate, count)[-1] / 1e9
    assert last_s <= 100 or count == 8
    assert last_s >= 8 or count == 1000
    if 0.3 <= per_second <= 2:
        assert 16 <= count <= 24


@pytest.mark.parametrize("per_second", [0.004, 0.1, 0.3, 5.0, 2_000.0])
def test_trial_query_counts_fit_the_duration(per_second: float) -> None:
    stream, offline = (trial_settings(name, per_second) for name in ("SingleStream", "Offline"))
    for settings, least in ((stream, 12), (offline, 8)):
        count = settings["min_query_count"]
        assert least <= count <= 1000
        assert count == least or count / per_second <= 100
    assert min_queries(1, 0.5) <= stream["min_query_count"]  # an estimate omits one query
    assert stream["target_latency"] >= 1


def test_the_measured_rate_is_given_to_loadgen(tmp_path: Path, run_main: RunMain) -> None:
    """A query takes at most a second, so the rate follows from four queries at a time."""
    run = RunDir(tmp_path / "run")
    finished = run_main(
        "--scenario", "Server", "--engine", "dummy", "--dummy-ttft-ms", 60, "--dummy-tpot-ms", 0.1,
        "--sampling-arg", "max_tokens=6", "--output-log-dir", run.root, environment={run_page.SWITCH: "1"},
    )  # fmt: skip
    assert finished.code == 0, finished.stdout + finished.stderr
    before, after = finished.stdout.split("VALID", 1)
    assert "not eligible for submission: trial" in before
    manifest, detail, result = read_manifest(run.manifest), read_detail(run.detail), read_result(run.result)
    assert manifest.unofficial_reasons[0] == TRIAL_REASON
    trial = manifest.trial
    assert trial is not None
    assert trial.queries_at_a_time == 4
    assert trial.settings == trial_settings("Server", trial.queries_per_second)
    written = {setting.key: float(setting.value) for setting in read_stored(run.user_conf)}
    for key, logged in (("target_qps", "effective_target_qps"), ("min_query_count", "effective_min_query_count")):
        assert written[key] == trial.settings[key] == pytest.approx(detail.number(logged), rel=1e-5)
    assert result.counts.samples == trial.settings["min_query_count"]  # not complete datasets
    assert detail.number("effective_target_latency_percentile") == 0.5
    assert detail.integer("requested_server_ttft_latency") == detail.integer("requested_server_tpot_latency") == HOUR_NS
    assert result.load is not None
    assert result.load.kept_up
    assert result.load.mean_open < 8
    assert f"  {result.load}" in after
    assert after.rstrip().splitlines()[-1] == f"  report: {run.page}"
    assert "next: the same command with --target-qps" in after
    # The page is not part of the attestation, so its change is not reported.
    assert run.page.name not in read_attestation(run).files
    assert run_here("verify", run.root, "--performance-only").code == ExitCode.OK
    page = run.page.read_text()
    assert "open on average" in page
    assert "measured during warm-up" in page
    picture = tmp_path / "run.svg"
    assert run_here("report", run.root, "--output", picture).code == ExitCode.OK
    assert str(result.load) in picture.read_text()


def test_a_failed_report_page_does_not_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run_page.SWITCH, "1")
    assert run_page.write_run_page(RunDir(tmp_path)).startswith("no report: ")
    assert list(tmp_path.iterdir()) == []


def test_a_percentile_is_shown_only_with_enough_queries(tmp_path: Path, run_main: RunMain) -> None:
    conf = "*.Server.target_qps = 200\n*.Server.min_query_count = 60\n*.Server.min_duration = 0\n"
    conf += "*.Server.sample_concatenate_permutation = 0\n"
    out = tmp_path / "run"
    finished = run_main(*arguments("Server", out, conf=conf))
    header = next(line for line in finished.stdout.splitlines() if line.split()[:1] == ["ms"])
    assert header.split()[1:5] == ["mean", "p50", "p90", "max"]
    (row,) = orjson.loads(run_here("results", out, "--json").stdout)["answer"]["results"]
    assert row["ttft_p90_ms"] is not None
    assert row["ttft_p99_ms"] is None
    assert row["offered_per_second"] > 0
    assert row["mean_open"] >= 0


@pytest.mark.parametrize(
    "named",
    [
        {"target_qps": 5.0},
        {"user_conf": Path("user.conf")},
        {"accuracy": True},
    ],
)
def test_named_settings_replace_trial_settings(named: dict[str, object]) -> None:
    settings = {"scenario": "Server", "engine": "dummy"}
    for scenario in SCENARIOS:
        assert prepare(make_config({**settings, "scenario": scenario})).conf_path == TRIAL_CONF
    run = prepare(make_config({**settings, **named}))
    assert not run.is_trial
    assert TRIAL_REASON not in run.unofficial_reasons


def test_commands_that_compare_runs_use_no_trial_settings() -> None:
    assert without_trial({"scenario": "Server"})["user_conf"] == EMBEDDED_CONF
    assert without_trial({"dataset_path": Path("d.json")})["user_conf"] == USER_CONF
    named = {"user_conf": Path("u.conf"), "dataset_path": Path("d.json")}
    assert without_trial(named) == named


def test_a_tune_uses_the_official_limits() -> None:
    assert load_tune(None, {}, {"scenario": "Server"}).values["user_conf"] == EMBEDDED_CONF
    named = {"scenario": "Server", "dataset_path": Path("d.json")}
    assert load_tune(None, {}, named).values["user_conf"] == USER_CONF


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_row_of_a_user_dataset_is_issued_once(
    scenario: Scenario, tmp_path: Path, make_dataset: Callable[..., Path], run_main: RunMain
) -> None:
    out, rows = tmp_path / "run", [[10 + number] * 9 for number in range(32)]
    options = ("--scenario", scenario, "--engine", "dummy", "--dataset-path", make_dataset(*rows))
    finished = run_main(*options, "--output-log-dir", out)
    assert finished.code == ExitCode.OK, finished.stdout + finished.stderr
    first, last = finished.stdout.splitlines()[0], finished.stdout.partition("performance: ")[2].splitlines()[0]
    assert ": 32 " in first
    assert last == "VALID, 32 samples"
    assert "not eligible for submission" in finished.stdout
    requests = map(orjson.loads, RunDir(out).requests.read_bytes().splitlines())
    assert sorted(request["sample_index"] for request in requests) == list(range(32))


@pytest.mark.parametrize(
    ("named", "conf", "samples"),
    [
        ({"scenario": "Server"}, TRIAL_CONF, None),
        ({"scenario": "Server", "target_qps": 20.0}, OWN_DATA_CONF, 40),
        ({"scenario": "Server", "audit_conf": ROOT / "audit.config"}, OWN_DATA_CONF, None),
        ({"scenario": "Server", "accuracy": True}, OWN_DATA_CONF, 40),
        ({"scenario": "Offline"}, OWN_DATA_CONF, 40),
        ({"scenario": "Offline", "total_sample_count": 5}, OWN_DATA_CONF, 5),
        ({"scenario": "Offline", "user_conf": USER_CONF}, USER_CONF, 13_400),
        ({"scenario": "SingleStream", "total_sample_count": 3}, OWN_DATA_CONF, 12),
    ],
)
def test_settings_follow_from_the_number_of_rows(
    named: dict[str, Any], conf: Path, samples: int | None, make_dataset: Callable[..., Path]
) -> None:
    rows = make_dataset(*([10 + number] * 9 for number in range(40)))
    run = prepare(make_config({"engine": "dummy", "dataset_path": rows, **named}))
    assert (run.conf_path, run.is_trial) == (conf, conf == TRIAL_CONF)
    expected = forecast(run)
    assert (expected and expected.count.samples) == samples
    assert expected is None or expected.invalid_because == ()


def test_the_complete_official_dataset_has_the_official_settings(
    make_dataset: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Benchmark, "samples", lambda self, mode: 2)
    for scenario in ("Offline", "Server"):
        settings = {"scenario": scenario, "engine": "dummy", "dataset_path": make_dataset([1, 2], [3, 4])}
        run = prepare(make_config(settings))
        assert (run.conf_path, run.is_trial) == (USER_CONF, False)
        assert prepare(make_config({**settings, "total_sample_count": 1})).conf_path != USER_CONF


@pytest.mark.parametrize(
    ("rows", "issued", "once"), [(3, 8, False), (8, 8, True), (500, 500, True), (90_000, 9_400, False)]
)
def test_a_trial_on_user_rows_ends_in_time(rows: int, issued: int, once: bool) -> None:
    settings = trial_settings("Server", 5_000.0, rows)
    assert settings["min_query_count"] == pytest.approx(issued, rel=0.1 if rows > 1000 else 0)
    assert ("sample_concatenate_permutation" in settings) is once


@pytest.mark.parametrize(("scenario", "ttft_ms"), [("Server", "2,000"), ("Interactive", "500")])
def test_at_most_three_lines_come_before_the_engine_starts(scenario: str, ttft_ms: str, tmp_path: Path) -> None:
    arguments = ("--scenario", scenario, "--engine", "dummy", "--dry-run", "--output-log-dir", tmp_path / "run")
    lines = run_here(*arguments).stdout.splitlines()
    assert lines[-1].startswith("dry run")
    assert len(lines[:-1]) <= 3
    assert max(map(len, lines)) <= 240
    assert f"official limits, not applied: TTFT {ttft_ms} ms" in "".join(lines)
    assert len(run_here(*arguments, "--verbose").stdout.splitlines()) > len(lines)


@pytest.mark.parametrize("scenario", ["Offline", "SingleStream"])
def test_trials_without_rate_are_valid(scenario: str, tmp_path: Path, run_main: RunMain) -> None:
    finished = run_main("--scenario", scenario, "--engine", "dummy", "--output-log-dir", tmp_path / "run")
    assert finished.code == 0, finished.stdout + finished.stderr


def forecast_of(conf: Path, text: str, **values: Any) -> Forecast:
    conf.write_text(text)
    estimate = forecast(prepare(make_config({"engine": "dummy", "user_conf": conf, **values}), print))
    assert estimate is not None
    return estimate


def test_too_few_queries_for_early_stopping_are_reported(tmp_path: Path) -> None:
    conf = tmp_path / "user.conf"
    few = forecast_of(conf, "*.Server.target_qps = 0.5\n*.Server.min_duration = 60000\n", scenario="Server")
    assert few.count.samples == 128
    (reason,) = few.invalid_because
    assert f"set `*.Server.min_query_count = 459` in {conf}" in reason
    line = reason[reason.index("`") + 1 : reason.rindex("`")]
    enough = forecast_of(conf, conf.read_text() + line + "\n", scenario="Server")
    assert enough.invalid_because == ()
    assert enough.count.samples >= 459


def test_an_accuracy_run_requires_no_minimum_of_queries(tmp_path: Path) -> None:
    text = "*.Server.target_qps = 0.5\n"
    assert forecast_of(tmp_path / "user.conf", text, scenario="Server", accuracy=True).invalid_because == ()


def test_a_single_stream_run_requires_64_queries(tmp_path: Path) -> None:
    text = "*.SingleStream.min_duration = 0\n*.SingleStream.min_query_count = 40\n"
    few = forecast_of(tmp_path / "user.conf", text, scenario="SingleStream", total_sample_count=50)
    assert few.count.samples == 50
    assert "early stopping needs at least 64 queries, but LoadGen will issue 50" in few.invalid_because[0]


def test_a_dry_run_starts_no_process_and_writes_no_file(tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished = run_here(*arguments("Server", out, "--dry-run"))
    assert finished.code == ExitCode.OK, finished.stderr
    assert "Server performance of bytes (dummy)" in finished.stdout
    assert not out.exists()
    few = run_here(
        *arguments("Server", out, "--dry-run", conf="*.Server.min_duration = 60000\n*.Server.target_qps = 1\n")
    )
    assert few.code == ExitCode.NEGATIVE
    assert "will be INVALID: early stopping" in few.stdout
