"""Worker processes of a command: what ends the command is for the command alone, which then ends them.

A signal of a terminal, or of `timeout`, goes to all processes of a group. Workers that heard it would die in the middle
of things, some with a traceback, and their command would take it for a fault.
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
    """A signal that comes meanwhile comes after the block. Processes that are started in it hear none before
    `leave_signals`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_signals() -> None:
    """A worker's first step: into a process group of its own, and never outlive the process that started it."""
    os.setpgid(0, 0)
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)  # also one that came before
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # with it the executor ends a worker
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def end_workers(pool: ProcessPoolExecutor, *, at_once: bool) -> None:
    """Wait until all is done; or, `at_once`, end the processes in the middle of it.

    What waits is not cancelled: the executor's thread, which tells all futures of the end, fails at cancelled ones.
    """
    with signals_later():
        for process in multiprocessing.active_children() if at_once else ():
            process.kill()
        pool.shutdown()
