"""How far a curve is, from the files of its directory: for `status`, and for the live line of `curve`."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console

from runs.errors import InputError
from runs.files.reading import read_as
from runs.files.writing import write_json
from runs.record.progress import Progress
from runs.wording import counted
from scenarios.curve.curve_dir import VERIFIED, CurveDir
from scenarios.live.display import Display
from scenarios.live.run_view import RunFollower, Step

if TYPE_CHECKING:
    from scenarios.curve.client_process import EventLog

HEARTBEAT_S = 2.0  # between two updates of progress.json
STEPS: tuple[Step, ...] = ("client", "timed run", "verification")
_FIX = "move the file away"


class RunInProgress(BaseModel):
    """The run of the client that the command watches (progress.json)."""

    model_config = ConfigDict(frozen=True)

    name: str  # r3, or: probe 64
    completed: int = 0
    samples: int


class _Point(BaseModel):
    """The fields of a point in plan.json."""

    name: str
    concurrency: int
    seconds: float | None = None  # expected duration of the measured phase

    @property
    def text(self) -> str:
        return f"{self.name} (concurrency {self.concurrency:,})"


class _Plan(BaseModel):
    """The fields of plan.json."""

    points: list[_Point] = Field(default_factory=list)
    accelerators: int = 0


class _Finished(BaseModel):
    """The fields of verify.json of a finished point."""

    duration_s: float = 0.0


@dataclass(frozen=True)
class CurveProgress:
    """The state of a curve: its points, the run in progress, the accelerator hours and the next step."""

    plan: _Plan
    durations_s: dict[str, float]  # of the measured phases of finished points, by name
    probes: int  # finished probes
    has_tree: bool
    current: RunInProgress | None = None

    @property
    def done(self) -> int:
        """The number of finished points of the plan."""
        return sum(point.name in self.durations_s for point in self.plan.points)

    @property
    def total(self) -> int:
        return len(self.plan.points)

    @cached_property
    def _to_do(self) -> list[_Point]:
        running = "" if self.current is None else self.current.name
        return [point for point in self.plan.points if point.name not in {*self.durations_s, running}]

    @property
    def next_step(self) -> str:
        """What the command does after the run in progress; empty if nothing is left to do."""
        if not self.plan.points:
            return "more probes, then the plan"
        if self._to_do:
            return self._to_do[0].text
        return "" if self.has_tree else "the tree"

    @property
    def title(self) -> str:
        """The name of the run in progress; empty if there is none."""
        name = "" if self.current is None else self.current.name
        return next((point.text for point in self.plan.points if point.name == name), name)

    @property
    def text(self) -> str:
        """One line with the run in progress and the summary."""
        if self.current is None:
            return self.summary
        return f"{self.title}: {self.current.completed:,} of {self.current.samples:,} samples; {self.summary}"

    @property
    def summary(self) -> str:
        """The numbers of points, the accelerator hours and the next step."""
        return "; ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        if not self.plan.points:
            yield f"{counted(self.probes, 'probe')} done"
        else:
            yield f"{self.done} of {counted(self.total, 'point')} done, {len(self._to_do)} to do"
            yield self._hours
        if self.next_step:
            yield f"next: {self.next_step}"

    @property
    def _hours(self) -> str:
        spent_s, planned_s = sum(self.durations_s.values()), [point.seconds for point in self.plan.points]
        expected_s = [seconds for seconds in planned_s if seconds is not None]
        hours = f"{spent_s / 3600 * self.plan.accelerators:.1f}"
        if len(expected_s) == len(planned_s):
            hours += f" of about {sum(expected_s) / 3600 * self.plan.accelerators:.1f}"
        return f"{hours} GPU hours"


def read_curve_progress(place: CurveDir, *, is_running: bool) -> CurveProgress:
    """Read how far a curve is.

    Args:
        is_running: True if the command is in progress, so that its progress.json counts.

    Raises:
        InputError: If a file is damaged.
    """
    plan = read_as(place.plan, _Plan, _FIX) if place.plan.is_file() else _Plan()
    files = {path.parent.name: path for path in sorted(place.points.glob(f"*/{VERIFIED}"))}
    durations_s = {name: read_as(path, _Finished, _FIX).duration_s for name, path in files.items()}
    probes = sum(1 for _ in place.probes.glob(f"*/{VERIFIED}"))
    current = None
    if is_running and place.progress.is_file():
        with contextlib.suppress(InputError):  # the run ended in the meantime
            current = read_as(place.progress, RunInProgress, _FIX)
    return CurveProgress(plan, durations_s, probes, place.tree.is_dir(), current)


class LiveProgress:
    """A run of the client in progress, on a terminal and in progress.json.

    Args:
        name: Name of the run.
        samples: Number of its samples.
    """

    def __init__(self, place: CurveDir, name: str, samples: int, console: Console) -> None:
        self._place, self._samples = place, samples
        self._current = RunInProgress(name=name, samples=samples)
        progress = replace(read_curve_progress(place, is_running=False), current=self._current)
        follower = RunFollower(progress.title, remark=progress.summary, steps=STEPS)
        self._display = Display(console, follower, plain=lambda _: [])
        self._began_s = self._written_s = 0.0

    def __enter__(self) -> "LiveProgress":
        self._display.__enter__()
        self._display(self._heartbeat("starting", stage="starting the client"))
        self._write()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.__exit__(kind, error, trace)
        self._place.progress.unlink(missing_ok=True)

    def show(self, events: "EventLog") -> None:
        """Show the events so far."""
        self._began_s = self._began_s or time.monotonic()
        elapsed_s = time.monotonic() - self._began_s
        self._display(
            self._heartbeat(
                "running",
                expected=self._samples,
                issued=events.issued,
                completed=events.completed,
                elapsed_s=elapsed_s,
                samples_per_second=events.completed / elapsed_s if elapsed_s else 0.0,
            )
        )
        self._current = self._current.model_copy(update={"completed": events.completed})
        self._write()

    def _heartbeat(self, phase: str, **values: Any) -> Progress:
        return Progress(phase, time.time_ns(), os.getpid(), "Endpoints", "performance", **values)

    def _write(self) -> None:
        if (now_s := time.monotonic()) - self._written_s >= HEARTBEAT_S:
            self._written_s = now_s
            write_json(self._place.progress, self._current.model_dump())
