"""What the process that starts a leg's replicas by Ray reports; Ray is a stand-in."""

from types import SimpleNamespace

from sut.replicas.cluster import LaunchEvent, LaunchOrder
from sut.replicas.cluster_process import report_dead_nodes


def test_a_node_that_died_ends_its_replicas_though_their_actors_never_answer() -> None:
    ray = SimpleNamespace(nodes=lambda: [{"NodeID": name, "Alive": name != "b"} for name in "abc"])
    order = LaunchOrder(address="", specs=[{}] * 4, nodes=["a", "b", "c", "gone"], labels=[""] * 4)
    events: list[LaunchEvent] = []
    report_dead_nodes(ray, order, events.append)
    dead = "with its node, which Ray counts as dead"
    assert events == [LaunchEvent(replica=number, ended=dead) for number in (1, 3)]
