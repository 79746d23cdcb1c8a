"""One leg's process, watched from outside: heartbeat, signals, and an end that leaves nothing behind.

The child leads a process group of its own, which holds the engine's processes too; whatever way the leg ends, the
group is killed. A guardian (a shell waiting on a pipe) does the same should this process die without a chance to.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

from runs.environment import HARNESS_ROOT
from runs.errors import ERROR_BY_EXIT_CODE, ExecutionError, ExitCode, Interrupted
from runs.layout import RunDir
from runs.progress import Progress, read_progress
from scenarios.watchdog import Watchdog

POLL_S = 0.2
SILENCE_RUNNING_S = 20.0  # no heartbeat for so long: the leg's main thread is stuck
SILENCE_STARTING_S = 180.0  # imports and engine start may hold the interpreter for long
STOP_GRACE_S = 10.0  # a busy machine may take seconds to let the leg write down why it ends
GROUP_GONE_TIMEOUT_S = 5.0
FULL_DISK_BYTES = 64 << 10


class _Signals:
    """The first signal that asks for an end; later ones are left to the clean-up."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.held = False

    def arrive(self, number: int, _frame: FrameType | None) -> None:
        if self.first is None:
            self.first = number
            if not self.held:
                self.act()

    def act(self) -> None:
        if self.first is not None:
            raise Interrupted(f"interrupted by {signal.Signals(self.first).name}")


_signals = _Signals()


@contextlib.contextmanager
def signals_raise() -> Iterator[None]:
    """Within: the first SIGINT, SIGTERM or SIGHUP raises Interrupted; later ones are left to the clean-up."""
    global _signals
    _signals = _Signals()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, _signals.arrive) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Within: a signal waits for the end of the block, so that no process is lost between its start and its end."""
    before = _signals.first
    _signals.held = True
    try:
        yield
    finally:
        _signals.held = False
    if _signals.first != before:
        _signals.act()


def run_leg_process(run_dir: RunDir, environment: dict[str, str], on_progress: Callable[[Progress], None]) -> None:
    """Run a planned leg in a process of its own and wait for its end.

    Args:
        run_dir: holds the manifest.
        environment: variables for the child; those set by the user win.
        on_progress: told of each new heartbeat.

    Raises:
        The child's own failure as it wrote it down (InputError, SetupError, ExecutionError, Interrupted), or
        ExecutionError when it ended or fell silent without a word.
    """
    with contextlib.ExitStack() as at_the_end:
        with signals_held():
            child = _start(run_dir, environment)
            at_the_end.enter_context(_guardian(child.pid))
            at_the_end.callback(_end_group, child)
        try:
            _watch(child, run_dir, on_progress)
        except Interrupted:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(STOP_GRACE_S)
            raise
    _raise_for(child.returncode, read_progress(run_dir.progress), run_dir)


def _start(run_dir: RunDir, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    paths = [str(HARNESS_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**environment, **os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    with run_dir.engine_log.open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "scenarios.leg_process", str(run_dir.root.resolve())],
            cwd=run_dir.root,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _watch(child: "subprocess.Popen[bytes]", run_dir: RunDir, on_progress: Callable[[Progress], None]) -> None:
    """Wait for the child to end, passing heartbeats on; raise when it falls silent."""
    silence = {phase: Watchdog(SILENCE_STARTING_S, 0) for phase in ("", "starting", "engine", "warm-up")}
    silence["running"] = Watchdog(SILENCE_RUNNING_S, 0)
    last_ns = 0
    while True:
        try:
            child.wait(POLL_S)
            return
        except subprocess.TimeoutExpired:
            pass
        progress = read_progress(run_dir.progress)
        phase = progress.phase if progress else ""
        now_ns = progress.time_ns if progress else 0
        if progress is not None and now_ns != last_ns:
            on_progress(progress)
        last_ns = now_ns
        watchdog = silence.get(phase, silence["running"])
        stalled_s = watchdog.stalled_for(True, now_ns)
        if stalled_s is not None:
            raise ExecutionError(
                f"the leg's process gave no sign of life for {stalled_s:.0f} s (phase {phase or 'starting'})",
                "see engine.log",
            )


@contextlib.contextmanager
def _guardian(group: int) -> Iterator[None]:
    """Kill the group should this process end without having left the block."""
    guardian = subprocess.Popen(
        ["/bin/sh", "-c", f"read _ || kill -9 -{group}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guardian.kill()
        guardian.wait()
        if guardian.stdin:
            guardian.stdin.close()


def _end_group(child: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of the child's process group and wait until it is gone."""
    with signals_held():
        end = time.monotonic() + GROUP_GONE_TIMEOUT_S
        while time.monotonic() < end:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                break
            child.poll()  # reaps the leader, without which the group never ends
            time.sleep(0.02)
        child.wait()


def _raise_for(code: int, progress: Progress | None, run_dir: RunDir) -> None:
    error = progress.error if progress else None
    if error:
        kind = ERROR_BY_EXIT_CODE.get(error["exit_code"], ExecutionError)
        raise kind(error["message"], error["fix"])
    if code < 0:
        raise ExecutionError(
            f"the leg's process was killed by {signal.Signals(-code).name}", "see engine.log and the kernel's log"
        )
    if code != ExitCode.OK:
        if shutil.disk_usage(run_dir.root).free < FULL_DISK_BYTES:  # the leg's process could not write down its end
            raise ExecutionError(f"the disk of {run_dir.root} is full", "free disk space and run the leg again")
        raise ExecutionError(f"the leg's process ended with code {code} and named no cause", "see engine.log")
    if progress is None or progress.phase != "done":
        raise ExecutionError("the leg's process ended before it was done", "see engine.log")
