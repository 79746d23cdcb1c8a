"""Replicas on two nodes of a real Ray cluster: the record of a run, and the causes that end it."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from runs.errors import ExitCode
from runs.record.fingerprint import RESULT, differences, fingerprint
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from runs.record.requests_log import read_request_table
from tests.conftest import RunMain, StartedMain, StartMain
from tests.support.engines.ray_nodes import HEAD, SECOND, SharedNodes, TwoNodes, needs_ray
from tests.support.processes.patience import until
from tests.support.runs.run_commands import (
    LONG_USER_CONF,
    arguments,
    check_failed,
    digests,
    is_running,
    processes_of_group,
    progress,
    run_pid,
)

pytestmark = [pytest.mark.vllm, needs_ray]

DRIVER = "sut.replicas.cluster_process launch"


@pytest.fixture
def run_main(start_main: StartMain) -> RunMain:
    return lambda *arguments, **more: start_main(*arguments, **more).wait()


def start_run(cluster: TwoNodes, start_main: StartMain, out: Path) -> StartedMain:
    """Start a run with a replica on each node that has completed queries and would continue for minutes."""
    started = start_main(*arguments("Server", out, "--cluster", cluster.address, conf=LONG_USER_CONF))
    until(lambda: progress(out).get("completed", 0) > 20, "responses", process=started.process)
    return started


@pytest.fixture
def running(cluster: TwoNodes, start_main: StartMain, tmp_path: Path) -> Iterator[tuple[StartedMain, Path]]:
    """Yield a run that must leave no process."""
    out = tmp_path / "run"
    started = start_run(cluster, start_main, out)
    groups = [run_pid(out), *(replica.pid for replica in cluster.replicas())]
    assert len(groups) == 3
    yield started, out
    until(lambda: not any(processes_of_group(group) for group in groups), "the processes to be gone")
    until(lambda: not cluster.left() and not cluster.keepers(), "actors and placement group to be gone")
    guards = [f"kill -9 -{group}" for group in groups[1:]]
    until(
        lambda: not any(is_running(process, guard) for process in psutil.process_iter() for guard in guards),
        "guardians to be gone",
    )


@pytest.fixture(scope="module")
def run(nodes: SharedNodes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished Offline run."""
    cluster = nodes.running()
    folder = tmp_path_factory.mktemp("cluster")
    out = folder / "run"
    words = [*arguments("Offline", out, "--cluster", cluster.address)]
    finished = StartedMain(tuple(words), folder, {}).wait()
    assert finished.code == ExitCode.OK, finished.stderr
    assert read_manifest(RunDir(out).manifest).notes[0].startswith("2 replicas on ")
    assert cluster.left() == []
    assert cluster.keepers() == []
    return out


def test_a_run_on_two_nodes_records_both(run: Path, run_main: RunMain, tmp_path: Path) -> None:
    manifest = read_manifest(RunDir(run).manifest)
    assert len(manifest.plan.nodes) == 2
    assert [place.node for place in manifest.plan.replicas.places] == [0, 1]
    assert [record.host for record in manifest.replicas] == [node.host["hostname"] for node in manifest.plan.nodes]
    assert set(read_request_table(RunDir(run).requests).replica.tolist()) == {0, 1}
    assert manifest.observed.rejected_connections == 0
    assert "multiple nodes of the cluster are one machine" in manifest.unofficial_reasons
    log = RunDir(run).engine_log.read_text()
    for number, record in enumerate(manifest.replicas):
        line = next(line for line in log.splitlines() if f"replica {number}: process {record.pid}" in line)
        assert line.startswith(f"(replica {number}, {manifest.plan.nodes[number].name}")
    single_dir = tmp_path / "one"
    assert run_main(*arguments("Offline", single_dir)).code == ExitCode.OK
    assert digests(run) == digests(single_dir)
    assert run_main("verify", run).code == ExitCode.OK


def test_a_restarted_cluster_is_the_same_system(run: Path) -> None:
    manifest = read_manifest(RunDir(run).manifest)
    again = manifest.model_copy(deep=True)
    nodes = again.plan.nodes
    nodes[:] = [node.model_copy(update={"id": "another", "address": "10.0.0.9"}) for node in nodes]
    assert differences(fingerprint(manifest), fingerprint(again), RESULT) == {}
    nodes[1].software["vllm"] = "0.1"
    assert list(differences(fingerprint(manifest), fingerprint(again), RESULT)) == ["node 1.version of vllm"]


def test_ctrl_c_ends_the_run_with_exit_code_130(running: tuple[StartedMain, Path]) -> None:
    started, out = running
    started.process.send_signal(signal.SIGINT)
    check_failed(started.wait(), out, ExitCode.INTERRUPTED, "interrupted by SIGINT")


@pytest.mark.parametrize("whom", ["leg", "main"])
def test_a_killed_run_or_parent_leaves_no_process(whom: str, running: tuple[StartedMain, Path]) -> None:
    started, out = running
    os.kill(run_pid(out) if whom == "leg" else started.process.pid, signal.SIGKILL)
    started.wait()


@pytest.mark.parametrize(
    ("whom", "how", "cause"),
    [
        ("keepers", signal.SIGKILL, " because its Ray actor ended: "),
        ("replicas", signal.SIGSTOP, " sent no heartbeat"),
    ],
)
def test_a_killed_or_stopped_replica_ends_the_run(
    whom: str, how: signal.Signals, cause: str, cluster: TwoNodes, running: tuple[StartedMain, Path]
) -> None:
    started, out = running
    getattr(cluster, whom)()[1].send_signal(how)
    manifest = check_failed(started.wait(), out, ExitCode.FAILED, cause)
    names_its_replica(manifest.error)


def names_its_replica(error: dict[str, Any] | None) -> None:
    assert error["message"].startswith("replica 1 (")
    assert f"({SECOND})" in error["message"]


def test_a_killed_raylet_ends_the_run(cluster: TwoNodes, running: tuple[StartedMain, Path]) -> None:
    started, out = running
    replicas = cluster.replicas()
    cluster.kill_second_raylet()
    manifest = check_failed(started.wait(), out, ExitCode.FAILED, "replica 1")
    names_its_replica(manifest.error)
    until(lambda: not any(replica.is_running() for replica in replicas), "the replicas' end")
    cluster.renew_second()


@pytest.fixture
def starting_run(cluster: TwoNodes, start_main: StartMain, tmp_path: Path) -> Iterator[tuple[StartedMain, Path]]:
    """Yield a run whose replicas are about to start and would never be warm, and which must leave no process."""
    out = tmp_path / "run"
    started = start_main(*arguments("Server", out, "--cluster", cluster.address, "--dummy-ttft-ms", 1e9))
    main = psutil.Process(started.process.pid)
    until(lambda: any(is_running(child, DRIVER) for child in main.children(recursive=True)), "the driver")
    yield started, out
    until(lambda: not cluster.left() and not cluster.keepers(), "actors and placement group to be gone")


def until_both(whom: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    return list(until(lambda: len(processes := whom()) == 2 and processes, "both"))


@pytest.mark.parametrize("when", ["before its actor", pytest.param("with its actor", marks=pytest.mark.long)])
def test_a_node_that_dies_during_the_start_refuses_the_run(
    when: str, cluster: TwoNodes, starting_run: tuple[StartedMain, Path]
) -> None:
    started, out = starting_run
    if when == "with its actor":
        until_both(cluster.keepers)
    cluster.kill_second_raylet()
    try:
        names_its_replica(check_failed(started.wait(), out, ExitCode.REFUSED, "replica 1").error)
    finally:
        cluster.renew_second()


def test_doctor_lists_the_nodes(cluster: TwoNodes, run_main: RunMain) -> None:
    finished = run_main("doctor", "--cluster", cluster.address, "--json")
    assert finished.code == ExitCode.OK, finished.stderr
    response = json.loads(finished.stdout)["answer"]
    nodes = response["cluster"]["nodes"]
    assert len(nodes) == 2
    for node in nodes:
        assert {"python", "ray"} <= node["software"].keys()
        assert node["round_trip_ms"] > 0
        assert abs(node["clock_offset_ms"]) < 1000 + node["round_trip_ms"]  # as far as it is known
        assert node["harness"]["git_commit"]
    reported = [row["text"] for row in response["findings"] if row["rule"] == "machine/node"]
    assert all("clock " in text and "round trip " in text for text in reported)


def test_more_cores_than_the_nodes_offer_are_refused(cluster: TwoNodes, run_main: RunMain, tmp_path: Path) -> None:
    finished = run_main(*arguments("Offline", tmp_path / "run", "--cluster", cluster.address, "--replicas", 9))
    assert finished.code == ExitCode.REFUSED
    assert "offers Ray 4 CPU, but 5 replicas on this node need 5" in finished.stderr


# The last test here, because it leaves no cluster.
@pytest.mark.parametrize(
    ("part", "lost"),
    [
        ("gcs_server", 2),
        ("raylet", 1),
        pytest.param("gcs_server, and starts anew", 1, marks=pytest.mark.long),
    ],
)
def test_a_killed_head_ends_the_run(
    part: str, lost: int, nodes: SharedNodes, cluster: TwoNodes, start_main: StartMain, tmp_path: Path
) -> None:
    try:
        started = start_run(cluster, start_main, tmp_path / "run")
        family = [*cluster.keepers(), *cluster.replicas()]
        assert len(family) == 4
        if part == "gcs_server, and starts anew":
            cluster.renew_gcs()
        else:
            cluster.kill_head(part)
        manifest = check_failed(started.wait(), tmp_path / "run", ExitCode.FAILED, "replica 0 (")
        for number, address in enumerate((HEAD, SECOND)[:lost]):
            named = rf"replica {number} \(all cores, host \S+ \({re.escape(address)}\)\)"
            assert re.search(named, manifest.error["message"])
        until(lambda: not any(map(is_running, family)), "the end of all processes")
    finally:
        nodes.shutdown()
