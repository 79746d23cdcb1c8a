"""The supervision of a run's process by its parent: heartbeat, signals, and the end of all child processes.

The child's process group (`runs/processes/child.py`) contains the engine's processes too.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from runs.errors import ExecutionError, ExitCode, Interrupted, StalledError, error_of
from runs.files.reserve import FREE_DISK_SPACE
from runs.files.temporary import temporary_folder
from runs.harness import HARNESS_ROOT, module_path
from runs.processes.child import owned
from runs.processes.interrupts import ENDING, critical, ended, ended_within, if_abandoned
from runs.record.layout import RunDir
from runs.record.progress import SILENCE_RUNNING_S, SILENCE_STARTING_S, Progress, read_progress
from sut.watchdog import Watchdog

COMMAND = (sys.executable, "-m", "scenarios.launch.start")
BESIDE = "beside"  # argument for an engine whose core has its own process
NO_ENGINE = "none"  # argument for a run whose engines have their own processes
POLL_S = 0.2
REPORT_INTERVAL_NS = 10**9
STOP_GRACE_S = 10.0  # On a busy machine, the run may take seconds to write its last state.
FULL_DISK_BYTES = 64 << 10


class EarlyRun:
    """The process of a run, started before the checks of the run. It imports the engine's code and waits.

    It is a context manager, which ends the process and its children on exit.

    Args:
        environment: Variables for the process; the user's variables override them.
        beside: True if the engine's core will have its own process.
    """

    def __init__(self, engine: str, environment: dict[str, str], *, beside: bool = False) -> None:
        self._started_for = (engine, environment)
        self._beside = beside
        self._at_the_end = contextlib.ExitStack()

    def __enter__(self) -> "EarlyRun":
        self._child = self._at_the_end.enter_context(_run_process(*self._started_for, self._beside))
        return self

    def __exit__(self, *_: object) -> None:
        self._at_the_end.close()

    def run(
        self, run_dir: RunDir, engine: str, environment: dict[str, str], on_progress: Callable[[Progress], None]
    ) -> None:
        """Let the process start a planned run, and wait for its end.

        Args:
            engine: Planned engine. If the engine or the environment differ from those at the start of the process,
                a new process replaces it.
            on_progress: Called with each new heartbeat, and at least once per second with the last one.

        Raises:
            InputError, SetupError, ExecutionError, Interrupted: As recorded by the process.
            ExecutionError: If the process ended without a recorded error or stopped writing heartbeats.
        """
        if (engine, environment) != self._started_for:
            self._at_the_end.close()
            self._child = self._at_the_end.enter_context(_run_process(engine, environment, self._beside))
        child = self._child
        with self._at_the_end:
            try:
                with if_abandoned(lambda _: _stop(child.process)):
                    _hand_over(child, run_dir)
                    _watch(child.process, run_dir, on_progress)
            except Interrupted:
                _stop(child.process)
                raise
            finally:
                _keep_output(child, run_dir)
        _raise_for(child.process.returncode, read_progress(run_dir.progress), run_dir)


@dataclass(frozen=True)
class _Child:
    process: "subprocess.Popen[bytes]"
    output: IO[bytes]  # unnamed file for the output before the run directory exists


@contextlib.contextmanager
def _run_process(engine: str, environment: dict[str, str], beside: bool) -> Iterator[_Child]:
    """Start a process that waits for its run directory; end its whole process group on exit.

    The process has its own temporary directory, because vLLM leaves sockets and `vllm_dist_*` files behind. [vLLM
    0.32.0: vllm/utils/network_utils.py] PyTorch's cache of compiled code and Ray's directory stay shared.
    """
    with contextlib.ExitStack() as at_the_end:
        output = at_the_end.enter_context(tempfile.TemporaryFile())
        with critical():
            directory = str(at_the_end.enter_context(temporary_folder("run-")))
            process = _start(engine, environment, beside, output, directory)
            at_the_end.enter_context(owned(process, directory))
        yield _Child(process, output)


def _start(
    engine: str, environment: dict[str, str], beside: bool, output: IO[bytes], folder: str
) -> "subprocess.Popen[bytes]":
    common = tempfile.gettempdir()  # the directory that all runs share
    kept = {"TORCHINDUCTOR_CACHE_DIR": f"{common}/torchinductor_{os.getuid()}", "RAY_TMPDIR": common}
    # The plan's variables come first: vLLM's processes find their title by the first variable, which must stay
    # unchanged. PyTorch changes the variable of its cache. [setproctitle, spt_setup.c]
    variables = {**environment, **kept, **os.environ, **module_path(), "PYTHONUNBUFFERED": "1", "TMPDIR": folder}
    return subprocess.Popen(
        [*COMMAND, engine, *[BESIDE] * beside],
        cwd=HARNESS_ROOT,  # the first entry of Python's module path
        env=variables,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _hand_over(child: _Child, run_dir: RunDir) -> None:
    """Write the run directory to the process. `_watch` detects a process that has ended."""
    assert child.process.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.process.stdin as pipe:
        pipe.write(os.fsencode(run_dir.root.resolve()))


def _keep_output(child: _Child, run_dir: RunDir) -> None:
    """Save the output of a process that ended before it received its run directory."""
    if not run_dir.engine_log.exists():
        child.output.seek(0)
        with contextlib.suppress(OSError), run_dir.engine_log.open("wb") as log:
            shutil.copyfileobj(child.output, log)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the run's process, with time to write its last state."""
    process.terminate()
    ended_within(process, STOP_GRACE_S)


def _watch(child: "subprocess.Popen[bytes]", run_dir: RunDir, on_progress: Callable[[Progress], None]) -> None:
    """Wait for the child to end and pass its heartbeats on; raise if they stop."""
    silence = {phase: Watchdog(SILENCE_STARTING_S, 0) for phase in ("", "starting", "engine", "warm-up")}
    silence["running"] = Watchdog(SILENCE_RUNNING_S, 0)
    last_ns = reported_ns = 0
    while not ended(child, POLL_S):
        progress = read_progress(run_dir.progress)
        phase = progress.phase if progress else ""
        now_ns = progress.time_ns if progress else 0
        if now_ns != last_ns or time.time_ns() - reported_ns >= REPORT_INTERVAL_NS:
            reported_ns = time.time_ns()
            on_progress(progress or Progress("importing", reported_ns, child.pid, "", ""))
        last_ns = now_ns
        watchdog = silence.get(phase, silence["running"])
        stalled_s = watchdog.stalled_for(True, now_ns)
        if stalled_s is not None:
            raise StalledError(
                f"the run's process wrote no heartbeat for {stalled_s:.0f} s (phase {phase or 'starting'})",
                "read engine.log in the run directory",
            )


def _raise_for(code: int, progress: Progress | None, run_dir: RunDir) -> None:
    error = progress.error if progress else None
    if error:
        raise error_of(error)
    if -code in ENDING:  # A batch system signals all processes; this process handles the signal later.
        raise Interrupted(f"the run's process was ended by {signal.Signals(-code).name}")
    if code < 0:
        raise ExecutionError(
            f"the run's process was killed by {signal.Signals(-code).name}",
            "read engine.log and the kernel log (dmesg)",
        )
    if code != ExitCode.OK:
        if shutil.disk_usage(run_dir.root).free < FULL_DISK_BYTES:  # The process could not record its error.
            raise ExecutionError(f"the disk of {run_dir.root} is full", FREE_DISK_SPACE)
        raise ExecutionError(
            f"the run's process exited with code {code} and reported no error", "read engine.log in the run directory"
        )
    if progress is None or progress.phase != "done":
        raise ExecutionError("the run's process ended early", "read engine.log in the run directory")
