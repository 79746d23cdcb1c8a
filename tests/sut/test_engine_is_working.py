"""Telling a computing engine from an idle one."""

import subprocess
import sys
import threading

import pytest

from sut.watchdog import engine_is_working

pytestmark = pytest.mark.timed  # where many compute, none has much of a core


@pytest.mark.parametrize(
    ("code", "working"),
    [("import time; print(flush=True); time.sleep(3600)", False), ("print(flush=True)\nwhile True: pass", True)],
    ids=["idle", "computing"],
)
def test_a_process_below_is_working(code: str, working: bool) -> None:
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()  # it is up: what follows is what it does
        assert engine_is_working() is working
    finally:
        child.kill()
        child.wait()


def test_the_leg_itself_may_be_the_engine() -> None:
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            pass

    engine = threading.Thread(target=compute)
    engine.start()
    try:
        assert engine_is_working() is True
    finally:
        over.set()
        engine.join()


def test_without_an_engine_nothing_works() -> None:
    assert engine_is_working() is False
