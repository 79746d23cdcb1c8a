"""`status` and `results`: runs in each state, as a user leaves them."""

import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from runs.errors import ExecutionError, ExitCode, Interrupted, SetupError
from runs.processes.lock_holder import holder_of
from runs.record.group_end import read_end, record_end
from runs.record.layout import CampaignDir, RunDir
from runs.record.manifest import read_manifest, write_manifest
from runs.record.observed import EngineSeen, ServerClient, TextResponses
from runs.record.progress import read_progress, write_progress
from scenarios.resumed import held
from scenarios.status.find import find_in
from scenarios.status.run_kinds import run_status
from scenarios.status.run_status import GroupStatus
from scenarios.status.snapshot import lines, snapshot_markdown, take_snapshot
from tests.conftest import Finished, RunMain, StartMain, run_here
from tests.support.files.editing import reseal
from tests.support.processes import warm
from tests.support.processes.patience import until
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.runs.run_commands import (
    LONG_USER_CONF,
    SLOW_START,
    arguments,
    environment_with_code,
    processes_of_group,
    progress,
    run_pid,
)
from tests.support.runs.submission_runs import edit


def states_by_name(finished: Finished) -> dict[str, Any]:
    """Return the runs of a `status --json`, by directory name."""
    return {Path(run["directory"]).name: run for run in json.loads(finished.stdout)["answer"]["runs"]}


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a valid Server run and an accuracy run in one directory."""
    folder, runs = tmp_path_factory.mktemp("measured"), DummyRuns()
    runs.copy(folder / "valid", "Server")
    runs.copy(folder / "scores", "Server", "accuracy")
    return folder


def test_five_runs_show_five_states(tmp_path: Path, start_main: StartMain, run_main: RunMain) -> None:
    slow = environment_with_code(tmp_path, in_run=SLOW_START)
    folder = tmp_path / "runs"
    folder.mkdir()
    # Found by its command line
    running = start_main(*arguments("Server", folder / "running", conf=LONG_USER_CONF), anew=True)
    killed = start_main(*arguments("Server", folder / "killed", conf=LONG_USER_CONF))
    starting = start_main(*arguments("Offline", folder / "killed-starting"), environment=slow)
    failed = run_main(*arguments("Offline", folder / "failed", "--dummy-fault", "fail@3"))
    valid = run_main(*arguments("Server", folder / "valid"))
    assert (failed.code, valid.code) == (ExitCode.FAILED, ExitCode.OK)
    for name in ("running", "killed"):
        until(lambda name=name: progress(folder / name).get("completed", 0) > 0, "answers")
    until(lambda: progress(folder / "killed-starting").get("phase") == "engine", "an engine that starts")
    for started, name in ((killed, "killed"), (starting, "killed-starting")):
        pid = run_pid(folder / name)
        started.process.kill()
        started.process.wait()
        until(lambda pid=pid: not processes_of_group(pid), "the end of the run")

    finished = run_here("status", folder, "--json")
    assert finished.code == ExitCode.FAILED
    status = states_by_name(finished)
    assert {name: run["state"] for name, run in status.items()} == {
        "running": "running", "killed": "killed", "killed-starting": "killed", "failed": "failed", "valid": "finished",
    }  # fmt: skip
    assert status["running"]["alive"]
    assert status["running"]["completed"] > 0
    assert (status["running"]["ttft_limit_ms"], status["running"]["tpot_limit_ms"]) == (2000, 100)
    assert "while running" in status["killed"]["text"]
    assert "while starting the engine" in status["killed-starting"]["text"]
    assert read_manifest(RunDir(folder / "killed-starting").manifest).status == "planned"
    assert status["valid"]["text"] == "VALID"

    anywhere = states_by_name(run_here("status", "--json"))
    assert anywhere["running"]["directory"] == str(folder / "running"), "found by its process"

    # The five runs as a person sees them, before and after the end of the fifth.
    text = run_here("status", folder).stdout
    # p99 needs 459 samples, which a slow host has not completed yet
    assert re.search(r"p(99 TTFT \S+ ms p99 TPOT|50 TTFT) \S+ ms \d?\d:\d\d\b", " ".join(text.split())), text
    assert max(map(len, text.splitlines()[1:])) > 40
    running.process.send_signal(signal.SIGINT)
    running.wait()
    watched = run_here("status", folder, "--watch", "--output", tmp_path / "page" / "status.md")
    assert "interrupted by SIGINT" in watched.stdout
    page = (tmp_path / "page" / "status.md").read_text()
    assert page.count("\n| ") == 6
    assert "| interrupted | Server performance | " in page


def test_watch_ends_when_no_run_is_running(tmp_path: Path, start_main: StartMain) -> None:
    run = start_main(*arguments("Server", tmp_path / "run", conf=LONG_USER_CONF))
    until(lambda: progress(tmp_path / "run").get("phase") == "running", "an unfinished run")
    watch = start_main("status", tmp_path / "run", "--watch", "--interval", "0.2", "--json")
    assert isinstance(watch.process, warm.Process)
    stdout = watch.process.streams[0]
    until(lambda: stdout.exists() and stdout.read_text().count("\n") > 1, "looks")
    run.process.send_signal(signal.SIGINT)
    assert run.wait().code == ExitCode.INTERRUPTED
    finished = watch.wait()
    states = [json.loads(line)["answer"]["runs"][0]["state"] for line in finished.stdout.splitlines()]
    assert states[:2] == ["running", "running"]
    assert states[-1] == "interrupted"
    assert finished.code != ExitCode.OK


def test_a_run_of_another_host_is_judged_by_its_heartbeat(tmp_path: Path, finished_runs: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.root.mkdir(parents=True)
    manifest = read_manifest(RunDir(finished_runs / "valid").manifest)
    manifest.status = "running"
    manifest.end_time_ns = None
    host = manifest.observed.host.model_copy(update={"hostname": "node-7"})
    manifest.observed = manifest.observed.model_copy(update={"host": host})
    write_manifest(run.manifest, manifest)
    heartbeat = read_progress(RunDir(finished_runs / "valid").progress)
    heartbeat.phase = "running"
    write_progress(run.progress, heartbeat)
    quiet_since_ns = 10**18  # long ago
    heartbeat.time_ns = quiet_since_ns
    write_progress(run.progress, heartbeat)
    status = run_status(run.root)
    assert (status.state, status.exit_code) == ("silent", ExitCode.FAILED)
    assert "no heartbeat from node-7" in status.text
    heartbeat.time_ns = run.progress.stat().st_mtime_ns
    write_progress(run.progress, heartbeat)
    assert run_status(run.root).state == "running"


def _groups(root: Path) -> tuple[GroupStatus, ...]:
    return take_snapshot([root]).groups


def test_a_campaign_is_running_while_its_lock_is_held(tmp_path: Path, finished_runs: Path) -> None:
    place = CampaignDir(tmp_path / "campaign")
    place.root.mkdir()
    runs = [{"leg": "a", "directory": str(finished_runs / "valid")}, {"leg": "b", "directory": str(tmp_path / "none")}]
    place.configuration.write_text(json.dumps({"legs": runs}))
    with held(place.lock, "campaign"):
        assert holder_of(place.lock) == os.getpid()
        (group,) = _groups(place.root)
        assert (group.state, group.pid) == ("running", os.getpid())
    assert holder_of(place.lock) is None
    (group,) = _groups(place.root)
    assert (group.state, group.exit_code) == ("killed", ExitCode.FAILED)
    assert group.text.startswith("0 of 2 runs done; its process ended and wrote no result")


@pytest.mark.parametrize("passed", [True, False])
def test_an_audit_verdict_replaces_the_states_of_its_runs(tmp_path: Path, finished_runs: Path, passed: bool) -> None:
    place = CampaignDir(tmp_path / "campaign")
    audit = place.result("llama3.1-8b", "Server").audit("TEST06")
    shutil.copytree(finished_runs / "valid", audit / "performance")
    edit(audit / "performance" / "result.json", verdict="INVALID", reasons=["too few queries"])
    edit(audit / "performance" / "manifest.json", exit_code=1)
    (audit / "audit_TEST06.json").write_text(json.dumps({"passed": passed, "reason": "EOS"}))
    place.configuration.write_text(json.dumps({"legs": [{"leg": "Server TEST06", "directory": str(audit)}]}))
    for folder in (place.root, audit):
        text = "\n".join(line.plain for line in lines(take_snapshot([folder])))
        assert "INVALID" not in text
        assert ("FAIL: EOS" in text) == (not passed)


# The end of the last run of a group, and its state if the group's command left no record.
ENDS = {
    "killed": ({"status": "running", "end_time_ns": None, "pid": 2**22 + 1, "parent_pid": 2**22 + 2}, "killed"),
    "engine died": ({"status": "failed", "exit_code": 4, "error": {"message": "the engine died"}}, "failed"),
    "stalled": ({"status": "failed", "exit_code": 4, "error": {"message": "watchdog: no progress"}}, "failed"),
    "Ctrl-C": ({"status": "interrupted", "exit_code": 130, "error": {"message": "by SIGINT"}}, "interrupted"),
    "between two runs": ({}, "killed"),
}
OF_KINDS = {"run": "", "audit": "audit/TEST06/performance", "campaign": "llama3.1-8b/Offline/performance/run_1"}


@pytest.mark.parametrize("kind", OF_KINDS)
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_run_ends_its_group(tmp_path: Path, kind: str, end: str) -> None:
    change, state = ENDS[end]
    home = tmp_path / kind
    run = DummyRuns().copy(home / OF_KINDS[kind], "Offline")
    edit(run.manifest, **change)
    if kind == "campaign":
        planned = [{"directory": str(run.root)}, {"directory": str(home / "llama3.1-8b/Offline/accuracy")}]
        CampaignDir(home).configuration.write_text(json.dumps({"legs": planned}))
    snapshot = take_snapshot([home])
    entry = (snapshot.groups or snapshot.runs)[0]
    if kind == "run" and not change:
        state = "finished"
    assert (entry.state, entry.exit_code == ExitCode.OK) == (state, state == "finished")
    assert str(change.get("error", {}).get("message", "")) in entry.text
    if kind != "run" or state != "finished":
        assert entry.state in "\n".join(line.plain for line in lines(snapshot))


@pytest.mark.parametrize(
    ("raised", "state"),
    [
        (ExecutionError("no verdict: an hour of noise"), "failed"),
        (SetupError("the run was refused"), "failed"),
        (Interrupted("interrupted by SIGTERM"), "interrupted"),
        (KeyError("a defect"), "failed"),
        (ExitCode.NEGATIVE, "finished"),
        (None, "running"),
    ],
)
def test_a_group_records_how_it_ended(tmp_path: Path, raised: BaseException | ExitCode | None, state: str) -> None:
    """The runs alone do not show how a command ended between two runs."""
    home = tmp_path / "audit/TEST06"
    run = DummyRuns().copy(home / "performance", "Offline")
    if state == "running":
        parent = os.getppid()
        edit(run.manifest, parent_pid=parent, start_time_ns=int(psutil.Process(parent).create_time() * 1e9) + 10**9)
    else:
        with contextlib.suppress(BaseException):
            record_end(home, lambda: raised if isinstance(raised, ExitCode) else _raise(raised))
    (group,) = _groups(home)
    assert group.state == state
    assert str(getattr(raised, "message", "")) in group.text
    assert group.exit_code == getattr(raised, "exit_code", raised or 0) or isinstance(raised, KeyError)


def _raise(error: BaseException | None) -> ExitCode:
    assert error is not None
    raise error


def test_a_repeated_command_removes_the_recorded_end(tmp_path: Path) -> None:
    def work() -> ExitCode:
        assert read_end(tmp_path) is None
        return ExitCode.OK

    with pytest.raises(Interrupted):
        record_end(tmp_path, lambda: _raise(Interrupted("by SIGINT")))
    assert record_end(tmp_path, work) == ExitCode.OK


@pytest.mark.parametrize(("passed", "code", "outcome"), [(True, 0, "PASS"), (False, 1, "FAIL"), (None, 0, "no target")])
def test_an_accuracy_run_shows_one_of_three_outcomes(
    tmp_path: Path, passed: bool | None, code: int, outcome: str
) -> None:
    run = DummyRuns().copy(tmp_path / "scores", "Offline", "accuracy")
    edit(run.accuracy_json, passed=passed)
    edit(run.manifest, exit_code=code)
    for command in ("status", "results"):
        reported = run_here(command, run.root)
        assert (reported.code, outcome in reported.stdout) == (code, True), reported


def test_discarded_runs_are_omitted(tmp_path: Path, finished_runs: Path) -> None:
    (tmp_path / "discarded").mkdir()
    (tmp_path / "discarded" / "1").symlink_to(finished_runs)
    assert find_in([tmp_path]) == []


def test_unusual_paths_are_escaped(tmp_path: Path) -> None:
    odd = tmp_path / "a|b\nc"
    odd.mkdir()
    (odd / "manifest.json").write_text("{}")
    snapshot = take_snapshot([odd])
    row = snapshot_markdown(snapshot).splitlines()[-1]
    assert row.count("\\|") >= 1
    assert row.endswith("|")
    assert lines(snapshot)


# results ------------------------------------------------------------------------------------------------------------


def test_results_equal_the_recorded_numbers(finished_runs: Path) -> None:
    finished = run_here("results", finished_runs, "--json")
    assert finished.code == ExitCode.OK
    by_name = {Path(row["directory"]).name: row for row in json.loads(finished.stdout)["answer"]["results"]}
    result = json.loads(RunDir(finished_runs / "valid").result.read_bytes())
    assert by_name["valid"]["tokens_per_second"] == result["reported"]["tokens_per_second"]
    assert by_name["valid"]["ttft_p99_ms"] == result["reported"]["ttft_ns"]["p99"] / 1e6
    assert by_name["valid"]["outcome"] == "VALID"
    scores = json.loads(RunDir(finished_runs / "scores").accuracy_json.read_bytes())["scores"]
    assert by_name["scores"]["rouge1"] == scores["rouge1"]
    assert by_name["scores"]["outcome"] == "no target applies"

    rows = list(csv.DictReader(io.StringIO(run_here("results", finished_runs, "--csv").stdout)))
    assert {row["outcome"] for row in rows} == {"VALID", "no target applies"}
    assert set(rows[0]) == set(by_name["valid"])
    text = run_here("results", finished_runs).stdout
    assert "VALID*" in text
    assert text.count("Server") == 2


def test_a_run_whose_token_counts_contradict_is_listed_as_unclear(tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "run", "Server")
    counts = TextResponses(is_tokenized=True, responses_with_usage=9, tokens_by_usage=100, tokens_by_tokenizer=120)
    engine = EngineSeen(client=ServerClient(server="http://host:8000", answers=9, text=counts))
    manifest = json.loads(run.manifest.read_bytes())
    manifest["observed"]["engines"] = [engine.model_dump(mode="json")]
    run.manifest.write_text(json.dumps(manifest))
    reseal(run)
    [row] = json.loads(run_here("results", run.root, "--json").stdout)["answer"]["results"]
    assert row["outcome"] == "unclear (LoadGen: VALID)"


def test_runs_without_result_are_named(tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "failed", "Offline")
    edit(run.manifest, status="failed", exit_code=4, error={"message": "the engine died"})
    finished = run_here("results", run.root)
    assert (finished.code, finished.stdout) == (ExitCode.FAILED, "")
    assert "not listed: failed: the engine died" in finished.stderr
    scores = DummyRuns().copy(tmp_path / "scores", "Offline", "accuracy")
    scores.accuracy_json.unlink()
    finished = run_here("results", scores.root)
    assert finished.code != ExitCode.OK
    assert "accuracy.json" in finished.stderr
    (tmp_path / "empty").mkdir()
    finished = run_here("results", tmp_path / "empty")
    assert finished.code == ExitCode.BAD_INPUT
    assert "is empty\n  fix: name a directory with runs" in finished.stderr


def test_an_invalid_run_ends_with_exit_code_1(tmp_path: Path) -> None:
    run = DummyRuns().copy(tmp_path / "invalid", "Offline")
    edit(run.manifest, exit_code=1)
    for command in ("results", "status"):
        assert run_here(command, run.root).code == ExitCode.NEGATIVE


TUNE = '{"scenario": "Server", "target_qps": null, "probes": [], "confirmations": []}'
RECORDS = {
    "tune.json": [
        *("{}", "[]", "{", TUNE.replace("[]", "5", 1), TUNE.replace("[]", '[{"number": 1}]', 1)),
        *(TUNE.replace("null", '"5"'), TUNE.replace('"Server"', "5")),
    ],
    "campaign.json": [
        *("{}", '{"legs": 5}', '{"legs": [5]}', '{"legs": [{"directory": 5}]}'),
        '{"legs": [{"directory": "a\\u0000b"}]}',
    ],
}


@pytest.mark.parametrize(("name", "content"), [(name, content) for name, all_ in RECORDS.items() for content in all_])
def test_a_damaged_manifest_is_named(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    reported = run_here("status", tmp_path)
    assert (reported.code, name in reported.stdout) == (2, True)
    refused = run_here("report", tmp_path)
    assert (refused.code, refused.stderr.startswith("error: ")) == (2, True)


def test_a_damaged_journal_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "tune.lock").write_text("")
    (tmp_path / "journal.jsonl").write_text('{"step": "probe", "verdict": "VALID"}\n')
    reported = run_here("status", tmp_path)
    assert (reported.code, "journal.jsonl:1" in reported.stdout) == (2, True)
