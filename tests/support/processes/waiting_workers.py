"""A command with workers that never end.

It prints their process IDs, and the signal that ended it. Start it with -m.
"""

import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from runs.errors import Interrupted
from runs.processes.interrupts import wait_for_result
from runs.processes.listening import listening
from runs.processes.workers import leave_signals, signals_later, workers

INTERRUPTED, WORKERS, TASKS = 130, 2, 20


def wait_for_ever(number: int) -> None:
    os.write(1, f"{os.getpid()}\n".encode())
    signal.pause()


def main(context: str) -> int:
    pool = ProcessPoolExecutor(WORKERS, get_context(context), leave_signals)
    try:
        with listening(), workers(pool):
            with signals_later():
                futures = [pool.submit(wait_for_ever, number) for number in range(TASKS)]
            for future in futures:
                wait_for_result(future)
    except Interrupted:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
