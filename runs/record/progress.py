"""progress.json: the heartbeat of an unfinished run, replaced every second."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError

from runs.errors import InputError
from runs.files.fields import Amount, Count, Nanoseconds, Pid
from runs.files.reading import read_object
from runs.files.writing import write_json

HEARTBEAT_INTERVAL_S = 1.0
SILENCE_RUNNING_S = 20.0  # limit without a heartbeat during a run: the main thread is stuck
SILENCE_STARTING_S = 180.0  # limit before: imports and engine start may hold the interpreter lock for long
MUCH_LONGER = 1.5  # factor on the planned duration from which a run is reported as slower than planned
NOTICEABLE_S = 10.0  # minimum difference from the planned duration
# A percentile is the lower end of a bin: the lowest end, and the ratio of neighboring ends.
LOWEST_PERCENTILE_NS, PERCENTILE_STEP = 1_000.0, 1.02

PHASES = {
    "importing": "importing the engine's code",  # before the first heartbeat of the run's process
    "starting": "starting",
    "engine": "starting the engine",
    "warm-up": "warming up",
    "running": "running",
    "closing": "closing the logs",
    "done": "checking the result",
    "failed": "failed",
}


@dataclass
class Progress:
    """The state of an unfinished run. Latencies are from the issue of a query."""

    __pydantic_config__: ClassVar = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    phase: str  # one of PHASES
    time_ns: Nanoseconds
    pid: Pid
    scenario: str
    mode: str
    expected: Count | None = None  # samples that LoadGen will issue, if known
    issued: Count = 0
    completed: Count = 0
    output_tokens: Count = 0  # so far; includes unfinished responses if the engine counts them
    elapsed_s: Amount = 0.0  # since LoadGen started
    min_duration_s: Amount | None = None
    planned_s: Amount | None = None  # planned duration of a run with a known rate
    forecast_s: Amount | None = None  # duration that follows from the samples completed so far
    samples_per_second: Amount = 0.0
    tokens_per_second: Amount = 0.0
    ttft_p50_ms: Amount | None = None
    ttft_p99_ms: Amount | None = None
    tpot_p50_ms: Amount | None = None
    tpot_p99_ms: Amount | None = None
    ttft_limit_ms: Amount | None = None
    tpot_limit_ms: Amount | None = None
    loop_lag: dict[str, Any] | None = None  # fields of runs.record.observed.LoopLag so far
    stage: str = ""  # stage of an engine's start; empty if unknown
    error: dict[str, Any] | None = None  # from runs.errors.error_record

    @property
    def doing(self) -> str:
        """The phase as text, with the stage of the engine's start."""
        return self.stage or PHASES.get(self.phase, self.phase)

    @property
    def outstanding(self) -> int:
        return self.issued - self.completed


def is_slower(planned_s: float, duration_s: float) -> bool:
    """Return whether a duration is much longer than planned."""
    return duration_s > MUCH_LONGER * planned_s and duration_s - planned_s > NOTICEABLE_S


_HEARTBEAT = TypeAdapter(Progress)


def write_progress(path: Path, progress: Progress) -> None:
    write_json(path, asdict(progress))


def read_progress(path: Path) -> Progress | None:
    """Return the last heartbeat; None if it is missing or unreadable."""
    try:
        return _HEARTBEAT.validate_json(orjson.dumps(read_object(path, "", within=path.parent)))
    except (InputError, ValidationError):
        return None
