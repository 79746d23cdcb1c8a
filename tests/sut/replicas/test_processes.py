"""Replicas' processes on this machine: which of them are waited for no more."""

import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from sut.replicas.processes import Standstill
from tests.support.legs import until


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def never_lasts(standstill: Standstill) -> None:
    for _ in range(5):
        time.sleep(0.5)
        assert not standstill.lasts()


def test_a_process_that_a_signal_stopped(sleeper: "subprocess.Popen[bytes]") -> None:
    standstill = Standstill(sleeper.pid, longest_s=1.5)
    never_lasts(standstill)
    sleeper.send_signal(signal.SIGSTOP)
    until(standstill.lasts, "that to be seen")
    sleeper.send_signal(signal.SIGCONT)
    until(lambda: not standstill.lasts(), "its going on to be seen")
    never_lasts(standstill)


def test_a_stop_that_may_yet_end(sleeper: "subprocess.Popen[bytes]") -> None:
    standstill = Standstill(sleeper.pid, longest_s=1e9)
    sleeper.send_signal(signal.SIGSTOP)
    never_lasts(standstill)
