"""One run's process, seen from its parent: heartbeat, signals, and an end that leaves nothing behind.

The child's process group (`runs/child.py`) holds the engine's processes too.
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

from runs.child import owned
from runs.errors import ExecutionError, ExitCode, Interrupted, StalledError, error_of
from runs.harness import HARNESS_ROOT, module_path
from runs.interrupts import ENDING, critical, ended, ended_within, if_abandoned
from runs.record.layout import RunDir
from runs.record.progress import SILENCE_RUNNING_S, SILENCE_STARTING_S, Progress, read_progress
from runs.temporary import temporary_folder
from sut.watchdog import Watchdog

COMMAND = (sys.executable, "-m", "scenarios.run.start")
BESIDE = "beside"  # the engine's core has a process beside the run's
NO_ENGINE = "none"  # for a run whose engines have processes of their own
POLL_S = 0.2
REPORT_INTERVAL_NS = 10**9
STOP_GRACE_S = 10.0  # a busy machine may take seconds to let the run write down why it ends
FULL_DISK_BYTES = 64 << 10


class EarlyRun:
    """A run's process, started before the run is checked: it imports the engine's code and waits.

    A context manager; on leaving, nothing of the process is left, whether it ran the run or not.

    Args:
        environment: variables for the process; those set by the user win.
        beside: the engine's core will have a process beside the run's.
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
            engine: as planned. Where engine or environment are not what the process was started with, it is ended
                and another one started.
            on_progress: called with the last heartbeat, every second and when there is a new one.

        Raises:
            The child's own failure as it recorded it (InputError, SetupError, ExecutionError, Interrupted), or
            ExecutionError when it ended without naming a cause or stopped writing heartbeats.
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
    output: IO[bytes]  # an unnamed file, for what it writes before it has a run directory


@contextlib.contextmanager
def _run_process(engine: str, environment: dict[str, str], beside: bool) -> Iterator[_Child]:
    """A process that waits for its run directory; on leaving, its whole group is ended.

    Its temporary directory is its own and removed with it: vLLM leaves sockets and `vllm_dist_*` files there. [vLLM
    0.32.0: vllm/utils/network_utils.py] PyTorch's cache of compiled code and Ray's directory stay where they were.
    """
    with contextlib.ExitStack() as at_the_end:
        output = at_the_end.enter_context(tempfile.TemporaryFile())
        with critical():
            own = str(at_the_end.enter_context(temporary_folder("run-")))
            process = _start(engine, environment, beside, output, own)
            at_the_end.enter_context(owned(process, own))
        yield _Child(process, output)


def _start(
    engine: str, environment: dict[str, str], beside: bool, output: IO[bytes], folder: str
) -> "subprocess.Popen[bytes]":
    common = tempfile.gettempdir()  # shared by all runs
    kept = {"TORCHINDUCTOR_CACHE_DIR": f"{common}/torchinductor_{os.getuid()}", "RAY_TMPDIR": common}
    # The plan's first: vLLM's processes, which take names of their own, find their titles by the first variable, and
    # must not set that one anew, as PyTorch does its cache. [setproctitle, spt_setup.c]
    variables = {**environment, **kept, **os.environ, **module_path(), "PYTHONUNBUFFERED": "1", "TMPDIR": folder}
    return subprocess.Popen(
        [*COMMAND, engine, *[BESIDE] * beside],
        cwd=HARNESS_ROOT,  # the first place where Python looks for modules
        env=variables,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _hand_over(child: _Child, run_dir: RunDir) -> None:
    """Write the run directory to the process. One that has ended is noticed by `_watch`."""
    assert child.process.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.process.stdin as pipe:
        pipe.write(os.fsencode(run_dir.root.resolve()))


def _keep_output(child: _Child, run_dir: RunDir) -> None:
    """Save the output of a process that ended before it took its run directory."""
    if not run_dir.engine_log.exists():
        child.output.seek(0)
        with contextlib.suppress(OSError), run_dir.engine_log.open("wb") as log:
            shutil.copyfileobj(child.output, log)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Have the run write down why it ends, and end."""
    process.terminate()
    ended_within(process, STOP_GRACE_S)


def _watch(child: "subprocess.Popen[bytes]", run_dir: RunDir, on_progress: Callable[[Progress], None]) -> None:
    """Wait for the child to end, passing heartbeats on; raise when they stop."""
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
                "see engine.log",
            )


def _raise_for(code: int, progress: Progress | None, run_dir: RunDir) -> None:
    error = progress.error if progress else None
    if error:
        raise error_of(error)
    if -code in ENDING:  # it reached all processes, as those of a batch job; this one takes it later
        raise Interrupted(f"the run's process was ended by {signal.Signals(-code).name}")
    if code < 0:
        raise ExecutionError(
            f"the run's process was killed by {signal.Signals(-code).name}", "see engine.log and the kernel's log"
        )
    if code != ExitCode.OK:
        if shutil.disk_usage(run_dir.root).free < FULL_DISK_BYTES:  # the run's process could not write down its end
            raise ExecutionError(f"the disk of {run_dir.root} is full", "free disk space and rerun")
        raise ExecutionError(f"the run's process ended with code {code} without naming a cause", "see engine.log")
    if progress is None or progress.phase != "done":
        raise ExecutionError("the run's process ended early", "see engine.log")
