"""How a process of ours ends at SIGINT, SIGTERM or SIGHUP. The rule for all code of a command:

1. No handler raises: an exception at an arbitrary point leaves locks taken and processes unknown. The system writes the
   signal's number to a descriptor (`signal.set_wakeup_fd`), from which a thread, the watcher, reads it. The first
   signal counts, and a second one is never needed.
2. `check` and the waits of this module raise `Interrupted`; nothing else does. A command waits for processes, futures
   and seconds by these waits only.
3. Code that computes for long needs no safe points. If the command reaches none within NOTICE_S (or at once, while
   nothing is registered), the watcher ends the process: it waits for the end of a `critical` block, does what is
   registered, the latest first, and exits with code 130. The command stops at its next critical block.
4. What must be undone is registered (`ensured`, `if_abandoned`) in the critical block that makes it. That is done in
   `runs/child.py` for processes, in `runs/temporary.py` for folders and in `runs/files.py` for files, none of which is
   left half-written.

Clean-up code uses no wait that raises. Without `listening`, as in a run's own process, no wait here raises.
"""

import contextlib
import contextvars
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from runs.errors import ExitCode, Interrupted

if TYPE_CHECKING:
    import subprocess
    from concurrent.futures import Future

T = TypeVar("T")
Action = Callable[[Interrupted], object]

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOTICE_S = 1.0  # in which the command has to reach a safe point
UNWIND_S = 30.0  # from there to the end of the process
CRITICAL_S = 60.0  # longest critical block: hashing the files of a run
ACTION_S = 20.0  # longest registered action
YIELD_S = 0.001
LONGEST_POLL_S = 3_600.0
LOOK_S = 0.05  # between two looks at a future, and at a process where the system has no pidfd

_lock = threading.RLock()  # held in critical blocks
_registered: list[tuple[threading.Thread, Action]] = []
_abandoned: set[threading.Thread] = set()
_listener: "_Listener | None" = None
_local = threading.local()


class OutOfTime(Exception):
    """The time of `within` is over."""


# For commands --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def listening(last_words: Action | None = None) -> Iterator[None]:
    """Within: signals interrupt the command as described above. For the main thread; an inner block does nothing.

    Args:
        last_words: writes the message where the watcher ends the process; by default a line on the standard error.
    """
    global _listener
    if _listener is not None:
        yield
        return
    _listener = listener = _Listener(last_words or say)
    try:
        yield
    finally:
        listener.close()
        _listener = None


def outcome_stands() -> None:
    """From here on a signal changes nothing; the process is about to end by itself."""
    with critical():
        if _listener is not None:
            _listener.over.set()


def check() -> None:
    """Raise Interrupted if a signal has arrived."""
    listener = _listener
    if listener is None or listener.first is None:
        return
    with critical():
        listener.noticed.set()
    raise listener.interrupted()


def pause(seconds: float) -> None:
    """Wait for so long.

    Raises:
        Interrupted: By a signal.
    """
    check()
    _poll(seconds)
    check()


def ended(process: "subprocess.Popen[Any]", seconds: float) -> bool:
    """Wait for the end of a child process for at most so long, and return whether it has ended.

    Raises:
        Interrupted: By a signal.
    """
    check()
    over = ended_within(process, seconds, until_signal=True)
    check()
    return over


def result_of(future: "Future[T]") -> T:
    """Wait for a future's result.

    Raises:
        Interrupted: By a signal. Exception: What the future raises.
    """
    from concurrent.futures import wait

    while not future.done():
        check()
        wait([future], LOOK_S)
    return future.result()


def within(seconds: float, work: Callable[[], T]) -> T:
    """Return what `work` returns, if that takes at most so long.

    It runs in a thread of its own, which is abandoned when the time is over: what it registered is done, and it stops
    at its next critical block. Within an outer limit the outer limit counts.

    Raises:
        OutOfTime: The time is over. Interrupted: By a signal.
    """
    if getattr(_local, "limited", False):
        return work()
    from concurrent.futures import Future, wait

    outcome: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        _local.limited = True
        try:
            outcome.set_result(context.run(work))
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="limited", daemon=True)
    thread.start()
    end = time.monotonic() + seconds
    try:
        while not outcome.done():
            check()
            if time.monotonic() > end:
                raise OutOfTime(f"not done within {seconds:g} s")
            wait([outcome], min(LOOK_S, seconds))
    except (OutOfTime, Interrupted) as error:
        _abandon({thread}, error if isinstance(error, Interrupted) else Interrupted(str(error)))
        raise
    return outcome.result()


# For what must not be cut in two, and what must be undone ------------------------------------------------------------


@contextlib.contextmanager
def critical() -> Iterator[None]:
    """Within: the watcher does not end the process. Keep it short."""
    if getattr(_local, "acting", False):
        yield
        return
    if _listener is not None and _listener.first is not None:
        time.sleep(YIELD_S)  # a lock is not fair: the watcher would wait for a command that writes file after file
    with _lock:
        abandoned = threading.current_thread() in _abandoned
        if not abandoned:
            yield
    if abandoned:
        threading.Event().wait()  # this thread is over


@contextlib.contextmanager
def if_abandoned(action: Action) -> Iterator[None]:
    """Within: the action is done if the watcher ends the process; otherwise it is not done."""
    entry = threading.current_thread(), action
    with critical():
        _registered.append(entry)
    try:
        yield
    finally:
        with critical():
            _forget(entry)


@contextlib.contextmanager
def ensured(action: Callable[[], object]) -> Iterator[None]:
    """Do the action at the end of the block, or before if the watcher ends the process."""
    entry = threading.current_thread(), lambda _: action()
    with critical():
        _registered.append(entry)
    try:
        yield
    finally:
        with critical():
            _forget(entry)
            action()


def _forget(entry: tuple[threading.Thread, Action]) -> None:
    with contextlib.suppress(ValueError):  # done already, by who abandoned this thread
        _registered.remove(entry)


def ended_within(process: "subprocess.Popen[Any]", seconds: float, *, until_signal: bool = False) -> bool:
    """Wait for the end of a child process for at most so long, and return whether it has ended. Raises nothing."""
    end = time.monotonic() + seconds
    while process.poll() is None:
        left_s = end - time.monotonic()
        if left_s <= 0 or (until_signal and _listener is not None and _listener.first is not None):
            return False
        try:
            descriptor = os.pidfd_open(process.pid)  # Linux 5.3
        except (AttributeError, OSError):
            _poll(min(LOOK_S, left_s), wake=until_signal)
            continue
        try:
            _poll(left_s, descriptor, wake=until_signal)
        finally:
            os.close(descriptor)
    return True


# The watcher ---------------------------------------------------------------------------------------------------------


class _Listener:
    """Takes signals, and ends the process if the command does not."""

    def __init__(self, last_words: Action) -> None:
        self.first: int | None = None
        self.noticed = threading.Event()
        self.over = threading.Event()
        self._last_words = last_words
        self._command = threading.current_thread()
        self._numbers, self._write_numbers = os.pipe()
        self.arrived, self._not_arrived = os.pipe()  # at its end, and so readable, from the first signal on
        os.set_blocking(self._write_numbers, False)
        numbers = [one for one in ENDING if signal.getsignal(one) is not signal.SIG_IGN]  # as under nohup
        self._watcher = threading.Thread(target=self._watch, name="signals", daemon=True)
        self._watcher.start()
        self._wakeup_before = signal.set_wakeup_fd(self._write_numbers, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _nothing) for number in numbers}

    def close(self) -> None:
        with critical():  # a watcher that ends the process is not disturbed
            self.over.set()
            for number, handler in self._before.items():
                if signal.getsignal(number) is _nothing:
                    signal.signal(number, handler)
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._write_numbers)
        self._watcher.join()
        os.close(self._numbers)
        os.close(self.arrived)

    def interrupted(self) -> Interrupted:
        assert self.first is not None
        return Interrupted(f"interrupted by {signal.Signals(self.first).name}")

    def _watch(self) -> None:
        while (read := os.read(self._numbers, 1)) and read[0] not in ENDING:
            pass
        self.first = read[0] if read else None
        os.close(self._not_arrived)
        limit_s = 0.0
        while read and not self.over.wait(limit_s):
            if not _lock.acquire(timeout=CRITICAL_S):
                self._end(locked=False)
            try:
                noticed = self.noticed.is_set()
                waits = limit_s != UNWIND_S if noticed else not limit_s and _registered
                if not waits and not self.over.is_set():
                    self._end(locked=True)
            finally:
                _lock.release()
            limit_s = UNWIND_S if noticed else NOTICE_S

    def _end(self, *, locked: bool) -> NoReturn:
        """End the process. Without the lock, what is registered is left to the guardians of the processes."""
        error = self.interrupted()
        if locked:
            _abandon({self._command, *(thread for thread, _ in _registered)}, error)
        _do(self._last_words, error)
        os._exit(ExitCode.INTERRUPTED)


def _nothing(_number: int, _frame: FrameType | None) -> None: ...


def say(error: Interrupted) -> None:
    """Write the message to the standard error, where nothing can be locked."""
    shown = "\r\x1b[K\x1b[?25h" if os.isatty(2) else ""  # over a progress bar, which hid the cursor
    os.write(2, f"{shown}error: {error}\n".encode())


def _abandon(threads: set[threading.Thread], error: Interrupted) -> None:
    """Do what threads registered, the latest first. They enter no critical block any more."""
    with _lock:
        _abandoned.update(threads)
        for entry in [entry for entry in reversed(_registered) if entry[0] in threads]:
            _registered.remove(entry)
            _do(entry[1], error)


def _do(action: Action, error: Interrupted) -> None:
    """Do an action for at most ACTION_S; critical blocks in it do not wait."""

    def act() -> None:
        _local.acting = True
        with contextlib.suppress(Exception):  # the other actions are done all the same
            action(error)

    thread = threading.Thread(target=act, name="clean-up", daemon=True)
    thread.start()
    thread.join(ACTION_S)


def _poll(seconds: float, descriptor: int | None = None, *, wake: bool = True) -> None:
    """Wait for so long, or until the descriptor can be read or, with `wake`, a signal has arrived."""
    poll = select.poll()
    if descriptor is not None:
        poll.register(descriptor, select.POLLIN)
    if wake and _listener is not None:
        poll.register(_listener.arrived, select.POLLIN)
    poll.poll(math.ceil(min(seconds, LONGEST_POLL_S) * 1e3))
