"""Worker processes of a command: a signal reaches the command only, which then ends its workers.

A signal of a terminal, or of `timeout`, goes to all processes of a group. Workers that received it would end at once,
some with a traceback, and the command would report a fault.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def signals_later() -> Iterator[None]:
    """Delay signals until after the block. Processes that are started in it receive none before `leave_signals`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_signals() -> None:
    """A worker's first step: enter its own process group, and end with the parent process."""
    os.setpgid(0, 0)
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)  # discards a pending one too
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # by which the executor ends a worker
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def end_workers(pool: ProcessPoolExecutor, *, at_once: bool) -> None:
    """Wait until all tasks are done; or, `at_once`, kill the processes.

    Waiting tasks are not cancelled: the executor's thread, which ends all futures, fails at cancelled ones.
    """
    with signals_later():
        for process in multiprocessing.active_children() if at_once else ():
            process.kill()
        pool.shutdown()
