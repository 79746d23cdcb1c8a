"""What the process that has a leg's replicas by Ray tells of the cluster; Ray is a stand-in."""

import io
import threading
from typing import Any

from sut.replicas.cluster import LaunchEvent, LaunchOrder
from sut.replicas.cluster_process import Driver
from tests.support.legs import until


class Ray:
    """Three nodes, of which one died."""

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": name, "Alive": name != "b"} for name in "abc"]


def test_a_node_that_died_ends_its_replicas_though_their_actors_say_nothing() -> None:
    lines = io.StringIO()
    order = LaunchOrder(address="", specs=[{}] * 4, nodes=["a", "b", "c", "gone"], labels=[""] * 4)
    driver = Driver(Ray(), order, lines)
    beat = threading.Thread(target=driver._beat)
    beat.start()
    until(lambda: lines.getvalue().count("\n") >= 3, "what it tells")
    driver.over.set()
    beat.join()
    told = [LaunchEvent.model_validate_json(line) for line in lines.getvalue().splitlines()[:3]]
    assert told[0] == LaunchEvent()  # the head answers
    assert [(one.replica, one.ended) for one in told[1:]] == [
        (number, "with its node, which Ray counts as dead") for number in (1, 3)
    ]
