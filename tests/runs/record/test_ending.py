"""What is said of a leg whose record was not closed as finished."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from runs.record.leg import unfinished
from runs.record.manifest import Manifest
from tests.support.records import record as a_record


def record(**changes: Any) -> Manifest:
    host = {"hostname": changes.pop("hostname", platform.node())}
    return a_record(None, {"host": host}, **{"parent_pid": os.getpid(), "status": "running"} | changes)


@pytest.fixture
def living() -> Iterator[int]:
    """A process that lives as long as the test."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_leg_that_failed_says_why() -> None:
    text = unfinished(record(status="failed", error={"message": "the engine died"}))
    assert text == "the leg did not finish, its record says failed (the engine died)"
    assert "says interrupted" in unfinished(record(status="interrupted"))


def test_a_leg_that_still_runs(living: int, gone: int) -> None:
    assert unfinished(record(pid=living, parent_pid=gone)).endswith(f"it still runs (process {living})")
    assert unfinished(record(status="planned", parent_pid=living)).endswith(f"it still runs (process {living})")


def test_a_leg_whose_processes_are_gone(gone: int) -> None:
    text = unfinished(record(pid=gone))  # its parent is the reader: it runs no leg
    assert text.startswith(f"the leg never ended: its record says running, but its process {gone} is gone")


def test_a_process_that_only_bears_the_number(living: int) -> None:
    long_ago_ns = time.time_ns() - 3600 * 10**9
    assert "never ended" in unfinished(record(pid=living, parent_pid=living, start_time_ns=long_ago_ns))


def test_processes_of_another_machine_are_not_looked_for(living: int) -> None:
    text = unfinished(record(pid=living, hostname="elsewhere"))
    assert text == "the leg did not finish, its record says running (on another machine)"
