"""The watcher of signals: it ends the process if the command does not (see `runs/processes/interrupts.py`)."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from runs.errors import ExitCode, Interrupted
from runs.processes import interrupts
from runs.processes.interrupts import ENDING, OnInterrupt


@contextlib.contextmanager
def listening(last_words: OnInterrupt | None = None) -> Iterator[None]:
    """Handle signals by the rule during the block. Use it on the main thread; a nested block has no effect.

    Args:
        last_words: function that prints the message if the watcher ends the process; default: a line on the standard
            error.
    """
    if interrupts.listener is not None:
        yield
        return
    interrupts.listener = listener = Listener(last_words or write_to_stderr)
    try:
        yield
    finally:
        listener.close()
        interrupts.listener = None


def outcome_stands() -> None:
    """Ignore signals from now on, because the process is about to end."""
    with interrupts.critical():
        if interrupts.listener is not None:
            interrupts.listener.over.set()


class Listener:
    """The watcher of signals. It ends the process if the command does not."""

    def __init__(self, last_words: OnInterrupt) -> None:
        self.first: int | None = None
        self.noticed = threading.Event()
        self.over = threading.Event()
        self._last_words = last_words
        self._command = threading.current_thread()
        self._numbers, self._write_numbers = os.pipe()
        self.arrived, self._not_arrived = os.pipe()  # readable after the first signal, because the write end is closed
        os.set_blocking(self._write_numbers, False)
        # Ignored signals stay ignored, as under nohup.
        numbers = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        self._watcher = threading.Thread(target=self._watch, name="signals", daemon=True)
        self._watcher.start()
        self._wakeup_before = signal.set_wakeup_fd(self._write_numbers, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _nothing) for number in numbers}

    def close(self) -> None:
        with interrupts.critical():  # do not disturb a watcher that is ending the process
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
            if not interrupts.lock.acquire(timeout=interrupts.CRITICAL_S):
                self._end(locked=False)
            try:
                noticed = self.noticed.is_set()
                waits = limit_s != interrupts.UNWIND_S if noticed else not limit_s and interrupts.registered
                if not waits and not self.over.is_set():
                    self._end(locked=True)
            finally:
                interrupts.lock.release()
            limit_s = interrupts.UNWIND_S if noticed else interrupts.NOTICE_S

    def _end(self, *, locked: bool) -> NoReturn:
        """End the process. Without the lock, the guardians of the processes replace the registered actions."""
        error = self.interrupted()
        if locked:
            interrupts.abandon({self._command, *(thread for thread, _ in interrupts.registered)}, error)
        interrupts.do_action(self._last_words, error)
        os._exit(ExitCode.INTERRUPTED)


def _nothing(_number: int, _frame: FrameType | None) -> None: ...


def write_to_stderr(error: Interrupted) -> None:
    """Write the message directly to the standard error, without locks."""
    shown = "\r\x1b[K\x1b[?25h" if os.isatty(2) else ""  # overwrites a progress bar and shows the cursor again
    os.write(2, f"{shown}error: {error}\n".encode())
