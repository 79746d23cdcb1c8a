"""(k) Very many replicas: what grows with their number in the leg's process, and what that process can carry."""

import time
from pathlib import Path
from typing import Any

from sut.replicas.routing import DEFAULT_ROUTING, Routing

from .null_run import PROMPT_IDS, NullSpec, null_run
from .report import Figure, Part
from .sizes import Sizes

SERVER_QPS = 1_340.0
ROUTED = (8, 72, 512)  # replicas of which the router alone is measured
ROUTED_QUERIES = 20_000
OPEN_A_REPLICA = 200
CORE_US = 1e6
QPS_A_DEVICE = 168.0  # a MI355X in MLPerf Inference v6.1: 171,114 tokens/s of eight, 128 a query


class _Query:
    """As much of a request as the router looks at."""

    prompt_ids = PROMPT_IDS


def run(work: Path, sizes: Sizes) -> Part:
    """Dummy replicas as far as this machine goes, the router alone for more."""
    part = Part("k", "many replicas: dummy ones as far as two cores go, and what the leg's process can carry")
    cost: dict[str, Figure] = {}
    for count in sizes.many_replicas:
        offline: dict[str, Any] = {"min_query_count": sizes.capacity_samples}
        server = {"scenario": "Server", "target_qps": SERVER_QPS, "min_duration_ms": int(sizes.null_seconds * 1e3)}
        for mode, settings in (("Offline", offline), (f"Server {SERVER_QPS:,.0f} qps", server)):
            spec = NullSpec(str(work / f"{mode.split()[0]}-{count}"), replicas=count, kind="dummy", **settings)
            _, facts = null_run(spec)
            used = [facts["cpu_s"] / facts["samples"] * 1e6]
            cost[spec.scenario] = part.add(f"{count} replicas, {mode}: leg's process, a sample", "µs", used)
        part.add(f"{count} replicas: start of all", "s", [facts["start_s"]])
        part.add(f"{count} replicas: leg's process, idle, of a core", "%", [100 * facts["idle_share"]])
        part.add(f"{count} replicas: leg's memory", "GB", [facts["peak_memory_bytes"] / 1e9])
        part.add(f"{count} replicas: leg's open files", "", [facts["open_files"]])
    for count in ROUTED:
        part.add(f"router, {count} replicas: a query", "µs", [_routed_us(count) for _ in range(sizes.repeats)])
    for scenario, figure in cost.items():
        most = CORE_US / figure.median
        part.add(f"{scenario}: a core's worth of queries", "queries/s", [most])
        part.add(f"{scenario}: devices that this feeds, at {QPS_A_DEVICE:g} queries/s each", "", [most / QPS_A_DEVICE])
    part.notes.append(
        "the leg's process has one event loop and LoadGen's thread: what it carries is bounded by a core's worth of "
        "its CPU time, most of it Python's. Start: all replicas of this machine's cores at once; on machines of their "
        "own they start beside each other."
    )
    return part


def _routed_us(replicas: int) -> float:
    """The router's own time for a query, from its choice to its answer, with many open."""
    routing = Routing(DEFAULT_ROUTING, replicas)
    query: Any = _Query()
    opened = [(tag, routing.choose(tag, query)) for tag in range(OPEN_A_REPLICA * replicas)]
    began = time.perf_counter()
    for number in range(ROUTED_QUERIES):
        tag, replica = opened[number % len(opened)]
        routing.first_token(replica, tag)
        routing.answered(replica, tag)
        opened[number % len(opened)] = (tag, routing.choose(tag, query))
    return (time.perf_counter() - began) / ROUTED_QUERIES * 1e6
