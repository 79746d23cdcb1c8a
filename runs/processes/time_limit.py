"""A time limit for work. At the limit, the work is abandoned as `runs/processes/interrupts.py` describes."""

import contextvars
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from runs.errors import Interrupted
from runs.processes import interrupts

T = TypeVar("T")


class OutOfTime(Exception):
    """The time limit of `within` was exceeded."""


def within(seconds: float, work: Callable[[], T]) -> T:
    """Return the result of `work`, which may take at most `seconds`.

    It runs in a separate thread, which is abandoned at the limit: its registered actions are run, and it stops at its
    next critical block. Inside another `within`, the outer limit counts.

    Raises:
        OutOfTime: If the limit was exceeded. Interrupted: By a signal.
    """
    if getattr(interrupts.of_thread, "limited", False):
        return work()
    from concurrent.futures import Future, wait

    outcome: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        interrupts.of_thread.limited = True
        try:
            outcome.set_result(context.run(work))
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="limited", daemon=True)
    thread.start()
    end = time.monotonic() + seconds
    try:
        while not outcome.done():
            interrupts.raise_if_interrupted()
            if time.monotonic() > end:
                raise OutOfTime(f"not done within {seconds:g} s")
            wait([outcome], min(interrupts.POLL_S, seconds))
    except (OutOfTime, Interrupted) as error:
        interrupts.abandon({thread}, error if isinstance(error, Interrupted) else Interrupted(str(error)))
        raise
    return outcome.result()
