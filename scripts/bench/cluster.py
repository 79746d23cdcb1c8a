"""(n) Two replicas on two nodes of a Ray cluster, both on this machine, against two local ones."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qsl.embedded.articles import bundled_dataset
from runs.errors import SetupError

from .report import BenchPart, at_least
from .sizes import Sizes
from .tools.legs import offline_leg
from .tools.models import TINY, make_llama

HEAD, SECOND = "127.0.0.2", "127.0.0.3"  # Ray takes 127.0.0.1 for no address of a node
STARTS = 3  # of a cluster: Ray gives each node half a minute, which a busy machine may not keep


class TwoNodes:
    """A cluster on this machine, whose nodes have a core each, so far as there are two.

    Args:
        gpus: that each is said to have; Ray takes the number on trust.

    Raises:
        SetupError: Ray is not installed.
    """

    def __init__(self, gpus: int = 0) -> None:
        try:
            from ray import cluster_utils
        except ImportError as error:
            raise SetupError(f"there is no Ray: {error}", "pip install '.[ray]'") from error
        self._options = {"num_cpus": 4, "include_dashboard": False, **({"num_gpus": gpus} if gpus else {})}
        self._cores = sorted(os.sched_getaffinity(0))
        for left in reversed(range(STARTS)):
            self._cluster = cluster_utils.Cluster()
            try:
                self._on(0, lambda: self._cluster.add_node(**self._options, node_ip_address=HEAD))
                self.add()
                break
            except Exception:  # Ray raises whatever it likes
                self._cluster.shutdown()
                if not left:
                    raise
        self.address = str(self._cluster.address)

    def add(self) -> None:
        """The second node."""
        self._second = self._on(1, lambda: self._cluster.add_node(**self._options, node_ip_address=SECOND))

    def _on(self, place: int, start: Callable[[], Any]) -> Any:
        """What is started keeps to the core."""
        os.sched_setaffinity(0, {self._cores[place % len(self._cores)]})
        try:
            return start()
        finally:
            os.sched_setaffinity(0, self._cores)

    def shutdown(self) -> None:
        self._cluster.shutdown()


def run(work: Path, sizes: Sizes) -> BenchPart:
    """Offline legs of T, both sides in turns."""
    model = make_llama(work / "model", TINY)
    dataset = bundled_dataset(str(model))
    return measure_nodes(work, sizes, {"vllm": True, "model_path": str(model), "dataset_path": str(dataset)})


def measure_nodes(work: Path, sizes: Sizes, options: dict[str, Any]) -> BenchPart:
    """The same, of an engine by its options."""
    part = BenchPart("n", "replicas on two Ray nodes of this machine against local ones")
    local_options = {**options, "replicas": 2}
    local: list[float] = []
    ray: list[float] = []
    for repeat in range(sizes.repeats):
        local.append(offline_leg(work / f"local-{repeat}", local_options, sizes.cluster_samples).rate)
        nodes = TwoNodes()
        try:
            on_nodes = {**local_options, "cluster": nodes.address}
            ray.append(offline_leg(work / f"ray-{repeat}", on_nodes, sizes.cluster_samples).rate)
        finally:
            nodes.shutdown()
    ours, theirs = part.add("T, Ray", "samples/s", ray), part.add("T, local", "samples/s", local)
    part.add_ratio("Ray ÷ local", ours, theirs, at_least(0.97))
    part.notes.append(
        f"{sizes.cluster_samples} samples; each replica has a core of its own, which Ray's processes (two raylets, the "
        "head's, a driver and two actors) share; there are none while a local leg runs"
    )
    return part
