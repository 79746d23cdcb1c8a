"""Worker processes of a command. Only the command receives signals; it ends its workers.

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

from runs.processes.interrupts import ENDING, if_abandoned


@contextlib.contextmanager
def signals_later() -> Iterator[None]:
    """Block signals in processes that are started during the block, until they call `leave_signals`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_signals() -> None:
    """A worker's first step: enter its own process group, and end with the parent process."""
    os.setpgid(0, 0)
    ignore_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def ignore_signals() -> None:
    """Ignore the signals that end a command; SIGTERM ends this process without a message."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)  # also discards a pending signal
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextlib.contextmanager
def workers(pool: ProcessPoolExecutor) -> Iterator[None]:
    """Wait at the end of the block until all tasks are done; after an exception, kill the processes.

    Waiting tasks are not cancelled, because the executor's thread fails at cancelled futures.
    """
    try:
        with if_abandoned(lambda _: _kill()):
            yield
            pool.shutdown()
    except BaseException:
        _kill()
        pool.shutdown()
        raise


def _kill() -> None:
    for process in multiprocessing.active_children():
        process.kill()
