"""An end for a sign-off that hangs: it then is degraded, which is no verdict."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

AGAIN_S = 1.0


class OutOfTime(Exception):
    """The limit was reached."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` in the block after so long, and again each second while it goes on.

    Only in the main thread, where signals arrive; inside a block that has a limit, that one counts.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime(f"no verdict within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
