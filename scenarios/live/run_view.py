"""What a terminal shows of an unfinished run, computed from its heartbeats."""

from dataclasses import dataclass
from typing import Literal

from runs.numbers.numbers import shows
from runs.record.progress import Progress, is_slower
from runs.wording import duration, finite_limit, per_second

EARLY_SHARE = 0.1
NEAR_SHARE = 0.9  # share of a limit from which a latency is near the limit
MAX_HISTORY = 40  # number of values in the history of the open queries

Step = Literal["client", "engine", "warm-up", "timed run", "last responses", "verification"]
LimitState = Literal["within limit", "near limit", "over limit"]

_STEP_OF_PHASE: dict[str, Step] = {
    "importing": "engine",
    "starting": "engine",
    "engine": "engine",
    "warm-up": "warm-up",
    "running": "timed run",
}


@dataclass(frozen=True)
class LatencyView:
    """Percentiles of a latency that the completed samples support."""

    name: str  # TTFT or TPOT
    p50_ms: float | None
    p99_ms: float | None
    limit_ms: float | None  # of p99

    @property
    def share(self) -> float | None:
        """The p99 as a share of its limit; None if one of them is unknown."""
        return self.p99_ms / self.limit_ms if self.p99_ms is not None and self.limit_ms else None

    @property
    def state(self) -> LimitState | None:
        """The relation of the p99 to its limit; None if one of them is unknown."""
        if self.share is None:
            return None
        return "over limit" if self.share > 1 else "near limit" if self.share >= NEAR_SHARE else "within limit"


@dataclass(frozen=True)
class RunView:
    """An unfinished run at one moment."""

    name: str  # scenario, with the mode for an accuracy run; or the name of the run in a table
    context: str  # the run as a part of a command with multiple runs; empty for other commands
    remark: str  # state of the command as a whole; empty for a command with one run
    phase: str  # from runs.record.progress.PHASES
    doing: str  # the phase as text
    steps: tuple[Step, ...]  # all steps of the run
    step: Step  # the present step
    waited_s: float  # time since the command started
    stage_s: float  # time since `doing` changed
    left_s: float | None  # expected time to the last response
    completed: int
    expected: int | None  # number of samples that LoadGen will issue
    share: float | None  # completed share of the run
    open_queries: int
    open_history: tuple[int, ...]  # maxima in equal parts of the time so far
    offered_qps: float | None  # mean rate at which LoadGen issued queries; None if no schedule decides it
    completed_qps: float
    tokens_per_s: float
    latencies: tuple[LatencyView, ...]
    warnings: tuple[str, ...]  # problems of the run as a whole

    @property
    def title(self) -> str:
        return f"{self.context}: {self.name}" if self.context else self.name

    @property
    def is_timed(self) -> bool:
        return self.phase == "running"


class RunFollower:
    """The reader of the heartbeats of one run.

    Args:
        name, context, remark: Texts of each `RunView`.
        steps: Steps of the run. Default: those of a run of LoadGen.
        max_open: Limit of open queries in a closed loop. LoadGen issues all queries at once there.
    """

    def __init__(
        self,
        name: str,
        context: str = "",
        remark: str = "",
        *,
        steps: tuple[Step, ...] = (),
        max_open: int | None = None,
    ) -> None:
        self._name, self._context, self._remark = name, context, remark
        self._steps, self._max_open = steps, max_open
        self._stage, self._stage_since_s = "", 0.0
        self._last_ns = 0
        self._history = _History()
        self._arrivals: tuple[int, float] | None = None  # issued queries, and the time in which they arrived in s

    def view(self, progress: Progress, waited_s: float, now_s: float) -> RunView:
        """Return what is shown of the run.

        Args:
            waited_s: Seconds since the command started.
            now_s: Present time on a monotonic clock.
        """
        if progress.doing != self._stage:
            self._stage, self._stage_since_s = progress.doing, now_s
        if progress.phase == "running" and progress.time_ns != self._last_ns:
            self._last_ns = progress.time_ns
            self._history.add(self._open_queries(progress))
            self._count_arrivals(progress)
        is_scheduled = progress.scenario in ("Server", "Interactive")
        is_issued = is_scheduled and bool(progress.issued) and progress.issued == progress.expected
        step = _STEP_OF_PHASE.get(progress.phase, "verification")
        last_steps: tuple[Step, ...] = ("last responses", "verification") if is_scheduled else ("verification",)
        steps = self._steps or ("engine", "warm-up", "timed run", *last_steps)
        late = slowness(progress)
        return RunView(
            name=self._name,
            context=self._context,
            remark=self._remark,
            phase=progress.phase,
            doing=progress.doing,
            steps=steps,
            step="last responses" if step == "timed run" and is_issued else step if step in steps else steps[0],
            waited_s=waited_s,
            stage_s=now_s - self._stage_since_s,
            left_s=time_to_go_s(progress),
            completed=progress.completed,
            expected=progress.expected,
            share=_share(progress),
            open_queries=self._open_queries(progress),
            open_history=self._history.values,
            offered_qps=self._arrivals[0] / self._arrivals[1] if is_scheduled and self._arrivals else None,
            completed_qps=progress.samples_per_second,
            tokens_per_s=progress.tokens_per_second,
            latencies=tuple(_latencies(progress)),
            warnings=(late,) if late else (),
        )

    def _open_queries(self, progress: Progress) -> int:
        return min(progress.outstanding, self._max_open or progress.outstanding)

    def _count_arrivals(self, progress: Progress) -> None:
        """Keep the number of arrived queries and the time that they took, which ends with the last query."""
        if progress.issued and progress.elapsed_s and (self._arrivals is None or progress.issued > self._arrivals[0]):
            self._arrivals = progress.issued, progress.elapsed_s


class _History:
    """The maxima of a growing series in equal parts, at most MAX_HISTORY of them."""

    def __init__(self) -> None:
        self._maxima: list[int] = []
        self._part, self._in_last = 1, 0  # number of values in each part, and in the last one

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(self._maxima)

    def add(self, value: int) -> None:
        if self._in_last:
            self._maxima[-1] = max(self._maxima[-1], value)
        else:
            if len(self._maxima) == MAX_HISTORY:
                self._maxima = [max(pair) for pair in zip(self._maxima[::2], self._maxima[1::2], strict=True)]
                self._part *= 2
            self._maxima.append(value)
        self._in_last = (self._in_last + 1) % self._part


def _latencies(progress: Progress) -> list[LatencyView]:
    has_p50, has_p99 = (shows(name, progress.completed) for name in ("p50", "p99"))
    values_ms = [
        ("TTFT", progress.ttft_p50_ms, progress.ttft_p99_ms, progress.ttft_limit_ms),
        ("TPOT", progress.tpot_p50_ms, progress.tpot_p99_ms, progress.tpot_limit_ms),
    ]
    return [
        LatencyView(
            name,
            p50_ms if has_p50 else None,
            p99_ms if has_p99 else None,
            finite_limit(limit_ms),
        )
        for name, p50_ms, p99_ms, limit_ms in values_ms
    ]


def _share(progress: Progress) -> float | None:
    """Return the completed share of a run: of its samples, or of its minimum duration if their number is unknown."""
    if progress.expected:
        return min(progress.completed / progress.expected, 1.0)
    return min(progress.elapsed_s / progress.min_duration_s, 1.0) if progress.min_duration_s else None


def slowness(progress: Progress) -> str:
    """Return a line on a run that will take much longer than planned; empty for other runs."""
    planned_s, forecast_s, expected = progress.planned_s, progress.forecast_s, progress.expected
    if not planned_s or forecast_s is None or not expected or not is_slower(planned_s, forecast_s):
        return ""
    rates = f"{per_second(progress.samples_per_second)}, {per_second(expected / planned_s)} planned"
    length = ("at least " if forecast_s == progress.elapsed_s else "") + duration(forecast_s)
    return f"slower than planned: {length} instead of {duration(planned_s)}; {rates}"


def time_to_go_s(progress: Progress) -> float | None:
    """Estimate the remaining time from the plan, the rate so far and the minimum duration; None if it is unknown."""
    if progress.planned_s is not None:
        left_s = (progress.forecast_s or progress.planned_s) - progress.elapsed_s
        return left_s if left_s > 0 else None
    # In Offline, the first completions are late and the others follow quickly.
    if progress.completed < max(1, EARLY_SHARE * (progress.expected or 0)) or not progress.elapsed_s:
        return None
    by_duration = max(0.0, (progress.min_duration_s or 0.0) - progress.elapsed_s)
    if not progress.expected:
        return by_duration if progress.min_duration_s else None
    by_count = (progress.expected - progress.completed) * progress.elapsed_s / progress.completed
    # Offline ends with its last sample; the other scenarios also wait for the minimum duration.
    return by_count if progress.scenario == "Offline" else max(by_count, by_duration)
