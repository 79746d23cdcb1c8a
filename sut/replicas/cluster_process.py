"""A process that uses Ray, `python -m sut.replicas.cluster_process look|launch`.

To look, it is given a `SurveyRequest` on the standard input; the last line of its output is a `Survey`. To launch, it
is given a `LaunchOrder`, and the standard input stays open while the leg lives; lines of `LaunchEvent` go out. Actors
and placement group are this process's, so that Ray ends them however it ends. What the replicas print comes by Ray and
goes to the standard error.
"""

import contextlib
import json
import logging
import os
import socket
import socketserver
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import msgspec

from runs.environment import harness_facts, variables
from runs.errors import HarnessError, SetupError, error_of, error_record
from sut.engine_kind import PlannedReplica
from sut.replicas.cluster import TIME_BYTES, LaunchEvent, LaunchOrder, NodeFacts, PlanRequest, Survey, SurveyRequest

# Variables of the user that mean the same on every node, and are set there too. The others are the node's own.
PASSED_ON = ("VLLM_", "NCCL_", "GLOO_", "UCX_", "OMP_", "KMP_", "MALLOC_", "TORCH_")
REACH_TIMEOUT_S = 5.0
SAID_LENGTH = 300
ANSWER_TIMEOUT_S = 240.0  # a node may have to import vLLM from a slow disk; on a busy machine 90 s were too short

PLACE_TIMEOUT_S = 60.0  # others may have what the replicas need
LOOK_S = 0.5
BEAT_S = 1.0
CALLS_PER_S = 100  # at most; Ray takes about a millisecond of processor time for each
START_S = 300.0  # for Ray to start an actor's process, and for that to import the engine's kind
SILENT_S = 12.0  # an actor that has not answered for so long is stopped or out of reach
END_S = 5.0


def passed_on() -> dict[str, str]:
    """The variables of this process that a leg's processes on all nodes are given; Ray shows them to whoever asks."""
    return variables(PASSED_ON)


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
        install = "install it: `.venv/bin/pip install ray==2.60.0` (docs/parallel.md)"
        raise SetupError(f"--cluster {address} needs Ray: {error}", install) from error
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


def last_words(error: Exception) -> str:
    """The last line of an error of Ray's: what comes before are names, or the course of calls elsewhere."""
    return textwrap.shorten(str(error).strip().rpartition("\n")[2], SAID_LENGTH) or type(error).__name__


def bundle(devices: int, cores: int) -> dict[str, int]:
    """What one replica takes of a node, in Ray's words."""
    return {"GPU": devices, "CPU": 1} if devices else {"CPU": max(1, cores)}


# A look at the nodes -------------------------------------------------------------------------------------------------


class Nodes:
    """The living nodes, this machine's first, with a probe on each."""

    def __init__(self, ray: Any) -> None:
        from sut.replicas.cluster_actors import NodeProbe  # which needs Ray

        this_node = ray.get_runtime_context().get_node_id()
        alive = [node for node in ray.nodes() if node["Alive"]]
        alive.sort(key=lambda node: (node["NodeID"] != this_node, node["NodeManagerAddress"], node["NodeID"]))
        probe = ray.remote(NodeProbe)
        self._ray = ray
        self._alive = alive
        self._probes = [
            probe.options(num_cpus=0, label_selector={"ray.io/node-id": node["NodeID"]}).remote() for node in alive
        ]

    def facts(self, listen_on: str) -> list[NodeFacts]:
        """Of each node; clocks and ways are measured to an address of this machine."""
        server = socketserver.ThreadingTCPServer((listen_on, 0), _Clock)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told = self.ask("facts", dict.fromkeys(range(len(self._alive)), server.server_address))
        return [
            NodeFacts(
                id=node["NodeID"],
                address=node["NodeManagerAddress"],
                resources={name: node["Resources"].get(name, 0.0) for name in ("CPU", "GPU")},
                **told[number],
            )
            for number, node in enumerate(self._alive)
        ]

    def ask(self, method: str, questions: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """The answers of nodes, by number, all asked at once.

        Raises:
            SetupError: naming a node that does not answer.
        """
        calls = {number: getattr(self._probes[number], method).remote(*one) for number, one in questions.items()}
        answers = {}
        for number, call in calls.items():
            try:
                answers[number] = self._ray.get(call, timeout=ANSWER_TIMEOUT_S)
            except self._ray.exceptions.RayError as error:
                node = self._alive[number]
                raise SetupError(
                    f"node {node['NodeManagerHostname']} ({node['NodeManagerAddress']}) of the cluster cannot be "
                    f"asked: {last_words(error)}",
                    "every node needs this harness at the same path, in an environment like this one "
                    "(docs/parallel.md)",
                ) from error
        return answers


class _Clock(socketserver.StreamRequestHandler):
    """Tells whoever asks what time it is on this machine."""

    disable_nagle_algorithm = True

    def handle(self) -> None:
        while self.request.recv(1):
            self.request.sendall(time.time_ns().to_bytes(TIME_BYTES, "big"))


def look(question: SurveyRequest) -> Survey:
    """Ask all nodes at once.

    Raises:
        InputError, SetupError: naming the node, where one is to blame.
    """
    with connected(question.address) as ray:
        nodes, here = Nodes(ray), ray.util.get_node_ip_address()
        facts = nodes.facts(here)
        planned = [] if question.wanted is None else _planned(nodes, facts, question.wanted)
        address = ray.get_runtime_context().gcs_address
        return Survey(address=address, listen_on=here, nodes=facts, planned=planned)


def _planned(nodes: Nodes, facts: list[NodeFacts], wanted: PlanRequest) -> list[PlannedReplica]:
    # In a cluster with devices, a node without any (often the head) computes nothing.
    kind = "GPU" if any(node.resources["GPU"] for node in facts) else "CPU"
    computing = [number for number, node in enumerate(facts) if node.resources[kind] >= 1]
    if not computing:
        raise SetupError("no node of the cluster offers Ray a core or a device", "see `main.py doctor --cluster`")
    ours = harness_facts()
    for node in (facts[number] for number in computing):
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
    fitting = _plans(nodes, facts, wanted, dict.fromkeys(computing))
    if wanted.count is None:
        return fitting
    fit = {number: sum(one.place.node == number for one in fitting) for number in computing}
    return _plans(nodes, facts, wanted, dict(shares(fit, wanted.count)))


def shares(fit: dict[int, int], count: int) -> dict[int, int]:
    """Replicas for each node: `count` in proportion to what fits, the first nodes first."""
    given = dict.fromkeys(fit, 0)
    for _ in range(count):
        given[min(fit, key=lambda node: (given[node] / fit[node], node))] += 1
    return {node: share for node, share in given.items() if share}


def _plans(
    nodes: Nodes, facts: list[NodeFacts], wanted: PlanRequest, counts: dict[int, int | None]
) -> list[PlannedReplica]:
    planned: list[PlannedReplica] = []
    questions = {number: (wanted.model_copy(update={"count": count}),) for number, count in counts.items()}
    for number, told in nodes.ask("plan", questions).items():
        node = facts[number]
        if isinstance(told, dict):
            raise error_of(told, f"node {node.name}")
        needs = [bundle(len(one.place.devices), len(one.place.cores)) for one in told]
        for kind in ("GPU", "CPU"):
            need = sum(one.get(kind, 0) for one in needs)
            if need > node.resources[kind]:
                raise SetupError(
                    f"node {node.name} offers Ray {node.resources[kind]:g} {kind}, {len(needs)} replicas there need "
                    f"{need}",
                    "ask for fewer --replicas, or start Ray there with all that the node has",
                )
        planned += [PlannedReplica(one.place.model_copy(update={"node": number}), one.engine) for one in told]
    return planned


# The replicas of one leg ---------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Driver:
    """Starts the replicas of one leg, and watches and ends them."""

    ray: Any  # the module, connected
    order: LaunchOrder
    lines: IO[str]  # where to tell of it

    def __post_init__(self) -> None:
        self._actors: list[Any] = []
        self._asked: dict[Any, int] = {}  # calls that are not answered yet, and whose they are
        self._until_s: dict[int, float] = {}  # by when a replica's actor has to answer
        self.over = threading.Event()

    def run(self) -> None:
        """Start the replicas and watch them until the leg is over.

        Raises:
            SetupError: there is no room for them.
        """
        for work in (self._beat, self._end_with_the_leg):
            threading.Thread(target=work, daemon=True).start()
        bundles = [bundle(len(spec["devices"]), len(spec["cores"])) for spec in self.order.specs]
        group = self._place(bundles)
        try:
            self._launch(group, bundles)
            self._watch()
        finally:
            self._end(group)

    def _beat(self) -> None:
        """Tell that Ray's head answers, as long as it does, and of nodes that are gone: what waits for their actors to
        start waits for ever. What is asked of a dead head hangs for a minute."""
        while not self.over.wait(BEAT_S):
            alive = {node["NodeID"] for node in self.ray.nodes() if node["Alive"]}
            self._tell(LaunchEvent())
            for index, node in enumerate(self.order.nodes):
                if node not in alive:
                    self._tell(LaunchEvent(replica=index, ended="with its node, which Ray counts as dead"))

    def _end_with_the_leg(self) -> None:
        os.read(0, 1)  # until it is closed: nothing more is written
        self.over.set()

    def _place(self, bundles: list[dict[str, int]]) -> Any:
        selectors = [{"ray.io/node-id": node} for node in self.order.nodes]
        group = self.ray.util.placement_group(bundles, bundle_label_selector=selectors)
        end_s = time.monotonic() + PLACE_TIMEOUT_S
        while not group.wait(1) and not self.over.is_set():
            if time.monotonic() > end_s:
                self.ray.util.remove_placement_group(group)
                raise SetupError(
                    f"the cluster has no room for {len(bundles)} replicas: they wait for {PLACE_TIMEOUT_S:.0f} s",
                    "see `ray status`: something else has its cores or devices",
                )
        return group

    def _launch(self, group: Any, bundles: list[dict[str, int]]) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        from sut.replicas.cluster_actors import ReplicaKeeper  # which needs Ray

        keeper = self.ray.remote(ReplicaKeeper)
        for index, (spec, needs) in enumerate(zip(self.order.specs, bundles, strict=True)):
            options = keeper.options(
                num_cpus=needs["CPU"],
                num_gpus=needs.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, index),
            )
            actor = options.remote(self.order.labels[index], list(passed_on()), time_zone())
            self._actors.append(actor)
            self._asked[actor.launch.remote(msgspec.json.encode(spec))] = index
            self._until_s[index] = time.monotonic() + START_S

    def _watch(self) -> None:
        """Hear how each replica is, and ask again."""
        while not self.over.wait(max(LOOK_S, len(self._actors) / CALLS_PER_S)):
            heard: list[Any] = []
            if self._asked:
                heard, _ = self.ray.wait(list(self._asked), num_returns=len(self._asked), timeout=LOOK_S)
            for call in heard:
                self._hear(self._asked.pop(call), call)
            now_s = time.monotonic()
            for call, index in list(self._asked.items()):
                if now_s > self._until_s[index]:
                    del self._asked[call]
                    self._tell(LaunchEvent(replica=index, ended="or its Ray actor did: it sends no heartbeat"))

    def _hear(self, index: int, call: Any) -> None:
        errors = self.ray.exceptions
        try:
            answer = self.ray.get(call)
        except errors.ActorUnavailableError:
            pass  # for the moment; asked again until it has been silent for too long
        except errors.RayError as error:
            self._tell(LaunchEvent(replica=index, ended=f"with its Ray actor: {last_words(error)}"))
            return
        else:
            self._until_s[index] = time.monotonic() + SILENT_S
            if isinstance(answer, str):
                self._tell(LaunchEvent(replica=index, ended=answer))
                return
            if answer is not None:
                self._tell(LaunchEvent(replica=index, devices=answer))
        self._asked[self._actors[index].ended.remote()] = index

    def _tell(self, event: LaunchEvent) -> None:
        self.lines.write(event.model_dump_json() + "\n")  # at once: two threads tell
        self.lines.flush()

    def _end(self, group: Any) -> None:
        ends = [actor.end.remote() for actor in self._actors]
        if ends:
            self.ray.wait(ends, num_returns=len(ends), timeout=END_S)
        for actor in self._actors:
            self.ray.kill(actor)
        self.ray.util.remove_placement_group(group)


def time_zone() -> str:
    """This machine's as the variable TZ tells it anywhere [tzset(3)]: what is east has a minus."""
    minutes = time.localtime().tm_gmtoff // 60
    return f"<leg>{'-' if minutes > 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def main() -> None:
    """Do the job that the argument names and the standard input describes."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    message = sys.stdin.readline()
    try:
        if sys.argv[1] == "look":
            print(look(SurveyRequest.model_validate_json(message)).model_dump_json(), file=lines, flush=True)
        else:
            order = LaunchOrder.model_validate_json(message)
            with connected(order.address) as ray:
                Driver(ray, order, lines).run()
    except HarnessError as error:
        print(json.dumps({"trouble": error_record(error)}), file=lines, flush=True)


if __name__ == "__main__":
    main()
