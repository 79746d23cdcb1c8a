"""Is the engine computing? Asked only when nothing has come out of it for long."""

import contextlib
import time

import psutil

WORKING_SHARE = 0.12  # of one core; an idle vLLM on CPUs was seen at 0.06
LOOK_S = 2.0
# A CPU engine that computes without an answer may be in one long step (a big prefill on a slow machine), or may be
# spinning for ever: it is given this many times the ordinary limit.
WORKING_FACTOR = 30.0


def engine_is_working() -> bool:
    """Whether this process, which may be the engine, or its descendants use the processor, measured over two seconds.

    Means something for engines on CPUs only: with a GPU, processes that wait for it may spin.
    """
    before = _processor_seconds()
    time.sleep(LOOK_S)
    return _processor_seconds() - before > WORKING_SHARE * LOOK_S


def _processor_seconds() -> float:
    total = 0.0
    leg = psutil.Process()
    for process in (leg, *leg.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total
