"""The writer of requests.jsonl and of the running statistics, outside the hot path.

The hot path appends batches of outcomes to a queue. A separate thread empties the queue a few times per second,
converts the outcomes to lines and numbers, and writes them. Its memory does not grow with the number of samples. While
the thread works it holds the interpreter lock, for which LoadGen's thread and the event loop wait; therefore it works
in short slices with a pause after each.
"""

import hashlib
import os
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from runs.errors import ExecutionError
from runs.files.reading import REQUESTS_LOG
from runs.files.reserve import FREE_DISK_SPACE, is_disk_full
from runs.record.progress import LOWEST_PERCENTILE_NS, PERCENTILE_STEP
from runs.record.requests_log import FIELDS, MAX_GAP_US
from sut.engine import Request

FLUSH_INTERVAL_S = 0.25
SLICE_SAMPLES = 32  # about 0.1 ms of work, which may delay a query
PAUSE_S = 0.0002  # long enough for a waiting thread to get the interpreter lock
KEPT = 1024  # values of lateness that are added to the histogram at once

FinishedRequest = tuple[Request, "array[int]", str]  # request, output IDs as given to LoadGen, finish reason


class LatencyHistogram:
    """Percentiles from 1,200 logarithmic bins, each 2% wide, from 1 µs to about 3 hours."""

    _LOW_NS = LOWEST_PERCENTILE_NS
    _GROWTH = PERCENTILE_STEP
    _BINS = 1_200

    def __init__(self) -> None:
        self._counts = np.zeros(self._BINS, dtype=np.int64)

    def add(self, values_ns: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> None:
        bins = np.log(np.maximum(values_ns, self._LOW_NS) / self._LOW_NS) / np.log(self._GROWTH)
        np.add.at(self._counts, np.minimum(bins.astype(np.int64), self._BINS - 1), 1)

    def percentile_ms(self, percentile: float) -> float | None:
        total = int(self._counts.sum())
        if not total:
            return None
        rank = min(int(total * percentile / 100), total - 1)
        position = int(np.searchsorted(np.cumsum(self._counts), rank, side="right"))
        return float(self._LOW_NS * self._GROWTH**position / 1e6)


class RequestLogWriter:
    """The writer of one run's requests.jsonl.

    Args:
        path: final path; before `close` the file is `<path>.partial`.
        on_error: called on the writer's thread if writing fails, for example on a full disk.
    """

    def __init__(self, path: Path, on_error: Callable[[BaseException], None]) -> None:
        self._path = path
        self._partial = partial_path(path)
        self._on_error = on_error
        self._pending: deque[tuple[int, list[FinishedRequest]]] = deque()  # append and popleft are thread-safe
        self._stop = threading.Event()
        self.done = 0
        self.output_tokens = 0
        self.ttft = LatencyHistogram()
        self.tpot = LatencyHistogram()
        try:
            self._stream = self._partial.open("wb")
        except OSError as error:
            raise ExecutionError(
                f"cannot write {self._partial}: {error.strerror}",
                "free disk space, or change the permissions of the directory",
            ) from error
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def append(self, complete_ns: int, outcomes: list[FinishedRequest]) -> None:
        """Add samples that were completed together. Safe from any thread; costs one append."""
        self._pending.append((complete_ns, outcomes))

    def close(self) -> None:
        """Write the remaining lines, and rename the file to its final name.

        Raises:
            ExecutionError: If the lines could not be written.
        """
        self._stop.set()
        self._thread.join()
        try:
            self._drain()
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            self._partial.replace(self._path)
        except OSError as error:
            raise self._unwritten(error) from error

    def _run(self) -> None:
        try:
            while not self._stop.wait(FLUSH_INTERVAL_S):
                self._drain()
        except OSError as error:
            self._on_error(self._unwritten(error))
        except BaseException as error:
            self._on_error(error)

    def _unwritten(self, error: OSError) -> ExecutionError:
        if is_disk_full(error):
            return ExecutionError(f"the disk of {self._path.parent} is full", FREE_DISK_SPACE)
        return ExecutionError(
            f"cannot write {self._path}: {error.strerror}", "raise the limit on the size of a file (ulimit -f)"
        )

    def _drain(self) -> None:
        """Write all waiting lines; without pauses if that takes longer than an interval."""
        if not self._pending:
            return
        pauses_end_s = time.monotonic() + FLUSH_INTERVAL_S
        ttft_ns: list[int] = []
        tpot_ns: list[float] = []
        since_pause = 0
        for _ in range(len(self._pending)):
            complete_ns, outcomes = self._pending.popleft()
            self._stream.write(b"".join(_line(outcome, complete_ns) for outcome in outcomes))
            for request, ids, _reason in outcomes:
                self.output_tokens += len(ids)
                if first_ns := request.first_token_ns:
                    ttft_ns.append(first_ns - (request.submit_ns or request.issue_ns))
                    if len(ids) > 1:
                        tpot_ns.append((complete_ns - first_ns) / (len(ids) - 1))
            self.done += len(outcomes)
            since_pause += len(outcomes)
            if since_pause >= SLICE_SAMPLES and time.monotonic() < pauses_end_s:
                since_pause = 0
                self._stop.wait(PAUSE_S)  # no pause while closing: no thread waits for the interpreter lock then
        self._stream.flush()
        self.ttft.add(np.asarray(ttft_ns, dtype=np.float64))
        self.tpot.add(np.asarray(tpot_ns, dtype=np.float64))


def _line(outcome: FinishedRequest, complete_ns: int) -> bytes:
    """Return a sample's line of requests.jsonl."""
    request, ids, finish_reason = outcome
    # A dictionary with the fields of the record: a frozen dataclass would take three times as long.
    values = (
        request.seq,
        request.sample_index,
        len(request.prompt_ids),
        len(ids),
        request.issue_ns,
        request.first_token_ns or None,
        complete_ns,
        finish_reason,
        hashlib.sha256(ids).hexdigest(),
        request.replica,
        *((request.submit_ns,) if request.submit_ns else ()),
    )
    record = dict(zip(FIELDS, values, strict=False))
    if request.token_gaps_ns is not None:
        gaps_us = np.frombuffer(request.token_gaps_ns, np.int64) // 1_000
        record["token_gaps_us"] = gaps_us.clip(0, MAX_GAP_US).tolist()  # the system's clock may step back
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def partial_path(path: Path) -> Path:
    """Return the path of the incomplete file."""
    return path.with_name(path.name + ".partial")


def rescue_partial(path: Path) -> None:
    """Keep the complete lines of a killed run, under the final name of the file."""
    partial = partial_path(path)
    if not partial.exists():
        return
    with partial.open("r+b") as stream:
        # Truncated in place: the file may be large, and a full disk cannot hold a copy.
        start = max(0, partial.stat().st_size - 2 * REQUESTS_LOG.line_bytes)
        stream.seek(start)
        stream.truncate(start + stream.read().rfind(b"\n") + 1)
    partial.replace(path)


class Lateness:
    """The distribution of lateness: a histogram and the worst value, of constant size."""

    def __init__(self) -> None:
        self._kept = array("q")
        self._histogram = LatencyHistogram()
        self.count = 0
        self._worst_ns = 0

    def add(self, value_ns: int) -> None:
        self._kept.append(value_ns)
        if len(self._kept) >= KEPT:
            self._take_in()

    def _take_in(self) -> None:
        if self._kept:
            values = np.frombuffer(self._kept, dtype=np.int64).astype(np.float64)
            self._kept = array("q")
            self.count += len(values)
            self._worst_ns = max(self._worst_ns, int(values.max()))
            self._histogram.add(values)

    def facts(self) -> dict[str, Any]:
        """Return count, p50, p99 and worst in ms. Percentiles are accurate to 2%; values below 0.001 are shown as
        0.001.
        """
        self._take_in()
        if not self.count:
            return {"count": 0}
        return {
            "count": self.count,
            "p50_ms": self._histogram.percentile_ms(50),
            "p99_ms": self._histogram.percentile_ms(99),
            "worst_ms": self._worst_ns / 1e6,
        }
