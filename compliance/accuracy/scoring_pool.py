"""Worker processes that score samples.

They start early, so that their imports overlap with the reading of logs, dataset and tokenizer.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

from runs.errors import ExecutionError, InputError
from runs.processes.interrupts import wait_for_result
from runs.processes.workers import leave_signals, signals_later, workers

Item = TypeVar("Item")
Score = TypeVar("Score")

# The start of a worker takes about as long as the scoring of 2,000 samples.
PARALLEL_FROM_SAMPLES = 2000
CHUNK_SAMPLES = 64
MAX_WORKERS = 16


class ScoringPool(AbstractContextManager["ScoringPool"]):
    """A pool of scoring processes. They run from the call of `start` to the end of the `with` block.

    Args:
        workers: Number of processes. Default: one for each usable core. With 1, this process scores.
        parallel_from: Minimum number of samples for worker processes.

    Raises:
        InputError: If `workers` is below 1.
    """

    def __init__(self, workers: int | None = None, parallel_from: int = PARALLEL_FROM_SAMPLES) -> None:
        self._parallel_from = parallel_from
        self.workers = _usable_cores() if workers is None else workers
        if self.workers < 1:
            raise InputError(f"scoring workers: {workers} is below 1", "use at least 1 worker")
        self._executor: ProcessPoolExecutor | None = None
        self._at_the_end = ExitStack()

    def __exit__(self, *error: Any) -> None:
        self._at_the_end.__exit__(*error)
        self._executor = None

    def start(self, samples: int) -> None:
        """Start the processes before the samples are scored, unless they already run or the samples are too few."""
        if self.workers == 1 or samples < self._parallel_from or self._executor is not None:
            return
        self._executor = ProcessPoolExecutor(
            max_workers=self.workers,
            # A fork would copy the locks of the caller's threads, which may be held.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
        )
        self._at_the_end.enter_context(workers(self._executor))
        with signals_later():
            for _ in range(self.workers):  # the executor starts a process for each task if none is idle
                self._executor.submit(int)

    def submit(self, work: Callable[[Item], Score], item: Item) -> Callable[[], Score]:
        """Run a function in a scoring process. If no process runs, the function is called when its result is needed.

        Returns:
            A function that waits for the result. It raises the error of the work, or an ExecutionError if the process
            died.
        """
        if self._executor is None:
            return lambda: work(item)
        with signals_later():
            future = self._executor.submit(work, item)

        def result() -> Score:
            with _death_reported():
                return wait_for_result(future)

        return result

    def begin(self, score: Callable[[Sequence[Item]], list[Score]], items: Sequence[Item]) -> Iterator[list[Score]]:
        """Submit all items, and return an iterator over their scores in chunks, in the order of the items.

        The caller can do other work before it reads the first chunk. Few items are scored in this process.

        Raises:
            ExecutionError: If a worker process died; the iterator raises it too.
        """
        chunks = [items[place : place + CHUNK_SAMPLES] for place in range(0, len(items), CHUNK_SAMPLES)]
        self.start(len(items))
        if self._executor is None or len(items) < self._parallel_from:
            return map(score, chunks)
        with _death_reported(), signals_later():
            return _results([self._executor.submit(score, chunk) for chunk in chunks])


def _usable_cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_WORKERS)


def _results(futures: list[Future[list[Score]]]) -> Iterator[list[Score]]:
    with _death_reported():
        for future in futures:
            yield wait_for_result(future)


@contextmanager
def _death_reported() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise ExecutionError(
            "a scoring process died, probably because memory ran out",
            "free memory, and repeat the command",
        ) from error


def _start_worker() -> None:
    leave_signals()
    # Import now, while the parent still reads its inputs.
    from compliance.accuracy import punkt, rouge  # noqa: F401
