"""Workers leave signals to their command and end with it, without traceback or remaining process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conftest import ROOT
from tests.support.processes.patience import finish
from tests.support.processes.waiting_workers import INTERRUPTED, WORKERS
from tests.support.processes.warm import hear_signals


@contextmanager
def command(context: str) -> Iterator[tuple["subprocess.Popen[str]", list[int]]]:
    """Start a command in a process group of its own. Yield it with the IDs of its workers."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.processes.waiting_workers", context],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=hear_signals,
    ) as process:  # fmt: skip
        try:
            yield process, [int(process.stdout.readline()) for _ in range(WORKERS)]
        finally:
            process.kill()


@pytest.mark.parametrize("context", ["forkserver", "spawn"])
@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]])
def test_a_signal_to_the_process_group_ends_all_workers(context: str, numbers: list[int]) -> None:
    with command(context) as (process, workers):
        for number in numbers:
            os.killpg(process.pid, number)
        _, error = finish(process)
    assert (process.returncode, error) == (INTERRUPTED, "")
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def test_workers_end_with_a_killed_command() -> None:
    with command("forkserver") as (process, _):
        process.kill()
        finish(process)  # the workers share its streams, which end with the last worker
