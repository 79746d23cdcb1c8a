"""A sandbox for code that may hang or take all memory: a forked process with limits of CPU time and memory.

Imported modules stay imported, so a thousand short pieces of work take only the time of the work.
"""

import multiprocessing
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from tests.support.processes.patience import IDLE_S, POLL_S, Patience

GIB = 1 << 30
LIMIT_S = 60


def run_in_sandbox(
    work: Callable[[int], str], count: int, *, limit_s: int = LIMIT_S, more_bytes: int = GIB
) -> Iterator[tuple[int, str]]:
    """Yield (number, result of `work`) for 0 to count - 1.

    After a hang or a death, yield its description and continue.
    """
    begin = 0
    while begin < count:
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_within, args=(work, begin, count, sender, limit_s, more_bytes))
        process.start()
        sender.close()
        for number in range(begin, count):
            begin, report = number + 1, _response(receiver)
            if report is None:
                yield number, _ending(process)
                break
            yield number, report
        process.kill()
        process.join()
        receiver.close()


def _response(receiver: Connection) -> str | None:
    try:
        if not receiver.poll(POLL_S):
            patience = Patience()
            while not receiver.poll(POLL_S):
                patience.check("what was said of a piece of work")
        return str(receiver.recv())
    except (AssertionError, EOFError):
        return None


def _ending(process: multiprocessing.process.BaseProcess) -> str:
    process.join(1)
    if process.exitcode is None:
        return f"no progress for {IDLE_S:g} s"
    return "more CPU time than it may take" if process.exitcode == -signal.SIGXCPU else f"died with {process.exitcode}"


def _within(
    work: Callable[[int], str], begin: int, count: int, sender: Connection, limit_s: int, more_bytes: int
) -> None:
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more_bytes, now + more_bytes))
    for number in range(begin, count):
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + limit_s, resource.RLIM_INFINITY))
        try:
            report = work(number)
        except BaseException as error:
            report = "".join(traceback.format_exception(error)[-6:])
        sender.send(report)
