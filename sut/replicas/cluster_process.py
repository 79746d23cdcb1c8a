"""A process that uses Ray, `python -m sut.replicas.cluster_process survey|launch`.

survey reads a `SurveyRequest` from the standard input; the last line of its output is a `Survey`. launch reads a
`LaunchOrder`, writes lines of `LaunchEvent`, and ends the replicas when its standard input is closed. Actors and
placement group belong to this process, so Ray ends them with this process. Ray forwards the replicas' output to the
standard error.
"""

import contextlib
import json
import logging
import os
import socket
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from runs.errors import HarnessError, SetupError, error_of, error_record
from runs.harness import PROGRAM, harness_facts
from runs.machine.environment import variables
from runs.processes.workers import ignore_signals
from sut.planned_replica import PlannedReplica
from sut.replicas.cluster import LaunchEvent, LaunchOrder, NodeFacts, PlanRequest, Survey, SurveyRequest

# User's variables that are valid on every node and are copied to them; other variables come from the node.
PASSED_ON = ("VLLM_", "NCCL_", "GLOO_", "UCX_", "OMP_", "KMP_", "MALLOC_", "TORCH_")
CONNECT_TIMEOUT_S = 5.0
MESSAGE_LENGTH = 300
RESPONSE_TIMEOUT_S = 240.0  # a node may have to import vLLM from a slow disk; on a busy machine 90 s were too short
CLOCK_READINGS = 20
PLACE_TIMEOUT_S = 60.0  # other jobs may occupy the resources at first
POLL_S = 0.5


def passed_on() -> dict[str, str]:
    """Return the environment variables for a run's processes on all nodes. Every user of the cluster can read them."""
    return variables(PASSED_ON)


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a cluster for the block, and yield the module `ray`.

    Args:
        address: HOST:PORT of the head, or auto for the cluster of which this machine is a node.

    Raises:
        SetupError: If Ray is not installed, or the cluster does not respond.
    """
    try:
        import ray
    except ImportError as error:
        install = "install Ray: `.venv/bin/pip install ray==2.60.0` (docs/parallel.md)"
        raise SetupError(f"--cluster {address} needs Ray: {error}", install) from error
    start = "start a cluster with `ray start --head`, and on the other machines `ray start --address=HEAD:6379`"
    if address != "auto":
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            raise SetupError(f"--cluster {address}: no cluster responds ({error})", start) from error
    try:
        ray.init(address=address, logging_level=logging.ERROR, runtime_env={"env_vars": passed_on()})
    except Exception as error:  # Ray documents no type
        raise SetupError(
            f"--cluster {address}: {textwrap.shorten(str(error), MESSAGE_LENGTH)}",
            f"{start}; this machine must be a node of the cluster",
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def last_line(error: Exception) -> str:
    """Return the last line of a Ray error. The earlier lines are names or a traceback."""
    return textwrap.shorten(str(error).strip().rpartition("\n")[2], MESSAGE_LENGTH) or type(error).__name__


def bundle(devices: int, cores: int) -> dict[str, int]:
    """Return the resources of a node that one replica takes, as Ray counts them."""
    return {"GPU": devices, "CPU": 1} if devices else {"CPU": max(1, cores)}


# Survey of the nodes -------------------------------------------------------------------------------------------------


class Nodes:
    """The living nodes, each with a probe; this machine's node is first."""

    def __init__(self, ray: Any) -> None:
        from sut.replicas.cluster_actors import NodeProbe  # needs Ray

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
        """Return the facts of each node, and whether it reaches an address of this machine."""
        with socket.create_server((listen_on, 0), backlog=1024) as server:
            facts = self.ask("facts", {number: server.getsockname() for number in range(len(self._alive))})
        return [
            NodeFacts(
                id=node["NodeID"],
                address=node["NodeManagerAddress"],
                resources={name: node["Resources"].get(name, 0.0) for name in ("CPU", "GPU")},
                clock_offset_ms=self._clock_offset_ms(number),
                **facts[number],
            )
            for number, node in enumerate(self._alive)
        ]

    def _clock_offset_ms(self, number: int) -> float:
        """Return how far the clock of a node is ahead of the clock of this machine, from the shortest of multiple "
        "calls."""
        readings = []
        for _ in range(CLOCK_READINGS):
            before_ns = time.time_ns()
            there_ns = self.ask("time_ns", {number: ()})[number]
            after_ns = time.time_ns()
            readings.append((after_ns - before_ns, there_ns - (before_ns + after_ns) / 2))
        return float(round(min(readings)[1] / 1e6, 3))

    def ask(self, method: str, questions: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call all nodes at once, and return their responses by number.

        Raises:
            SetupError: If a node does not respond.
        """
        calls = {
            number: getattr(self._probes[number], method).remote(*arguments) for number, arguments in questions.items()
        }
        responses = {}
        for number, call in calls.items():
            try:
                responses[number] = self._ray.get(call, timeout=RESPONSE_TIMEOUT_S)
            except self._ray.exceptions.RayError as error:
                node = self._alive[number]
                raise SetupError(
                    f"node {node['NodeManagerHostname']} ({node['NodeManagerAddress']}) of the cluster does not "
                    f"answer: {last_line(error)}",
                    "every node needs this harness at the same path, in an environment with the same packages "
                    "(docs/parallel.md)",
                ) from error
        return responses


def survey(request: SurveyRequest) -> Survey:
    """Survey all nodes at once.

    Raises:
        InputError, SetupError: If a node cannot take replicas; the error names the node.
    """
    with connected(request.address) as ray:
        nodes, here = Nodes(ray), ray.util.get_node_ip_address()
        facts = nodes.facts(here)
        planned = [] if request.wanted is None else _planned(nodes, facts, request.wanted)
        address = ray.get_runtime_context().gcs_address
        return Survey(address=address, listen_on=here, nodes=facts, planned=planned)


def _planned(nodes: Nodes, facts: list[NodeFacts], wanted: PlanRequest) -> list[PlannedReplica]:
    # In a cluster with devices, a node without devices (often the head) computes nothing.
    kind = "GPU" if any(node.resources["GPU"] for node in facts) else "CPU"
    computing = [number for number, node in enumerate(facts) if node.resources[kind] >= 1]
    if not computing:
        raise SetupError("no node of the cluster offers Ray a core or a device", f"see `{PROGRAM} doctor --cluster`")
    own_facts = harness_facts()
    for node in (facts[number] for number in computing):
        if node.unreachable is not None:
            raise SetupError(
                f"node {node.name} cannot reach this machine at the address that Ray reports: {node.unreachable}",
                "allow connections from this node (the run listens on a port that the system chooses)",
            )
        for name in ("version", "git_commit"):
            if node.harness[name] != own_facts[name]:
                raise SetupError(
                    f"node {node.name} has {name} {node.harness[name]} of this harness, but this machine has "
                    f"{own_facts[name]}",
                    "use the same checkout on every node",
                )
    fitting = _plans(nodes, facts, wanted, dict.fromkeys(computing))
    if wanted.count is None:
        return fitting
    fit = {number: sum(plan.place.node == number for plan in fitting) for number in computing}
    return _plans(nodes, facts, wanted, dict(replicas_by_node(fit, wanted.count)))


def replicas_by_node(fit: dict[int, int], count: int) -> dict[int, int]:
    """Return the number of replicas for each node: `count` in proportion to capacity, earlier nodes first."""
    assigned = dict.fromkeys(fit, 0)
    for _ in range(count):
        assigned[min(fit, key=lambda node: (assigned[node] / fit[node], node))] += 1
    return {node: share for node, share in assigned.items() if share}


def _plans(
    nodes: Nodes, facts: list[NodeFacts], wanted: PlanRequest, counts: dict[int, int | None]
) -> list[PlannedReplica]:
    planned: list[PlannedReplica] = []
    questions = {number: (wanted.model_copy(update={"count": count}),) for number, count in counts.items()}
    for number, plans in nodes.ask("plan", questions).items():
        node = facts[number]
        if isinstance(plans, dict):
            raise error_of(plans, f"node {node.name}")
        needs = [bundle(len(plan.place.devices), len(plan.place.cores)) for plan in plans]
        for kind in ("GPU", "CPU"):
            need = sum(resources.get(kind, 0) for resources in needs)
            if need > node.resources[kind]:
                raise SetupError(
                    f"node {node.name} offers Ray {node.resources[kind]:g} {kind}, but {len(needs)} replicas on this "
                    f"node need {need}",
                    "lower --replicas, or start Ray on that node with all its cores and devices",
                )
        planned += [PlannedReplica(plan.place.model_copy(update={"node": number}), plan.engine) for plan in plans]
    return planned


# The replicas of one run ---------------------------------------------------------------------------------------------


def launch(ray: Any, order: LaunchOrder, report: Callable[[LaunchEvent], None]) -> None:
    """Start the replicas of a run, report how each ends, and end them once the standard input is closed.

    Args:
        ray: connected module `ray`.

    Raises:
        SetupError: If the cluster has no capacity for the replicas.
    """
    over = threading.Event()

    def wait_for_the_end() -> None:
        os.read(0, 1)  # blocks until the standard input is closed
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    bundles = [bundle(len(spec["devices"]), len(spec["cores"])) for spec in order.specs]
    selectors = [{"ray.io/node-id": node} for node in order.nodes]
    group = ray.util.placement_group(bundles, bundle_label_selector=selectors)
    actors: list[Any] = []
    try:
        end_s = time.monotonic() + PLACE_TIMEOUT_S
        while not group.wait(POLL_S) and not over.is_set():
            report_dead_nodes(ray, order, report)
            if time.monotonic() > end_s:
                raise SetupError(
                    f"the cluster had no capacity for {len(bundles)} replicas within {PLACE_TIMEOUT_S:.0f} s",
                    "see `ray status`: other jobs use its cores or devices",
                )
        actors += _keepers(ray, order, group, bundles)
        calls = {
            actor.launch.remote(msgspec.json.encode(spec)): index
            for index, (actor, spec) in enumerate(zip(actors, order.specs, strict=True))
        }
        while not over.wait(POLL_S):
            done = ray.wait(list(calls), num_returns=len(calls), timeout=0)[0] if calls else []
            for call in done:
                index = calls.pop(call)
                event = _outcome(ray, call, index)
                report(event)
                if event.ended is None:
                    calls[actors[index].wait.remote()] = index
            report_dead_nodes(ray, order, report)
    finally:
        for actor in actors:
            ray.kill(actor)
        ray.util.remove_placement_group(group)


def _keepers(ray: Any, order: LaunchOrder, group: Any, bundles: list[dict[str, int]]) -> Iterator[Any]:
    """Yield an actor for each replica."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    from sut.replicas.cluster_actors import ReplicaKeeper  # needs Ray

    keeper = ray.remote(ReplicaKeeper)
    for index, needs in enumerate(bundles):
        strategy = PlacementGroupSchedulingStrategy(group, index)
        options = keeper.options(num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), scheduling_strategy=strategy)
        yield options.remote(order.labels[index], list(passed_on()), time_zone())


def _outcome(ray: Any, call: Any, index: int) -> LaunchEvent:
    """Return how a replica ended, by the finished call to its actor."""
    try:
        response = ray.get(call)
    except ray.exceptions.ActorUnavailableError:  # temporary: the call is repeated
        return LaunchEvent(replica=index)
    except ray.exceptions.RayError as error:
        return LaunchEvent(replica=index, ended=f"because its Ray actor ended: {last_line(error)}")
    if isinstance(response, str):
        return LaunchEvent(replica=index, ended=response)
    return LaunchEvent(replica=index, devices=response)


def report_dead_nodes(ray: Any, order: LaunchOrder, report: Callable[[LaunchEvent], None]) -> None:
    """Report the replicas of nodes that died: Ray waits forever for placement on such a node."""
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    for index, node in enumerate(order.nodes):
        if node not in alive:
            report(LaunchEvent(replica=index, ended="because Ray reports its node as dead"))


def time_zone() -> str:
    """Return this machine's time zone in the form of the variable TZ [tzset(3)]: east of Greenwich has a minus."""
    minutes = time.localtime().tm_gmtoff // 60
    return f"<run>{'-' if minutes > 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def main() -> None:
    """Run the job `survey` or `launch` that the standard input describes."""
    ignore_signals()
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    message = sys.stdin.readline()
    try:
        if sys.argv[1] == "survey":
            print(survey(SurveyRequest.model_validate_json(message)).model_dump_json(), file=lines, flush=True)
        else:
            order = LaunchOrder.model_validate_json(message)
            with connected(order.address) as ray:
                launch(ray, order, lambda event: print(event.model_dump_json(), file=lines, flush=True))
    except HarnessError as error:
        print(json.dumps({"trouble": error_record(error)}), file=lines, flush=True)


if __name__ == "__main__":
    main()
