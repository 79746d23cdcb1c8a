"""When a run counts as stalled; a slow machine never does."""

import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import psutil

from runs.errors import ExecutionError, StalledError
from runs.processes.age import processor_s
from sut.engine import Engine
from sut.loadgen_sut import LoadgenSut

# Engine steps on a slow machine can take long: the limit follows the longest gap after which the engine went on.
GAP_FACTOR = 5.0

WORKING_SHARE = 0.12  # share of one core; an idle vLLM on CPUs used 0.06
POLL_S = 2.0
# A CPU engine that computes without a response may be in one long step (a big prefill on a slow machine), or may be
# spinning for ever: it is given this many times the ordinary limit.
WORKING_FACTOR = 30.0


class Watchdog:
    """Counts how long queries have been waiting without any progress.

    Args:
        limit_s: a stall this long ends the run, unless the engine recovered from gaps of more than a fifth of it; then
            five times the longest such gap.
        gap_factor: that five; 0 for a limit that never grows.
        now_s: a monotonic clock.
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
        """Look once; to be called at least every second.

        Args:
            waiting: whether any query is outstanding.
            state: numbers of which at least one changes whenever there is progress.
            own_work_s: so far, time in which nothing could move because of ourselves; it is not counted as waiting.

        Returns:
            The length of the stall in seconds once it is over the limit, else None.
        """
        now = self._now_s()
        # A machine that slept or was stopped makes one long look out of many short ones: it counts as one second.
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

    Means something for engines on CPUs only: with a GPU, processes that wait for it may spin.
    """
    before_s = process_tree_cpu_s()
    sleep(POLL_S)
    return process_tree_cpu_s() - before_s > WORKING_SHARE * POLL_S


def process_tree_cpu_s() -> float:
    """Processor time of this process and its descendants so far."""
    run = psutil.Process()
    return processor_s((run, *run.children(recursive=True)))


@dataclass(eq=False)
class EngineWatch:
    """Watches the engine while LoadGen runs.

    Only what comes out of the engine is progress, not the queries that LoadGen goes on issuing. The time in which the
    loop hands them over is no stall.
    """

    engine: Engine
    sut: LoadgenSut
    limit_s: float  # see `Watchdog`, also for now_s
    _: KW_ONLY
    # The engine computes on this machine's cores: its processor time shows whether it is in a long step. On an
    # accelerator nothing excuses a silent engine.
    on_cpu: bool
    is_working: Callable[[], bool] = engine_is_working
    now_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._watchdog = Watchdog(self.limit_s, now_s=self.now_s)

    def poll(self) -> None:
        """To be called at least every second.

        Raises:
            ExecutionError: the engine is dead; or, as a StalledError, has stalled.
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
            "see engine.log; if the engine is slow but working, raise --stall-timeout-s",
        )

    def _may_still_compute(self, stalled_s: float) -> bool:
        return stalled_s < WORKING_FACTOR * self._watchdog.allowed_s and self.is_working()


class WarmUpWatch:
    """Watches the engine before LoadGen runs, when it may compile for its first queries.

    Args:
        limit_s: of a run's queries; here the limit is `WORKING_FACTOR` of it.
        now_s: see `Watchdog`.
    """

    def __init__(self, engine: Engine, limit_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._watchdog = Watchdog(WORKING_FACTOR * limit_s, now_s=now_s)

    def poll(self) -> None:
        """To be called at least every second.

        Raises:
            ExecutionError: the engine is dead, or has stalled.
        """
        self._engine.check_alive()
        stalled_s = self._watchdog.stalled_for(True, self._engine.activity())
        if stalled_s is not None:
            raise ExecutionError(
                f"the engine made no progress on its first queries for {stalled_s:.0f} s",
                f"see engine.log; if the engine is slow but working, raise --stall-timeout-s (here "
                f"{WORKING_FACTOR:.0f} times that)",
            )
