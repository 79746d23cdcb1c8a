"""`status` and `results`: runs in every state, as a user leaves them."""

import csv
import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runs.errors import ExitCode
from runs.record.layout import CampaignDir, RunDir
from runs.record.manifest import read_manifest, write_manifest
from runs.record.progress import read_progress, write_progress
from scenarios.resumed import held
from scenarios.status.find import find_in, holder_of
from scenarios.status.snapshot import as_markdown, lines, take_snapshot
from scenarios.status.state import GroupStatus, leg_status
from tests.conftest import Finished, StartedMain, run_here
from tests.support import warm
from tests.support.legs import LONG_USER_CONF, SLOW_START, USER_CONF, arguments, leg_pid, patched, progress, until
from tests.support.verify_legs import DummyLegs

RunMain = Callable[..., Finished]
StartMain = Callable[..., StartedMain]


def said(finished: Finished) -> dict[str, Any]:
    """The legs of a `status --json`, by directory name."""
    return {Path(run["directory"]).name: run for run in json.loads(finished.stdout)["runs"]}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid Server leg and an accuracy leg, in one directory."""
    folder, legs = tmp_path_factory.mktemp("measured"), DummyLegs()
    legs.copy(folder / "valid", "Server")
    legs.copy(folder / "scores", "Server", "accuracy")
    return folder


def test_five_legs_in_five_states(tmp_path: Path, start_main: StartMain, run_main: RunMain) -> None:
    slow = patched(tmp_path, in_leg=SLOW_START)
    folder = tmp_path / "runs"
    folder.mkdir()
    running = start_main(*arguments("Server", folder / "running", conf=LONG_USER_CONF), anew=True)  # found by its words
    killed = start_main(*arguments("Server", folder / "killed", conf=LONG_USER_CONF))
    starting = start_main(*arguments("Offline", folder / "killed-starting"), environment=slow)
    failed = run_main(*arguments("Offline", folder / "failed", "--dummy-fault", "fail@3"))
    valid = run_main(*arguments("Server", folder / "valid"))
    assert (failed.code, valid.code) == (ExitCode.FAILED, ExitCode.OK)
    for name in ("running", "killed"):
        until(lambda name=name: progress(folder / name).get("completed", 0) > 0, "answers")
    until(lambda: progress(folder / "killed-starting").get("phase") == "engine", "an engine that starts")
    for started, name in ((killed, "killed"), (starting, "killed-starting")):
        pid = leg_pid(folder / name)
        started.process.kill()
        started.process.wait()
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists() or _is_zombie(pid), "the end of the leg")

    finished = run_here("status", folder, "--json")
    assert finished.code == ExitCode.FAILED
    found = said(finished)
    assert {name: run["state"] for name, run in found.items()} == {
        "running": "running", "killed": "killed", "killed-starting": "killed", "failed": "failed", "valid": "finished",
    }  # fmt: skip
    assert found["running"]["alive"]
    assert found["running"]["completed"] > 0
    assert (found["running"]["ttft_limit_ms"], found["running"]["tpot_limit_ms"]) == (2000, 100)
    assert "while running" in found["killed"]["text"]
    assert "while starting the engine" in found["killed-starting"]["text"]
    assert read_manifest(RunDir(folder / "killed-starting").manifest).status == "planned"
    assert found["valid"]["text"] == "VALID"

    anywhere = said(run_here("status", "--json"))
    assert anywhere["running"]["directory"] == str(folder / "running"), "found by its process"

    # The five as a person sees them, and with the fifth ended.
    text = run_here("status", folder).stdout
    assert "p99 TTFT" in text
    assert max(map(len, text.splitlines()[1:])) > 40
    running.process.send_signal(signal.SIGINT)
    running.wait()
    watched = run_here("status", folder, "--watch", "--output", tmp_path / "page" / "status.md")
    assert "interrupted by SIGINT" in watched.stdout
    page = (tmp_path / "page" / "status.md").read_text()
    assert page.count("\n| ") == 6
    assert "| interrupted | Server performance | " in page


def _is_zombie(pid: int) -> bool:
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


def test_watch_goes_on_until_nothing_runs(tmp_path: Path, start_main: StartMain) -> None:
    leg = start_main(*arguments("Server", tmp_path / "leg", conf=LONG_USER_CONF))
    until(lambda: progress(tmp_path / "leg").get("phase") == "running", "a running leg")
    watch = start_main("status", tmp_path / "leg", "--watch", "--interval", "0.2", "--json")
    assert isinstance(watch.process, warm.Process)
    stdout = watch.process.streams[0]
    until(lambda: stdout.exists() and stdout.read_text().count("\n") > 1, "looks")
    leg.process.send_signal(signal.SIGINT)
    assert leg.wait().code == ExitCode.INTERRUPTED
    finished = watch.wait()
    looks = [json.loads(line)["runs"][0]["state"] for line in finished.stdout.splitlines()]
    assert looks[:2] == ["running", "running"]
    assert looks[-1] == "interrupted"
    assert finished.code != ExitCode.OK


def test_a_leg_of_another_machine_is_judged_by_its_heartbeat(tmp_path: Path, measured: Path) -> None:
    run = RunDir(tmp_path / "leg")
    run.create()
    manifest = read_manifest(RunDir(measured / "valid").manifest)
    manifest.status = "running"
    manifest.end_time_ns = None
    host = manifest.observed.host.model_copy(update={"hostname": "node-7"})
    manifest.observed = manifest.observed.model_copy(update={"host": host})
    write_manifest(run.manifest, manifest)
    heartbeat = read_progress(RunDir(measured / "valid").progress)
    assert heartbeat is not None
    heartbeat.phase = "running"
    write_progress(run.progress, heartbeat)
    quiet_since_ns = 10**18  # long ago
    heartbeat.time_ns = quiet_since_ns
    write_progress(run.progress, heartbeat)
    status = leg_status(run.root)
    assert (status.state, status.exit_code) == ("silent", ExitCode.FAILED)
    assert "no heartbeat from node-7" in status.text
    heartbeat.time_ns = run.progress.stat().st_mtime_ns
    write_progress(run.progress, heartbeat)
    assert leg_status(run.root).state == "running"


def test_a_tune(tmp_path: Path, run_main: RunMain) -> None:
    conf = tmp_path / "user.conf"
    conf.write_text(USER_CONF)
    finished = run_main(
        "tune", "--scenario", "Server", "--engine", "dummy", "--user-conf", conf,
        "--output-log-dir", tmp_path / "tune", "--max-probes", 1, "--offline-qps", 2000,
    )  # fmt: skip
    (group,) = _groups(tmp_path / "tune")
    assert group.exit_code == finished.code
    assert group.state == "finished"
    assert group.text.startswith("1 probe, last ")


def _groups(root: Path) -> tuple[GroupStatus, ...]:
    return take_snapshot([root]).groups


def test_a_campaign_is_alive_while_its_lock_is_held(tmp_path: Path, measured: Path) -> None:
    place = CampaignDir(tmp_path / "campaign")
    place.root.mkdir()
    legs = [{"leg": "a", "directory": str(measured / "valid")}, {"leg": "b", "directory": str(tmp_path / "none")}]
    place.configuration.write_text(json.dumps({"legs": legs}))
    with held(place.lock, "campaign"):
        assert holder_of(place.lock) == os.getpid()
        (group,) = _groups(place.root)
        assert (group.state, group.pid) == ("running", os.getpid())
    assert holder_of(place.lock) is None
    (group,) = _groups(place.root)
    assert (group.state, group.exit_code, group.text) == (
        "interrupted", ExitCode.FAILED, "0 of 2 legs done; it does not run",
    )  # fmt: skip


def test_what_was_discarded_is_left_out(tmp_path: Path, measured: Path) -> None:
    (tmp_path / "discarded").mkdir()
    (tmp_path / "discarded" / "1").symlink_to(measured)
    assert find_in([tmp_path]) == []


def test_pages_hold_what_a_path_may_hold(tmp_path: Path) -> None:
    odd = tmp_path / "a|b\nc"
    odd.mkdir()
    (odd / "manifest.json").write_text("{}")
    snapshot = take_snapshot([odd])
    row = as_markdown(snapshot).splitlines()[-1]
    assert row.count("\\|") >= 1
    assert row.endswith("|")
    assert lines(snapshot)


# results ------------------------------------------------------------------------------------------------------------


def test_results_are_the_numbers_of_the_files(measured: Path) -> None:
    finished = run_here("results", measured, "--json")
    assert finished.code == ExitCode.OK
    by_name = {Path(row["directory"]).name: row for row in json.loads(finished.stdout)["results"]}
    result = json.loads(RunDir(measured / "valid").result.read_bytes())
    assert by_name["valid"]["tokens_per_second"] == result["reported"]["tokens_per_second"]
    assert by_name["valid"]["ttft_p99_ms"] == result["reported"]["ttft_ns"]["p99"] / 1e6
    assert by_name["valid"]["outcome"] == "VALID"
    scores = json.loads(RunDir(measured / "scores").accuracy_json.read_bytes())["scores"]
    assert by_name["scores"]["rouge1"] == scores["rouge1"]
    assert by_name["scores"]["outcome"] == "scored"

    rows = list(csv.DictReader(io.StringIO(run_here("results", measured, "--csv").stdout)))
    assert {row["outcome"] for row in rows} == {"VALID", "scored"}
    assert set(rows[0]) == set(by_name["valid"])
    text = run_here("results", measured).stdout
    assert "VALID*" in text
    assert text.count("Server") == 2


def test_results_without_a_result(tmp_path: Path, run_main: RunMain) -> None:
    run_main(*arguments("Offline", tmp_path / "failed", "--dummy-fault", "fail@3"))
    finished = run_here("results", tmp_path / "failed")
    assert finished.code == ExitCode.FAILED
    assert finished.stdout == ""
    assert "no result: failed: dummy fault" in finished.stderr
    (tmp_path / "empty").mkdir()
    finished = run_here("results", tmp_path / "empty")
    assert finished.code == ExitCode.BAD_INPUT
    assert "no leg found" in finished.stderr
    finished = run_here("results", tmp_path, "--csv", "--json")
    assert finished.code == ExitCode.BAD_INPUT


def test_a_leg_that_was_never_valid_counts(tmp_path: Path, run_main: RunMain) -> None:
    out = tmp_path / "invalid"
    finished = run_main(
        *arguments("Offline", out, conf=USER_CONF.replace("Offline.min_duration = 200", "Offline.min_duration = 60000"))
    )
    assert finished.code == ExitCode.NEGATIVE
    assert run_here("results", out).code == ExitCode.NEGATIVE
    assert run_here("status", out).code == ExitCode.NEGATIVE
