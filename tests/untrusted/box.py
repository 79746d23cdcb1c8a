"""A box for code that may hang or take all memory: a forked process with a time and a memory that it may take.

What is imported stays imported, so that a thousand short pieces of work cost what the work costs.
"""

import multiprocessing
import resource
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

GIB = 1 << 30
LIMIT_S = 60.0


def in_box(
    work: Callable[[int], str], count: int, *, limit_s: float = LIMIT_S, more_bytes: int = GIB
) -> Iterator[tuple[int, str]]:
    """(number, what `work` said of it) for 0 to count - 1; a number that hung or died says so, and the others go on."""
    begin = 0
    while begin < count:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_within, args=(work, begin, count, theirs, more_bytes))
        process.start()
        theirs.close()
        for number in range(begin, count):
            said = _answer(ours, limit_s, process)
            begin = number + 1
            if said is None:
                yield number, f"no answer within {limit_s:g} s"
                break
            yield number, said
            if process.exitcode is not None and not ours.poll():
                break
        process.kill()
        process.join()
        ours.close()


def _answer(ours: Connection, limit_s: float, process: multiprocessing.process.BaseProcess) -> str | None:
    if not ours.poll(limit_s):
        return None
    try:
        said: str = ours.recv()
        return said
    except EOFError:
        process.join()
        return f"the process died with {process.exitcode}"


def _within(work: Callable[[int], str], begin: int, count: int, theirs: Connection, more_bytes: int) -> None:
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more_bytes, now + more_bytes))
    for number in range(begin, count):
        try:
            said = work(number)
        except BaseException as error:
            said = "".join(traceback.format_exception(error)[-6:])
        theirs.send(said)
