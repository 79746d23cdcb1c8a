"""Runs with multiple engines in processes of their own: the record, their ends, and refusals of `--cluster`."""

import os
import signal
import socket
import textwrap
from collections import Counter
from pathlib import Path

import psutil
import pytest

from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from runs.record.requests_log import read_request_table
from sut.replicas.cluster_process import passed_on, replicas_by_node
from tests.conftest import ROOT, RunMain, StartedMain, StartMain, run_here
from tests.support.engines.ray_nodes import needs_ray
from tests.support.processes.patience import until
from tests.support.runs.run_commands import (
    LONG_USER_CONF,
    arguments,
    check_failed,
    digests,
    processes_of_group,
    progress,
    run_pid,
)


def in_replicas(folder: Path, code: str) -> dict[str, str]:
    """Return an environment in which code is run at the start of each replica."""
    (folder / "sitecustomize.py").write_text(
        'import sys\nif "sut.replicas.replica" in sys.orig_argv:\n' + textwrap.indent(textwrap.dedent(code), "    ")
    )
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


def replica_pids(out: Path) -> list[int]:
    """Return the process IDs of an unfinished run's replicas."""
    pids = []
    for pid in processes_of_group(run_pid(out)):
        try:
            if "sut.replicas.replica" in psutil.Process(pid).cmdline():
                pids.append(pid)
        except psutil.Error:
            pass
    return sorted(pids)


@pytest.fixture
def running(start_main: StartMain, tmp_path: Path) -> tuple[StartedMain, Path]:
    """Start a run with two replicas that has completed queries and would continue for minutes."""
    out = tmp_path / "run"
    started = start_main(*arguments("Server", out, "--replicas", 2, conf=LONG_USER_CONF))
    until(lambda: progress(out).get("completed", 0) > 20, "answers")
    return started, out


def test_two_replicas_give_the_responses_of_one_engine(run_main: RunMain, tmp_path: Path) -> None:
    single_dir, replicated_dir = tmp_path / "one", tmp_path / "two"
    assert run_main(*arguments("Offline", single_dir)).code == ExitCode.OK
    finished = run_main(*arguments("Offline", replicated_dir, "--replicas", 2))
    assert finished.code == ExitCode.OK, finished.stderr
    assert digests(replicated_dir) == digests(single_dir)
    manifest = read_manifest(RunDir(replicated_dir).manifest)
    table = read_request_table(RunDir(replicated_dir).requests)
    answered = Counter(table.replica.tolist())
    assert [record.replica for record in manifest.replicas] == [0, 1]
    assert all(record.start_s > 0 for record in manifest.replicas)
    assert min(answered.values()) > 0
    assert manifest.observed.rejected_connections == 0
    log = RunDir(replicated_dir).engine_log.read_text()
    assert all(f"replica {number}: process {manifest.replicas[number].pid}" in log for number in (0, 1))
    assert read_manifest(RunDir(single_dir).manifest).replicas == []
    assert read_request_table(RunDir(single_dir).requests).replica is None


@pytest.mark.parametrize(
    ("how", "cause"), [(signal.SIGKILL, "exit code -9 (SIGKILL)"), (signal.SIGSTOP, "sent no heartbeat")]
)
def test_a_killed_or_stopped_replica_ends_the_run(
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
    assert "replica " in manifest.error["message"]


OTHER_IN_ONE = """
    import os, sys
    from sut.dummy.dummy_engine import DummyEngine
    start = DummyEngine.start
    async def other(self):
        report = await start(self)
        try:
            os.close(os.open({marker!r}, os.O_CREAT | os.O_EXCL))
            report.versions = {{'engine': '2'}}
        except FileExistsError:
            pass
        return report
    DummyEngine.start = other
"""


def test_replicas_with_different_engines_are_refused(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    code = OTHER_IN_ONE.format(marker=str(tmp_path / "marker"))
    finished = run_main(*arguments("Server", out, "--replicas", 2), environment=in_replicas(tmp_path, code))
    check_failed(finished, out, ExitCode.REFUSED, "the replicas differ: versions.engine: ")


def test_a_replica_that_dies_during_its_start_refuses_the_run(run_main: RunMain, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished = run_main(
        *arguments("Server", out, "--replicas", 2), environment=in_replicas(tmp_path, "import os; os._exit(7)")
    )
    check_failed(finished, out, ExitCode.REFUSED, "ended before it was ready, exit code 7")


def test_a_killed_parent_leaves_no_replica(running: tuple[StartedMain, Path]) -> None:
    started, out = running
    group = run_pid(out)
    assert len(replica_pids(out)) == 2
    started.process.kill()
    started.wait()
    until(lambda: not processes_of_group(group), "the group to be gone")


@pytest.fixture
def without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes that import Ray find none."""
    (tmp_path / "ray.py").write_text("raise ImportError('No module named ray')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_cluster_without_ray_is_refused(without_ray: None, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finished = run_here(*arguments("Offline", out, "--cluster", "auto"))
    assert finished.code == ExitCode.REFUSED
    assert "--cluster auto needs Ray" in finished.stderr
    assert "pip install ray==" in finished.stderr
    assert not out.exists()


def test_doctor_reports_missing_ray(without_ray: None) -> None:
    finished = run_here("doctor", "--cluster")
    assert finished.code == ExitCode.REFUSED
    assert "cluster" in finished.stdout
    assert "--cluster auto needs Ray" in finished.stdout


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:port", ""])
def test_an_invalid_cluster_address_is_refused(address: str, tmp_path: Path) -> None:
    finished = run_here(*arguments("Offline", tmp_path / "run", "--cluster", address))
    assert finished.code == ExitCode.BAD_INPUT
    assert f"--cluster {address}".rstrip() in finished.stderr


@needs_ray
def test_an_unreachable_cluster_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    finished = run_here(*arguments("Offline", tmp_path / "run", "--cluster", f"127.0.0.1:{port}"))
    assert finished.code == ExitCode.REFUSED
    assert "no cluster responds" in finished.stderr
    assert "ray start --head" in finished.stderr


@pytest.mark.parametrize(
    ("fit", "count", "expected"),
    [
        ({0: 8, 1: 8}, 4, {0: 2, 1: 2}),
        ({0: 8, 1: 8}, 1, {0: 1}),
        ({0: 8, 2: 4}, 6, {0: 4, 2: 2}),
        ({0: 1, 1: 1}, 5, {0: 3, 1: 2}),
    ],
)
def test_replicas_are_distributed_by_free_places(fit: dict[int, int], count: int, expected: dict[int, int]) -> None:
    assert replicas_by_node(fit, count) == expected


def test_variables_of_the_user_are_passed_on_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_API_KEY": "secret", "HF_TOKEN": "secret", "PATH": "/bin"}
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert passed_on() == {"VLLM_CPU_KVCACHE_SPACE": "2"}
