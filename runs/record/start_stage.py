"""What an engine does while it starts, as its own log tells it. For people: no decision rests on this."""

import re
import time
from pathlib import Path

TAIL_BYTES = 256 * 1024

# What vLLM writes when it begins the stage on the right, by its wording from 0.28 to 0.32. The last one found counts.
_BEGINS = (
    (r"Starting to load model", "loading weights"),
    (r"Loading weights took|Model loading took", "profiling memory"),
    (r"Dynamo bytecode transform|Warming up model for the compilation", "compiling"),
    (r"Available KV cache memory|for KV cache on node|KV cache size:", "making the KV cache"),
    (r"Capturing CUDA graphs", "capturing graphs"),
    (r"init engine \(profile|Graph capturing finished", "last preparations"),
)
_ANY = re.compile("|".join(f"({pattern})" for pattern, _ in _BEGINS))


def start_stage(engine_log: Path) -> str:
    """The stage an engine's start has reached, in words; empty while its log names none."""
    try:
        with engine_log.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    last = 0
    for found in _ANY.finditer(text):
        last = found.lastindex or 0
    return _BEGINS[last - 1][1] if last else ""


START_STAGES = "start_stages"  # the key in `observed` of manifest.json


class StageClock:
    """How long each stage of a leg's start took.

    Args:
        first: the stage that the leg is in.
        since_s: when it began, in seconds since the epoch.
    """

    def __init__(self, first: str, since_s: float) -> None:
        self._stage, self._since_s = first, since_s
        self.seconds: dict[str, float] = {}

    def enter(self, stage: str) -> None:
        """The leg is in this stage now; nothing happens when it was before."""
        if stage == self._stage:
            return
        now_s = time.time()
        self.seconds[self._stage] = round(self.seconds.get(self._stage, 0.0) + now_s - self._since_s, 1)
        self._stage, self._since_s = stage, now_s
