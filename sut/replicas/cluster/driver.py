"""Holds the replicas of one leg on a Ray cluster, `python -m sut.replicas.cluster.driver`.

A `LaunchOrder` comes on the standard input, which stays open while the leg lives; lines of `LaunchEvent` go out. What
the replicas print comes by Ray and goes to the standard error. Actors and placement group are this process's, so that
Ray ends them however it ends.
"""

import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import IO, Any

import msgspec

from runs.errors import HarnessError, SetupError, error_record
from sut.replicas.cluster.cluster import LaunchEvent, LaunchOrder
from sut.replicas.cluster.survey import bundle, connected, last_words, passed_on

PLACE_TIMEOUT_S = 60.0  # others may have what the replicas need
LOOK_S = 0.5
BEAT_S = 1.0
CALLS_PER_S = 100  # at most; Ray takes about a millisecond of processor time for each
START_S = 300.0  # for Ray to start an actor's process, and for that to import the engine's kind
SILENT_S = 12.0  # an actor that has not answered for so long is stopped or out of reach
END_S = 5.0


@dataclass(eq=False)
class Driver:
    """The replicas of one leg."""

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
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        group = self._place()
        try:
            self._launch(group)
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

    def _place(self) -> Any:
        bundles = [bundle(len(spec["devices"]), len(spec["cores"])) for spec in self.order.specs]
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

    def _launch(self, group: Any) -> None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        from sut.replicas.cluster.actors import ReplicaKeeper  # which needs Ray

        keeper = self.ray.remote(ReplicaKeeper)
        for index, (spec, label) in enumerate(zip(self.order.specs, self.order.labels, strict=True)):
            needs = bundle(len(spec["devices"]), len(spec["cores"]))
            options = keeper.options(
                num_cpus=needs["CPU"],
                num_gpus=needs.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, index),
            )
            actor = options.remote(label, list(passed_on()), time_zone())
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
    """Hold the replicas that the standard input orders."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    order = LaunchOrder.model_validate_json(sys.stdin.readline())
    try:
        with connected(order.address) as ray:
            driver = Driver(ray, order, lines)

            def end_with_the_leg() -> None:
                while sys.stdin.read(1):
                    pass
                driver.over.set()

            threading.Thread(target=end_with_the_leg, name="leg", daemon=True).start()
            driver.run()
    except HarnessError as error:
        print(LaunchEvent(trouble=error_record(error)).model_dump_json(), file=lines, flush=True)


if __name__ == "__main__":
    main()
