"""A look at the nodes of a Ray cluster, `python -m sut.replicas.cluster.survey`: what they are, and what replicas there
would be started with. A `SurveyRequest` comes on the standard input, a `Survey` is the last line of the output."""

import contextlib
import logging
import os
import socket
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

from runs.environment import harness_facts, variables
from runs.errors import HarnessError, SetupError, error_of, error_record
from sut.replicas.cluster.cluster import TIME_BYTES, NodeFacts, PlanRequest, Survey, SurveyRequest
from sut.replicas.places import PlannedReplica

ANSWER_TIMEOUT_S = 240.0  # a node may have to import vLLM from a slow disk; on a busy machine 90 s were too short
# Variables of the user that mean the same on every node, and are set there too. The others are the node's own.
PASSED_ON = ("VLLM_", "NCCL_", "GLOO_", "UCX_", "OMP_", "KMP_", "MALLOC_", "TORCH_")
REACH_TIMEOUT_S = 5.0
SAID_LENGTH = 300
INSTALL = "install it: `.venv/bin/pip install ray==2.60.0` (docs/parallel.md)"


def passed_on() -> dict[str, str]:
    """The variables of this process that a leg's processes on all nodes are given; Ray shows them to whoever asks."""
    return variables(PASSED_ON)


def last_words(error: Exception) -> str:
    """The last line of an error of Ray's: what comes before are names, or the course of calls elsewhere."""
    return textwrap.shorten(str(error).strip().rpartition("\n")[2], SAID_LENGTH) or type(error).__name__


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Within: the module `ray`, connected.

    Args:
        address: HOST:PORT of the head, or auto for the cluster of which this machine is a node.

    Raises:
        SetupError: there is no Ray, or no such cluster.
    """
    try:
        import ray
    except ImportError as error:
        raise SetupError(f"--cluster {address} needs Ray: {error}", INSTALL) from error
    start = "start one with `ray start --head`, and on the other machines `ray start --address=HEAD:6379`"
    if address != "auto":
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), REACH_TIMEOUT_S).close()
        except OSError as error:
            raise SetupError(f"--cluster {address}: no cluster answers there ({error})", start) from error
    try:
        ray.init(address=address, logging_level=logging.ERROR, runtime_env={"env_vars": passed_on()})
    except Exception as error:  # Ray raises whatever it likes
        raise SetupError(
            f"--cluster {address}: {textwrap.shorten(str(error), SAID_LENGTH)}",
            f"{start}; this machine has to be a node of it",
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def look(question: SurveyRequest) -> Survey:
    """Ask all nodes at once.

    Raises:
        InputError, SetupError: naming the node, where one is to blame.
    """
    with connected(question.address) as ray:
        here = ray.util.get_node_ip_address()
        alive = [node for node in ray.nodes() if node["Alive"]]
        this_node = ray.get_runtime_context().get_node_id()
        alive.sort(key=lambda node: (node["NodeID"] != this_node, node["NodeManagerAddress"], node["NodeID"]))
        probes = _Probes(ray, alive)
        port = _tell_time(here)
        facts = probes.all("facts")
        clocks = probes.all("clock", here, port)
        nodes = [
            NodeFacts(
                id=node["NodeID"],
                address=node["NodeManagerAddress"],
                resources={name: node["Resources"].get(name, 0.0) for name in ("CPU", "GPU")},
                **told,
                **clock,
            )
            for node, told, clock in zip(alive, facts, clocks, strict=True)
        ]
        planned = [] if question.wanted is None else _planned(probes, nodes, question.wanted)
        address = ray.get_runtime_context().gcs_address
        return Survey(address=address, listen_on=here, nodes=nodes, planned=planned)


class _Probes:
    """A probe on each node."""

    def __init__(self, ray: Any, alive: list[dict[str, Any]]) -> None:
        from sut.replicas.cluster.actors import NodeProbe  # which needs Ray

        self._ray = ray
        self._names = [f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})" for node in alive]
        probe = ray.remote(NodeProbe)
        self._probes = [
            probe.options(num_cpus=0, label_selector={"ray.io/node-id": node["NodeID"]}).remote() for node in alive
        ]

    def all(self, method: str, *arguments: Any) -> list[Any]:
        """The answers of all nodes to one question."""
        return list(self.some(method, dict.fromkeys(range(len(self._probes)), arguments)).values())

    def some(self, method: str, arguments: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """The answers of the nodes with these numbers, each to a question of its own."""
        calls = {number: getattr(self._probes[number], method).remote(*one) for number, one in arguments.items()}
        return {number: self._answer(self._names[number], call) for number, call in calls.items()}

    def _answer(self, name: str, call: Any) -> Any:
        try:
            return self._ray.get(call, timeout=ANSWER_TIMEOUT_S)
        except self._ray.exceptions.RayError as error:
            raise SetupError(
                f"node {name} of the cluster cannot be asked: {last_words(error)}",
                "every node needs this harness at the same path, in an environment like this one (docs/parallel.md)",
            ) from error


def _tell_time(host: str) -> int:
    """Tell whoever asks at a port of this machine, which is returned, what time it is."""
    server = socket.create_server((host, 0))

    def answer(line: socket.socket) -> None:
        with line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while line.recv(1):
                line.sendall(time.time_ns().to_bytes(TIME_BYTES, "big"))

    def serve() -> None:
        while True:
            threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, name="time", daemon=True).start()
    return int(server.getsockname()[1])


def _planned(probes: _Probes, nodes: list[NodeFacts], wanted: PlanRequest) -> list[PlannedReplica]:
    computing = [number for number, node in enumerate(nodes) if _computes(node, nodes)]
    if not computing:
        raise SetupError("no node of the cluster offers Ray a core or a device", "see `main.py doctor --cluster`")
    ours = harness_facts()
    for number in computing:
        node = nodes[number]
        if node.unreachable is not None:
            raise SetupError(
                f"node {node.name} does not reach this machine at the address that Ray knows: {node.unreachable}",
                "let its connections in (the leg listens on a port that the system chooses)",
            )
        for name in ("version", "git_commit"):
            if node.harness[name] != ours[name]:
                raise SetupError(
                    f"node {node.name} has {name} {node.harness[name]} of this harness, this machine {ours[name]}",
                    "have the same checkout on every node",
                )
    fitting = _plans(probes, nodes, wanted, dict.fromkeys(computing))
    if wanted.count is None:
        return fitting
    fit = {number: sum(one.place.node == number for one in fitting) for number in computing}
    return _plans(probes, nodes, wanted, dict(shares(fit, wanted.count)))


def _computes(node: NodeFacts, nodes: list[NodeFacts]) -> bool:
    """Has it what the cluster computes on? In one with devices, a node without any (often the head) is none."""
    kind = "GPU" if any(other.resources["GPU"] for other in nodes) else "CPU"
    return node.resources[kind] >= 1


def shares(fit: dict[int, int], count: int) -> dict[int, int]:
    """Replicas for each node: `count` in proportion to what fits, the first nodes first."""
    given = dict.fromkeys(fit, 0)
    for _ in range(count):
        given[min(fit, key=lambda node: (given[node] / fit[node], node))] += 1
    return {node: share for node, share in given.items() if share}


def _plans(
    probes: _Probes, nodes: list[NodeFacts], wanted: PlanRequest, counts: dict[int, int | None]
) -> list[PlannedReplica]:
    planned: list[PlannedReplica] = []
    orders = {number: (wanted.model_copy(update={"count": count}),) for number, count in counts.items()}
    for number, told in probes.some("plan", orders).items():
        if isinstance(told, dict):
            raise error_of(told, f"node {nodes[number].name}")
        _refuse_too_many(nodes[number], told)
        planned += [PlannedReplica(one.place.model_copy(update={"node": number}), one.engine) for one in told]
    return planned


def _refuse_too_many(node: NodeFacts, planned: list[PlannedReplica]) -> None:
    needs = [bundle(len(one.place.devices), len(one.place.cores)) for one in planned]
    for kind in ("GPU", "CPU"):
        need = sum(one.get(kind, 0) for one in needs)
        if need > node.resources[kind]:
            raise SetupError(
                f"node {node.name} offers Ray {node.resources[kind]:g} {kind}, {len(needs)} replicas there need {need}",
                "ask for fewer --replicas, or start Ray there with all that the node has",
            )


def bundle(devices: int, cores: int) -> dict[str, int]:
    """What one replica takes of a node, in Ray's words."""
    return {"GPU": devices, "CPU": 1} if devices else {"CPU": max(1, cores)}


def main() -> None:
    """Answer the question on the standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        survey = look(SurveyRequest.model_validate_json(sys.stdin.readline()))
    except HarnessError as error:
        survey = Survey(trouble=error_record(error))
    print(survey.model_dump_json(), file=answers, flush=True)


if __name__ == "__main__":
    main()
