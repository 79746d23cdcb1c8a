"""What ends a leg of a tune before its time: a verdict that is certain, an estimate that is good enough."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from runs.errors import ExitCode, Interrupted
from runs.record.progress import Progress
from scenarios.tune.probe_verdict import ProbeLimits, ProbeTally
from sut.recorder import partial_path

# An estimate looks away while the engine fills up, and wants some answers before it says a rate.
FILLING_SHARE = 1 / 3
ENOUGH_ANSWERS = 64


class Stopped(Interrupted):
    """A leg was ended by the one who watched it."""

    exit_code = ExitCode.NEGATIVE


@dataclass(eq=False)
class ProbeWatch:
    """Ends a Server leg once it can no longer be VALID. Called with each heartbeat."""

    requests: Path  # the leg's requests.jsonl, of which the lines so far are read
    offsets_ns: NDArray[np.int64]  # as `ProbeLimits` has them
    longest_output_tokens: int
    percentile: float
    tally: ProbeTally | None = field(default=None, init=False)
    _stream: BinaryIO | None = field(default=None, init=False)
    _rest: bytes = field(default=b"", init=False)

    def __call__(self, progress: Progress) -> None:
        if progress.phase != "running" or not progress.ttft_limit_ms or not progress.tpot_limit_ms:
            return
        if self.tally is None:
            limits = ProbeLimits(
                self.offsets_ns,
                round(progress.ttft_limit_ms * 1e6),
                round(progress.tpot_limit_ms * 1e6),
                self.longest_output_tokens,
                self.percentile,
            )
            self.tally = ProbeTally(limits)
        self._read(self.tally)
        reason = self.tally.certainly_invalid()
        if reason is not None:
            raise Stopped(f"stopped, its verdict being certain: {reason}")

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def _read(self, tally: ProbeTally) -> None:
        if self._stream is None:
            try:
                # Stays the same file when it gets its final name.
                self._stream = partial_path(self.requests).open("rb")
            except FileNotFoundError:
                return
        lines = (self._rest + self._stream.read()).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            record = orjson.loads(line)
            tally.add(
                record["seq"],
                record["issue_ns"],
                record["first_token_ns"],
                record["complete_ns"],
                record["output_tokens"],
            )


class RateWatch:
    """Ends an Offline leg once its rate is known well enough. Called with each heartbeat.

    Attributes:
        samples_per_second: the rate behind the first third of the time; None while there is none.
    """

    def __init__(self, stop_after_s: float) -> None:
        self._stop_after_s = stop_after_s
        self._filled: tuple[float, int] | None = None
        self.samples_per_second: float | None = None

    def __call__(self, progress: Progress) -> None:
        if progress.phase != "running" or progress.elapsed_s < FILLING_SHARE * self._stop_after_s:
            return
        if self._filled is None:
            self._filled = progress.elapsed_s, progress.completed
            return
        since_s, before = self._filled
        answers = progress.completed - before
        if progress.elapsed_s >= self._stop_after_s and answers >= ENOUGH_ANSWERS:
            self.samples_per_second = answers / (progress.elapsed_s - since_s)
            raise Stopped(f"stopped after {progress.elapsed_s:.0f} s: the rate is known well enough")
