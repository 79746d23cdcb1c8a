"""The stage of an engine's start, and the error that ended it, from its growing log. Only for display."""

import re
import time
from collections.abc import Callable
from pathlib import Path

from runs.files.reading import MIB

MAX_BYTES = 16 * MIB  # size of the log's end that is read
_ERROR = re.compile(r"(?m)^\([^\n)]{1,80}\) ERROR [^\n\]]{1,80}\] ([\w.]+(?:Error|Exception)(?:: [^\n]{1,2000}|$))")

TAIL_BYTES = 256 * 1024
# vLLM's messages (0.28 to 0.32) at the beginning of a stage → the stage. The last message found counts.
_BEGINS = (
    (r"Starting to load model", "loading weights"),
    (r"Loading weights took|Model loading took", "profiling memory"),
    (r"Dynamo bytecode transform|Warming up model for the compilation", "compiling"),
    (r"Available KV cache memory|for KV cache on node|KV cache size:", "making the KV cache"),
    (r"Capturing CUDA graphs", "capturing graphs"),
    (r"init engine \(profile|Graph capturing finished", "last preparations"),
)
_ANY = re.compile("|".join(f"({pattern})" for pattern, _ in _BEGINS))


def end_of(log: Path, most_bytes: int) -> str:
    """Return the end of a log as text, without reading the rest.

    Raises:
        OSError: If the log is unreadable.
    """
    with log.open("rb") as stream:
        stream.seek(0, 2)
        stream.seek(max(0, stream.tell() - most_bytes))
        return stream.read(most_bytes).decode(errors="replace")


def last_error(path: Path) -> str:
    """Return the last line of the last traceback of an engine's process; empty without a traceback."""
    try:
        text = end_of(path, MAX_BYTES)
    except OSError:
        return ""
    errors = _ERROR.findall(text)
    return str(errors[-1]) if errors else ""


def start_stage(engine_log: Path) -> str:
    """Return the stage of an engine's start; empty if unknown."""
    try:
        text = end_of(engine_log, TAIL_BYTES)
    except OSError:
        return ""
    last = 0
    for match in _ANY.finditer(text):
        last = match.lastindex or 0
    return _BEGINS[last - 1][1] if last else ""


class StageClock:
    """The duration of each stage of a run's start.

    Args:
        first: current stage.
        since_s: time of its beginning, in seconds since the epoch.
        now_s: clock.
    """

    def __init__(self, first: str, since_s: float, now_s: Callable[[], float] = time.time) -> None:
        self._stage, self._since_s, self._now_s = first, since_s, now_s
        self.seconds: dict[str, float] = {}

    def enter(self, stage: str) -> None:
        """Begin a stage, unless it is the current stage."""
        if stage == self._stage:
            return
        now_s = self._now_s()
        took_s = max(0.0, now_s - self._since_s)  # the clock may have been set back
        self.seconds[self._stage] = round(self.seconds.get(self._stage, 0.0) + took_s, 1)
        self._stage, self._since_s = stage, now_s
