"""A command with workers that never end: says their process ids, and what ended it. To be started with -m."""

import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from runs.workers import end_workers, leave_signals, signals_later

ENDING = (signal.SIGINT, signal.SIGTERM)
heard: list[int] = []
INTERRUPTED, WORKERS, TASKS = 130, 2, 20


def wait_for_ever(number: int) -> None:
    os.write(1, f"{os.getpid()}\n".encode())
    signal.pause()


def interrupt(number: int, frame: object) -> None:
    """The first signal counts, as in main.py."""
    if not heard:
        heard.append(number)
        raise KeyboardInterrupt


def main(context: str) -> int:
    for number in ENDING:
        signal.signal(number, interrupt)
    pool = ProcessPoolExecutor(WORKERS, get_context(context), leave_signals)
    try:
        with signals_later():
            futures = [pool.submit(wait_for_ever, number) for number in range(TASKS)]
        for future in futures:
            future.result()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        end_workers(pool, at_once=True)
        for number in ENDING:  # the outcome stands, as in main.py
            signal.signal(number, signal.SIG_IGN)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
