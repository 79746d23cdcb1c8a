"""The end of a process at SIGINT, SIGTERM or SIGHUP. The rules for all code of a command:

1. No handler raises: an exception at an arbitrary point leaves locks taken and processes unknown. The system writes the
   signal's number to a descriptor (`signal.set_wakeup_fd`), from which a thread, the watcher, reads it. The first
   signal counts, and a second one is never needed.
2. `check` and the waits of this module raise `Interrupted`; nothing else does. A command waits for processes, futures
   and seconds by these waits only.
3. Long computations need no safe points. If the command reaches no safe point within NOTICE_S (or at once, if no
   action is registered), the watcher ends the process: it waits for the end of a `critical` block, runs the registered
   actions, the latest first, and exits with code 130. The command stops at its next critical block.
4. A change that must be undone is registered (`ensured`, `if_abandoned`) in the critical block that makes it:
   `runs/processes/child.py` does so for processes, `runs/files/temporary.py` for folders and `runs/files/writing.py`
   for partly written files.

The watcher is in `runs/processes/listening.py`. Clean-up code uses no wait that raises. Without `listening`, as in a
run's own process, no wait here raises.
"""

import contextlib
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from runs.errors import Interrupted

if TYPE_CHECKING:
    import subprocess
    from concurrent.futures import Future

    from runs.processes.listening import Listener

T = TypeVar("T")
OnInterrupt = Callable[[Interrupted], object]

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOTICE_S = 1.0  # time limit for the command to reach a safe point
UNWIND_S = 30.0  # time limit from the safe point to the end of the process
CRITICAL_S = 60.0  # longest critical block: hashing the files of a run
ACTION_S = 20.0  # longest registered action
YIELD_S = 0.001
LONGEST_POLL_S = 3_600.0
POLL_S = 0.05  # interval of checking a future, and a process on systems without pidfd

lock = threading.RLock()  # held in critical blocks
registered: list[tuple[threading.Thread, OnInterrupt]] = []
_abandoned: set[threading.Thread] = set()
listener: "Listener | None" = None  # set by runs/processes/listening.py
of_thread = threading.local()


# For commands --------------------------------------------------------------------------------------------------------


def raise_if_interrupted() -> None:
    """Raise Interrupted if a signal has arrived."""
    waiting = listener
    if waiting is None or waiting.first is None:
        return
    with critical():
        waiting.noticed.set()
    raise waiting.interrupted()


def pause(seconds: float) -> None:
    """Wait for a number of seconds.

    Raises:
        Interrupted: By a signal.
    """
    raise_if_interrupted()
    _poll(seconds)
    raise_if_interrupted()


def ended(process: "subprocess.Popen[Any]", seconds: float) -> bool:
    """Wait up to `seconds` for the end of a child process, and return whether it has ended.

    Raises:
        Interrupted: By a signal.
    """
    raise_if_interrupted()
    over = ended_within(process, seconds, until_signal=True)
    raise_if_interrupted()
    return over


def wait_for_result(future: "Future[T]") -> T:
    """Wait for a future's result.

    Raises:
        Interrupted: By a signal. Exception: If the future raises it.
    """
    from concurrent.futures import wait

    while not future.done():
        raise_if_interrupted()
        wait([future], POLL_S)
    return future.result()


# For atomic changes, and for changes that must be undone ------------------------------------------------------------


@contextlib.contextmanager
def critical() -> Iterator[None]:
    """Prevent the watcher from ending the process during the block. Keep the block short."""
    if getattr(of_thread, "acting", False):
        yield
        return
    if listener is not None and listener.first is not None:
        time.sleep(YIELD_S)  # without this sleep, a command that writes many files would keep the lock from the watcher
    with lock:
        abandoned = threading.current_thread() in _abandoned
        if not abandoned:
            yield
    if abandoned:
        threading.Event().wait()  # an abandoned thread stops here forever


@contextlib.contextmanager
def if_abandoned(action: OnInterrupt, at_the_end: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Register an action for the block. It runs only if the watcher ends the process during the block."""
    entry = threading.current_thread(), action
    with critical():
        registered.append(entry)
    try:
        yield
    finally:
        with critical():
            with contextlib.suppress(ValueError):  # the action has run already if this thread was abandoned
                registered.remove(entry)
            at_the_end()


def ensured(action: Callable[[], object]) -> contextlib.AbstractContextManager[None]:
    """Run an action at the end of the block, or earlier if the watcher ends the process."""
    return if_abandoned(lambda _: action(), action)


def ended_within(process: "subprocess.Popen[Any]", seconds: float, *, until_signal: bool = False) -> bool:
    """Wait up to `seconds` for the end of a child process, and return whether it has ended; raise no exception."""
    end = time.monotonic() + seconds
    while process.poll() is None:
        left_s = end - time.monotonic()
        if left_s <= 0 or (until_signal and listener is not None and listener.first is not None):
            return False
        try:
            descriptor = os.pidfd_open(process.pid)  # Linux 5.3
        except (AttributeError, OSError):
            _poll(min(POLL_S, left_s), wake=until_signal)
            continue
        try:
            _poll(left_s, descriptor, wake=until_signal)
        finally:
            os.close(descriptor)
    return True


def abandon(threads: set[threading.Thread], error: Interrupted) -> None:
    """Run the registered actions of threads, the latest first. These threads cannot enter a critical block again."""
    with lock:
        _abandoned.update(threads)
        for entry in [entry for entry in reversed(registered) if entry[0] in threads]:
            registered.remove(entry)
            do_action(entry[1], error)


def do_action(action: OnInterrupt, error: Interrupted) -> None:
    """Run an action for at most ACTION_S; critical blocks in it do not wait."""

    def act() -> None:
        of_thread.acting = True
        with contextlib.suppress(Exception):  # the other actions must still run
            action(error)

    thread = threading.Thread(target=act, name="clean-up", daemon=True)
    thread.start()
    thread.join(ACTION_S)


def _poll(seconds: float, descriptor: int | None = None, *, wake: bool = True) -> None:
    """Wait up to `seconds`, until the descriptor is readable or, with `wake`, a signal has arrived."""
    poll = select.poll()
    if descriptor is not None:
        poll.register(descriptor, select.POLLIN)
    if wake and listener is not None:
        poll.register(listener.arrived, select.POLLIN)
    poll.poll(math.ceil(min(seconds, LONGEST_POLL_S) * 1e3))
