"""A real Ray cluster of two nodes on this host."""

import os
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import psutil
import pytest

from tests.support.runs.run_commands import is_running

HEAD, SECOND = "127.0.0.2", "127.0.0.3"  # Ray does not accept 127.0.0.1 as address of a node
STARTS = 3  # attempts to start a cluster: Ray's limit of 30 s per node is short on a busy host
# Asked without an import, because each test process that collects tests would import Ray.
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (docs/parallel.md)")


class TwoNodes:
    """A cluster on this host, whose nodes have one core each if the host has two.

    Args:
        gpus: Number of GPUs of each node, which Ray does not check.
    """

    def __init__(self, gpus: int = 0) -> None:
        from ray import cluster_utils

        self._options = {"num_cpus": 4, "include_dashboard": False, **({"num_gpus": gpus} if gpus else {})}
        self._cores = sorted(os.sched_getaffinity(0))
        for left in reversed(range(STARTS)):
            self._cluster = cluster_utils.Cluster()
            try:
                self._on(0, lambda: self._cluster.add_node(**self._options, node_ip_address=HEAD))
                self.add()
                break
            except Exception:  # Ray raises any exception
                self._cluster.shutdown()
                if not left:
                    raise
        self.address = str(self._cluster.address)

    def add(self) -> None:
        """Add the second node."""
        self._second = self._on(1, lambda: self._cluster.add_node(**self._options, node_ip_address=SECOND))

    def _on(self, place: int, start: Callable[[], Any]) -> Any:
        """Start a process that keeps to the core."""
        os.sched_setaffinity(0, {self._cores[place % len(self._cores)]})
        try:
            return start()
        finally:
            os.sched_setaffinity(0, self._cores)

    def shutdown(self) -> None:
        self._cluster.shutdown()

    def raylets(self) -> list[psutil.Process]:
        """Return the raylets of the head and of the second node."""
        nodes = (self._cluster.head_node, self._second)
        return [psutil.Process(_process(node, "raylet").pid) for node in nodes]

    def kill_second_raylet(self) -> None:
        _process(self._second, "raylet").kill()
        _process(self._second, "raylet").wait()

    def kill_head(self, part: str) -> None:
        """Kill the raylet or the gcs_server of the head. The cluster then responds to no request."""
        self._cluster.global_state.disconnect()  # Ray ends processes that miss it for a minute, and this process, too
        _process(self._cluster.head_node, part).kill()

    def renew_gcs(self) -> None:
        """Kill the gcs_server of the head and start another one, which knows no earlier state."""
        self._cluster.global_state.disconnect()
        self._cluster.head_node.kill_gcs_server()
        self._cluster.head_node.start_gcs_server()

    def keepers(self) -> list[psutil.Process]:
        """Return the actors that have a replica each; those of the head first."""
        children = [child for raylet in self.raylets() for child in raylet.children()]
        return [child for child in children if is_running(child, "ray::ReplicaKeeper")]

    def replicas(self) -> list[psutil.Process]:
        """Return the replicas, in the same order."""
        children = [child for keeper in self.keepers() for child in keeper.children()]
        return [child for child in children if is_running(child, "sut.replicas.replica")]

    def left(self) -> list[str]:
        """Return the objects of any run that Ray still has."""
        state = self._cluster.global_state
        actors = [str(row) for row in state.actor_table(None).values() if row["State"] != "DEAD"]
        groups = [str(row) for row in state.placement_group_table().values() if row["state"] != "REMOVED"]
        return actors + groups

    def bundles(self) -> list[list[dict[str, float]]]:
        """Return the bundles of each placement group, also of removed groups."""
        return [list(row["bundles"].values()) for row in self._cluster.global_state.placement_group_table().values()]

    def renew_second(self) -> None:
        """Start the second node again, after its raylet was killed."""
        self._cluster.remove_node(self._second, allow_graceful=False)
        self.add()


class SharedNodes:
    """A cluster for multiple tests: started for the first one, and started again after its end."""

    def __init__(self) -> None:
        self._nodes: TwoNodes | None = None

    def running(self) -> TwoNodes:
        self._nodes = self._nodes or TwoNodes()
        return self._nodes

    def shutdown(self) -> None:
        if self._nodes is not None:
            self._nodes.shutdown()
            self._nodes = None


def _process(node: Any, part: str) -> "subprocess.Popen[bytes]":
    process: subprocess.Popen[bytes] = node.all_processes[part][0].process
    return process
