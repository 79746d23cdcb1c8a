"""Is the engine computing? Asked only when nothing has come out of it for long."""

import time

import psutil

from runs.environment import processor_s

WORKING_SHARE = 0.12  # of one core; an idle vLLM on CPUs was seen at 0.06
LOOK_S = 2.0
# A CPU engine that computes without an answer may be in one long step (a big prefill on a slow machine), or may be
# spinning for ever: it is given this many times the ordinary limit.
WORKING_FACTOR = 30.0


def engine_is_working() -> bool:
    """Whether this process, which may be the engine, or its descendants use the processor, measured over two seconds.

    Means something for engines on CPUs only: with a GPU, processes that wait for it may spin.
    """
    before_s = _family_s()
    time.sleep(LOOK_S)
    return _family_s() - before_s > WORKING_SHARE * LOOK_S


def _family_s() -> float:
    leg = psutil.Process()
    return processor_s((leg, *leg.children(recursive=True)))
