"""Legs with several engines, each in a process of its own: through LoadGen to the record, and what ends them."""

import os
import signal
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from runs.record.requests_log import read_requests
from tests.conftest import ROOT, Finished, StartedMain
from tests.support.legs import LONG_USER_CONF, alive, arguments, check_failed, digests, leg_pid, progress, until

RunMain = Callable[..., Finished]
StartMain = Callable[..., StartedMain]


def in_replicas(folder: Path, code: str) -> dict[str, str]:
    """An environment in which code is run at the start of each replica."""
    (folder / "sitecustomize.py").write_text(
        'import sys\nif "sut.replicas.replica" in sys.orig_argv:\n' + textwrap.indent(textwrap.dedent(code), "    ")
    )
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


def replica_pids(out: Path) -> list[int]:
    """Processes of a running leg's replicas."""
    found = []
    for pid in alive(leg_pid(out)):
        try:
            if "sut.replicas.replica" in psutil.Process(pid).cmdline():
                found.append(pid)
        except psutil.Error:
            pass
    return sorted(found)


@pytest.fixture
def running(start_main: StartMain, tmp_path: Path) -> tuple[StartedMain, Path]:
    """A leg with two replicas that has answered queries and would go on for minutes."""
    out = tmp_path / "run"
    started = start_main(*arguments("Server", out, "--replicas", 2, conf=LONG_USER_CONF))
    until(lambda: progress(out).get("completed", 0) > 20, "answers")
    return started, out


def test_answers_are_those_of_one_engine_and_all_is_on_record(run_main: RunMain, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert run_main(*arguments("Offline", one)).code == ExitCode.OK
    finished = run_main(*arguments("Offline", two, "--replicas", 2))
    assert finished.code == ExitCode.OK, finished.stderr
    assert digests(two) == digests(one)
    manifest = read_manifest(RunDir(two).manifest)
    table = read_requests(RunDir(two).requests)
    assert table.replica is not None
    answered = Counter(table.replica.tolist())
    assert [record.replica for record in manifest.replicas] == [0, 1]
    assert all(record.start_s > 0 for record in manifest.replicas)
    assert min(answered.values()) > 0
    assert manifest.observed.rejected_connections == 0
    log = RunDir(two).engine_log.read_text()
    assert all(f"replica {number}: process {manifest.replicas[number].pid}" in log for number in (0, 1))
    assert read_manifest(RunDir(one).manifest).replicas == []
    assert read_requests(RunDir(one).requests).replica is None


@pytest.mark.parametrize(
    ("how", "cause"), [(signal.SIGKILL, "exit code -9 (SIGKILL)"), (signal.SIGSTOP, "sent no heartbeat")]
)
def test_a_killed_or_stopped_replica_ends_the_leg(
    how: signal.Signals, cause: str, running: tuple[StartedMain, Path]
) -> None:
    started, out = running
    os.kill(replica_pids(out)[1], how)
    check_failed(started.wait(), out, ExitCode.FAILED, cause)
    assert "replica " in progress(out)["error"]["message"]
    assert "host " in progress(out)["error"]["message"]


@pytest.mark.parametrize(
    ("fault", "code", "cause"),
    [
        ("start", ExitCode.REFUSED, "asked not to start"),
        ("fail@5", ExitCode.FAILED, "query 5 failed"),
        ("freeze@30", ExitCode.FAILED, "stalled: "),
    ],
)
def test_a_fault_of_one_engine_names_its_replica(
    fault: str, code: ExitCode, cause: str, run_main: RunMain, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    more = ("--dummy-fault", fault, *(("--stall-timeout-s", 4) if "freeze" in fault else ()))
    finished = run_main(*arguments("Server", out, "--replicas", 2, *more, conf=LONG_USER_CONF))
    manifest = check_failed(finished, out, code, cause)
    assert manifest.error is not None
    assert "replica " in manifest.error["message"]


OTHER_IN_ONE = """
    import os, sys
    from sut.dummy.engine import DummyEngine
    start = DummyEngine.start
    async def other(self):
        report = await start(self)
        try:
            os.close(os.open({marker!r}, os.O_CREAT | os.O_EXCL))
            {change}
        except FileExistsError:
            pass
        return report
    DummyEngine.start = other
"""


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ("report.versions = {'engine': '2'}", "the replicas differ: versions.engine: "),
        ("report.vocab_size = 7", "the replicas differ: engine.vocabulary: "),
    ],
)
def test_a_replica_that_is_another_engine_is_refused(
    change: str, cause: str, run_main: RunMain, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    code = OTHER_IN_ONE.format(marker=str(tmp_path / "marker"), change=change)
    finished = run_main(*arguments("Server", out, "--replicas", 2), environment=in_replicas(tmp_path, code))
    check_failed(finished, out, ExitCode.REFUSED, cause)


def test_a_replica_that_dies_before_it_is_ready(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished = run_main(
        *arguments("Server", out, "--replicas", 2), environment=in_replicas(tmp_path, "import os; os._exit(7)")
    )
    check_failed(finished, out, ExitCode.REFUSED, "ended before it was ready, exit code 7")


@pytest.mark.parametrize("whom", ["leg", "main"])
def test_nothing_is_left_when_the_leg_or_its_parent_is_killed(whom: str, running: tuple[StartedMain, Path]) -> None:
    started, out = running
    group = leg_pid(out)
    assert len(replica_pids(out)) == 2
    os.kill(group if whom == "leg" else started.process.pid, signal.SIGKILL)
    started.wait()
    until(lambda: not alive(group), "the group to be gone")
