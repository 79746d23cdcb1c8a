"""The command `curve` with a stub of the client: a whole rehearsal, and what happens when something fails."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from runs.errors import ExitCode
from scenarios.curve.curve_dir import CLIENT_PROCESS, VERIFIED
from tests.conftest import ROOT
from tests.scenarios.curve.conftest import ROWS, CurveFiles

SMALL = {"c_min": 32, "c_max": 60, "points": 7}


def done(files: CurveFiles) -> list[str]:
    """Return the names of the finished points."""
    return sorted(path.parent.name for path in (files.output / "points").glob(f"*/{VERIFIED}"))


def test_a_rehearsal_builds_a_tree_of_all_points(curve_files: CurveFiles) -> None:
    curve_files.write(**SMALL)
    curve_files.serve()
    assert curve_files.run("--rehearsal") == ExitCode.OK
    assert done(curve_files) == [f"r{number}" for number in range(1, 8)]
    plan = json.loads((curve_files.output / "plan.json").read_text())
    assert [point["concurrency"] for point in plan["points"]][::6] == [60, 32]
    (model,) = (curve_files.output / "tree" / "results" / "one").iterdir()
    levels = {path.name for path in model.iterdir() if path.is_dir()}
    assert levels == {f"r{point['concurrency']}" for point in plan["points"]}
    first = yaml.safe_load((model / "r60" / "point.yaml").read_text())
    assert (first["offline"], first["region"], first["max_supported_concurrency"]) == (
        "elected",
        "high_concurrency",
        60,
    )
    assert first["steady_state"]["window"]["super_pass_size"] == ROWS
    assert len(list(model.glob("*/accuracy_results.json"))) == 4
    shares = [json.loads(path.read_text())["tps_utilization"] for path in model.glob("*/system_desc.json")]
    assert max(shares) == 1
    assert "7 of 7 points done" in (curve_files.output / "report.html").read_text()

    before = {path: path.stat().st_mtime_ns for path in (curve_files.output / "points").glob("*/events.jsonl")}
    assert curve_files.run("--rehearsal", "--until", "points") == ExitCode.OK
    assert {path: path.stat().st_mtime_ns for path in before} == before

    curve_files.write(model_params={"temperature": 0.5, "max_new_tokens": 128})
    assert curve_files.run("--rehearsal") == ExitCode.BAD_INPUT
    assert len(done(curve_files)) == 7
    shutil.rmtree(curve_files.output / "points" / "r7")
    assert curve_files.run("--rehearsal", "--until", "plan", "--restart-changed") == ExitCode.OK
    assert done(curve_files) == []


def test_probes_find_the_slots_of_the_server(curve_files: CurveFiles) -> None:
    curve_files.write(max_point_hours=0.001)
    curve_files.serve(slots=48, service_s=0.2)
    assert curve_files.run("--rehearsal", "--until", "plan") == ExitCode.OK
    levels = json.loads((curve_files.output / "plan.json").read_text())["levels"]
    assert 48 / 1.1 <= levels["c_max"] <= 48 * 1.1
    assert levels["c_min"] == 32


@pytest.mark.parametrize(("slots", "service_s"), [(40, 0.5), (150, 0.3)])
def test_the_planned_times_after_probes_are_close_to_the_measured_times(
    curve_files: CurveFiles, slots: int, service_s: float
) -> None:
    curve_files.write(c_min=32, c_max=2 * slots, points=7)
    curve_files.serve(slots=slots, service_s=service_s)
    assert curve_files.run("--rehearsal", "--until", "plan") == ExitCode.OK
    plan = json.loads((curve_files.output / "plan.json").read_text())
    planned_s = {point["name"]: point["seconds"] for point in plan["points"]}
    assert curve_files.run("--rehearsal", "--until", "points") == ExitCode.OK
    for name, seconds in planned_s.items():
        record = json.loads((curve_files.output / "points" / name / VERIFIED).read_text())
        assert record["duration_s"] == pytest.approx(seconds, rel=0.25), name


def test_a_failed_point_is_repeated_once_and_the_others_go_on(curve_files: CurveFiles) -> None:
    curve_files.write(points=7, concurrencies=[32, 33, 35, 38, 45, 50, 60])
    curve_files.serve(failed={"32": 3}, failed_once={"45": 2})
    assert curve_files.run("--rehearsal", "--until", "points") == ExitCode.NEGATIVE
    assert done(curve_files) == [f"r{number}" for number in range(1, 7)]
    attempts = sorted(path.parent.name for path in (curve_files.output / "discarded").glob("*/r*/verify.json"))
    assert attempts == ["r3", "r7", "r7"]
    curve_files.serve()
    assert curve_files.run("--rehearsal", "--until", "points") == ExitCode.OK


def test_a_failed_probe_ends_the_command_and_is_repeated_by_the_next_one(curve_files: CurveFiles) -> None:
    curve_files.write(**SMALL)
    curve_files.serve(failed={"60": 2})
    assert curve_files.run("--rehearsal", "--until", "plan") == ExitCode.FAILED
    curve_files.serve()
    assert curve_files.run("--rehearsal", "--until", "plan") == ExitCode.OK


def test_a_probe_with_other_settings_is_measured_again(curve_files: CurveFiles) -> None:
    curve_files.write(**SMALL)
    curve_files.serve(slots=40)
    assert curve_files.run("--rehearsal", "--until", "plan") == ExitCode.OK
    curve_files.serve(slots=20)
    assert curve_files.run("--rehearsal", "--until", "plan") == ExitCode.OK  # equal settings: the probe is read
    rates = [json.loads((curve_files.output / "plan.json").read_text())["levels"]["rates"]["60"]]
    curve_files.write(model_params={"temperature": 0.5, "max_new_tokens": 128})
    assert curve_files.run("--rehearsal", "--until", "plan") == ExitCode.OK
    rates.append(json.loads((curve_files.output / "plan.json").read_text())["levels"]["rates"]["60"])
    assert rates[1] < 0.7 * rates[0]


def test_accuracy_below_its_target_at_c_max_starts_no_second_point(
    curve_files: CurveFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "scenarios.curve.run_curve.examine_point",
        lambda *_: {"reasons": ["score"], "accuracy_failed": True, "steady_state": None, "identity": {}},
    )
    curve_files.write(**SMALL)
    assert curve_files.run("--rehearsal") == ExitCode.NEGATIVE
    assert sorted(path.name for path in (curve_files.output / "discarded").glob("*/*")) == ["r1"]


@pytest.mark.parametrize("refused", [["steady_state"], ["steady_state", "drain"]])
def test_the_settings_are_those_that_the_client_accepts(curve_files: CurveFiles, refused: list[str]) -> None:
    curve_files.write(**SMALL)
    curve_files.serve(refuses=refused)
    assert curve_files.run("--rehearsal", "--until", "plan") == ExitCode.OK
    form = json.loads((curve_files.output / "plan.json").read_text())["form"]
    assert form["release"] == "since 25 August 2026"


def test_a_client_that_refuses_all_settings_is_named(curve_files: CurveFiles) -> None:
    curve_files.write(**SMALL)
    curve_files.serve(refuses=["runtime"])
    assert curve_files.run("--rehearsal") == ExitCode.REFUSED


def test_a_dry_run_creates_no_file(curve_files: CurveFiles) -> None:
    curve_files.write(**SMALL)
    assert curve_files.run("--dry-run") == ExitCode.BAD_INPUT  # another model than those of the round
    assert curve_files.run("--dry-run", "--rehearsal") == ExitCode.OK
    assert not curve_files.output.exists()


def test_an_unfinished_run_is_moved_away(curve_files: CurveFiles) -> None:
    curve_files.write(**SMALL)
    folder = curve_files.output / "points" / "r3"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text("")
    assert curve_files.run("--rehearsal", "--until", "plan") == ExitCode.OK
    assert not folder.exists()
    assert (curve_files.output / "discarded" / "1" / "r3" / "events.jsonl").exists()


def test_too_little_space_for_the_events_is_refused(curve_files: CurveFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(Path("/"))
    monkeypatch.setattr("scenarios.curve.run_curve.shutil.disk_usage", lambda _: usage._replace(free=1000))
    curve_files.write(**SMALL)
    assert curve_files.run("--rehearsal") == ExitCode.REFUSED
    assert list((curve_files.output / "probes").glob("*")) == []


def processes_of(files: CurveFiles) -> list[int]:
    """Return the processes whose command line names a file of the curve."""
    lines = ((process.pid, " ".join(process.info["cmdline"] or ())) for process in psutil.process_iter(["cmdline"]))
    return [pid for pid, line in lines if str(files.output) in line]


def test_a_client_without_events_is_ended(curve_files: CurveFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.curve.client_process.IDLE_TIMEOUT_S", 0.5)
    curve_files.write(**SMALL)
    curve_files.serve(hangs_at=60)
    assert curve_files.run("--rehearsal") == ExitCode.FAILED
    assert processes_of(curve_files) == []
    assert list((curve_files.output / "discarded").glob("*/60-1/events.jsonl"))
    assert not (curve_files.output / "probes" / "60-1").exists()


def test_failed_samples_of_a_dead_server_end_the_command(
    curve_files: CurveFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scenarios.curve.curve_servers.CurveServers.fault", lambda _: "server: no response")
    curve_files.write(points=7, concurrencies=[32, 33, 35, 38, 45, 50, 60])
    curve_files.serve(failed={"60": 2})
    assert curve_files.run("--rehearsal") == ExitCode.FAILED


def test_the_client_of_a_killed_command_is_ended_by_the_next_call(curve_files: CurveFiles) -> None:
    curve_files.write(**SMALL)
    folder = curve_files.output / "points" / "r1"
    folder.mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as client:
        record = {"pid": client.pid, "started": psutil.Process(client.pid).create_time(), "events": ""}
        (folder / CLIENT_PROCESS).write_text(json.dumps(record))
        assert curve_files.run("--rehearsal", "--until", "plan") == ExitCode.OK
        client.wait(1)
    assert not folder.exists()


def test_a_full_disk_ends_the_client(curve_files: CurveFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(Path("/"))
    monkeypatch.setattr("scenarios.curve.client_process.SERVER_INTERVAL_S", 0.0)
    monkeypatch.setattr("scenarios.curve.client_process.shutil.disk_usage", lambda _: usage._replace(free=1000))
    monkeypatch.setattr("scenarios.curve.run_curve._CurveRun._refuse_space", lambda *_: None)
    curve_files.write(**SMALL)
    curve_files.serve(hangs_at=60)
    assert curve_files.run("--rehearsal") == ExitCode.FAILED
    assert processes_of(curve_files) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_client_and_discards_its_run(curve_files: CurveFiles, number: signal.Signals) -> None:
    curve_files.write(target_cohort="2099-12-C0", **SMALL)
    curve_files.serve(hangs_at=60)
    command = [sys.executable, str(ROOT / "main.py"), "curve", "--config", str(curve_files.root / "curve.yaml")]
    command += ["--output-log-dir", str(curve_files.output), "--rehearsal"]
    with contextlib.ExitStack() as at_the_end:
        process = at_the_end.enter_context(
            subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # a background process ignores SIGINT
            )
        )
        at_the_end.callback(process.kill)
        events = curve_files.output / "probes" / "60-1" / "events.jsonl"
        while process.poll() is None and not events.exists():
            time.sleep(0.1)
        process.send_signal(number)
        assert process.wait(120) == ExitCode.INTERRUPTED
    assert processes_of(curve_files) == []
    assert list((curve_files.output / "discarded").glob("*/60-1"))
    assert json.loads((curve_files.output / "ended.json").read_text())["exit_code"] == ExitCode.INTERRUPTED
