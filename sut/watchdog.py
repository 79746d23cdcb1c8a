"""The watchdog detects stalled runs, without reporting slow machines."""

import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import psutil

from runs.errors import ExecutionError, StalledError
from runs.processes.age import processor_s
from sut.engine import Engine
from sut.loadgen_sut import LoadgenSut

# Steps take long on a slow machine, so the limit grows with the longest pause from which the engine recovered.
GAP_FACTOR = 5.0

WORKING_SHARE = 0.12  # share of one core; an idle vLLM on CPUs used 0.06
POLL_S = 2.0
# Factor of the limit while a CPU engine computes without output: it may be in one long step (a large prefill on a slow
# machine), or in an endless loop.
WORKING_FACTOR = 30.0


class Watchdog:
    """A counter of the time in which queries wait without progress.

    Args:
        limit_s: length of a stall that ends the run. If the engine recovered
            from longer pauses than a fifth of it, the limit is five times the longest pause.
        gap_factor: the factor five; 0 for a constant limit.
        now_s: monotonic clock.
    """

    def __init__(
        self, limit_s: float, gap_factor: float = GAP_FACTOR, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._now_s = now_s
        self._limit_s = limit_s
        self._gap_factor = gap_factor
        self._longest_gap_s = 0.0
        self.waited_s = 0.0
        self._state: tuple[int, ...] = ()
        self._own_work_s = 0.0
        self._last_poll = now_s()

    @property
    def allowed_s(self) -> float:
        return max(self._limit_s, self._gap_factor * self._longest_gap_s)

    def stalled_for(self, waiting: bool, *state: int, own_work_s: float = 0.0) -> float | None:
        """Update the counter; call this at least every second.

        Args:
            waiting: whether a query is outstanding.
            state: numbers, at least one of which changes with every progress.
            own_work_s: time so far in which the harness itself prevented progress; it does not count as waiting.

        Returns:
            The length of the stall in seconds if it exceeds the limit, otherwise None.
        """
        now = self._now_s()
        # If the machine was suspended, many short intervals become one long interval, which counts as one second.
        passed = min(now - self._last_poll, 1.0)
        self._last_poll = now
        own_work, self._own_work_s = own_work_s - self._own_work_s, own_work_s
        if not waiting or state != self._state:
            self._longest_gap_s = max(self._longest_gap_s, self.waited_s)
            self.waited_s = 0.0
            self._state = state
            return None
        self.waited_s += max(0.0, passed - own_work)
        return self.waited_s if self.waited_s > self.allowed_s else None


def engine_is_working(sleep: Callable[[float], None] = time.sleep) -> bool:
    """Return whether this process or its descendants use the processor, measured over two seconds.

    Valid for engines on CPUs only: processes that wait for a GPU may use a core.
    """
    before_s = process_tree_cpu_s()
    sleep(POLL_S)
    return process_tree_cpu_s() - before_s > WORKING_SHARE * POLL_S


def process_tree_cpu_s() -> float:
    """Return the processor time of this process and its descendants so far."""
    run = psutil.Process()
    return processor_s((run, *run.children(recursive=True)))


@dataclass(eq=False)
class EngineWatch:
    """The watchdog of the engine while LoadGen runs.

    Only output of the engine counts as progress, not queries that LoadGen issues. The time in which the loop hands over
    queries does not count as a stall.
    """

    engine: Engine
    sut: LoadgenSut
    limit_s: float  # limit_s and now_s: see `Watchdog`
    _: KW_ONLY
    # True if the engine computes on the cores of this host. Then CPU time shows that a long step is in progress. On an
    # accelerator, `limit_s` applies unchanged.
    on_cpu: bool
    is_working: Callable[[], bool] = engine_is_working
    now_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._watchdog = Watchdog(self.limit_s, now_s=self.now_s)

    def poll(self) -> None:
        """Check the engine; call this at least every second.

        Raises:
            ExecutionError: If the engine is dead or has stalled (StalledError).
        """
        self.engine.check_alive()
        sut = self.sut
        stalled_s = self._watchdog.stalled_for(
            sut.outstanding > 0, self.engine.activity(), sut.completed, own_work_s=sut.handing_over_s
        )
        if stalled_s is None or (self.on_cpu and self._may_still_compute(stalled_s)):
            return
        raise StalledError(
            f"watchdog: the engine made no progress for {stalled_s:.0f} s; "
            f"{sut.outstanding} of {sut.issued} queries are open",
            "read engine.log; if the engine is slow but working, raise --stall-timeout-s",
        )

    def _may_still_compute(self, stalled_s: float) -> bool:
        return stalled_s < WORKING_FACTOR * self._watchdog.allowed_s and self.is_working()


class WarmUpWatch:
    """The watchdog of the engine before LoadGen runs, when the engine may compile for its first queries.

    Args:
        limit_s: limit during a run; the limit here is `WORKING_FACTOR` times as long.
        now_s: see `Watchdog`.
    """

    def __init__(self, engine: Engine, limit_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._watchdog = Watchdog(WORKING_FACTOR * limit_s, now_s=now_s)

    def poll(self) -> None:
        """Check the engine; call this at least every second.

        Raises:
            ExecutionError: If the engine is dead or has stalled.
        """
        self._engine.check_alive()
        stalled_s = self._watchdog.stalled_for(True, self._engine.activity())
        if stalled_s is not None:
            raise ExecutionError(
                f"the engine made no progress on its first queries for {stalled_s:.0f} s",
                f"read engine.log; if the engine is slow but working, raise --stall-timeout-s (here "
                f"{WORKING_FACTOR:.0f} times that)",
            )
