"""`main.py` and its runs in forked processes that have already imported their modules.

Most of the time of a short run is the start of two Pythons. Tests start hundreds of runs, so this saves minutes. A
`main.py` that is started anew (tests/conftest.py) starts its runs anew, as for a user. A run of vLLM is never forked,
because its libraries read variables when they are loaded.
"""

import importlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NoReturn

from tests.support.processes import patience

ROOT = Path(__file__).resolve().parents[3]
MODULES = [__name__, "main", "scenarios.launch.parent", "scenarios.launch.plan", "scenarios.audit.run_audit"]
MODULES += ["compliance.results.policy", "compliance.accuracy.rouge", "compliance.accuracy.punkt"]
MODULES += [
    "scenarios.launch.run_process",
    "compliance.report.report_page",
    "tests.support.engines.cheats",
    "sut.replicas.replica",
]
# Modules that main.py and the processes of its runs import.
RUN_CODE = (*MODULES, "scenarios.commands.run", "scenarios.launch.start")
RUN, REPLICA = ["-m", "scenarios.launch.start"], ["-m", "sut.replicas.replica"]
FOR_RUNS = "for-runs"  # a folder whose `sitecustomize` does nothing in main.py
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(MODULES)
_lock = threading.Lock()  # held while the end of a process is read


def _start(process: multiprocessing.process.BaseProcess) -> None:
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = str(ROOT)  # for the process that imports
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    process.start()


class Process:
    """A started `main.py ARGUMENTS…` in a folder and a session of its own, with the methods of Popen that tests use."""

    def __init__(self, arguments: Sequence[object], folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._output = tempfile.TemporaryDirectory()
        self.streams = Path(self._output.name, "stdout"), Path(self._output.name, "stderr")
        self.args = ["main.py", *map(str, arguments)]
        process_arguments = self.args[1:], folder, {**os.environ, **(environment or {})}, *self.streams
        self._process = _context.Process(target=_enter, args=process_arguments)
        with _lock:
            _start(self._process)
        self.pid = int(self._process.pid or 0)

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        with _lock:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        if not wait([self._process.sentinel], timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.poll()  # type: ignore[return-value]  # it has ended

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return standard output and standard error, once; both are empty if it ended before it could write."""
        self.wait(timeout)
        with self._output:
            stdout, stderr = (stream.read_text() if stream.exists() else "" for stream in self.streams)
        return stdout, stderr

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    arguments: Sequence[object], folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run `main.py ARGUMENTS…` in a folder to its end. Return its exit code, standard output and standard error."""
    process = Process(arguments, folder, environment)
    try:
        stdout, stderr = patience.finish(process)
    finally:
        process.kill()
    return process.wait(), stdout, stderr


def hear_signals() -> None:
    """Let signals end this process, even if the tests run under nohup or a scoring test started the fork server.

    `runs/processes/workers.py` blocks signals while it starts processes, and the fork server is one of them.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def _enter(arguments: list[str], folder: Path, environment: dict[str, str], stdout: Path, stderr: Path) -> None:
    os.setsid()
    hear_signals()
    os.chdir(folder)
    _take_environment(environment)
    for number, path in ((1, stdout), (2, stderr)):
        with path.open("wb") as stream:
            os.dup2(stream.fileno(), number)
    # As Python does, write complete lines of the standard error at once.
    sys.stdout, sys.stderr = (open(number, "w", size, closefd=False) for number, size in ((1, -1), (2, 1)))  # noqa: SIM115
    sys.path[:] = [str(ROOT), *(path for path in sys.path if path != str(ROOT))]
    sys.argv = ["main.py", *arguments]
    subprocess.Popen = _Popen  # type: ignore[misc]
    import main

    sys.exit(main.entry())


def _take_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None


class _Popen(subprocess.Popen):  # type: ignore[type-arg]
    """Fork a run or a kept replica instead of starting a Python, unless it must find a `sitecustomize`."""

    def __init__(self, args: Any, *positional: Any, **named: Any) -> None:
        kept = args[1:3] == REPLICA and named["pass_fds"]
        if (args[1:3] == RUN or kept) and args[3] != "vllm" and not _is_customized(named["env"]):
            named["preexec_fn"] = partial(_become, args[2], args[3:], named["env"], named.get("pass_fds", ()))
        super().__init__(args, *positional, **named)


def is_enough_for(environment: Mapping[str, str]) -> bool:
    """Return whether an environment needs no new Python: it is empty, or changes only runs."""
    runs_alone = environment.keys() == {"PYTHONPATH"} and f"/{FOR_RUNS}{os.pathsep}" in environment["PYTHONPATH"]
    return environment.keys() <= {"DUMMY_CHEAT"} or runs_alone


def _is_customized(environment: Mapping[str, str]) -> bool:
    return any(Path(path, "sitecustomize.py").exists() for path in environment["PYTHONPATH"].split(os.pathsep))


def _become(module: str, arguments: list[str], environment: Mapping[str, str], files: Sequence[int]) -> NoReturn:
    """Take over the session, the directory and the standard streams of the child in the new process.

    It never returns to execute another program. Close the pipe that would report that, and all that a Python would not
    inherit.
    """
    try:
        kept = [2, *sorted(files), os.sysconf("SC_OPEN_MAX")]
        for before, after in itertools.pairwise(kept):
            os.closerange(before + 1, after)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)  # as Python does at its start
        _take_environment(environment)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
        sys.argv = [module, *arguments]
        from tests.support.engines import cheats

        cheats.install()
        importlib.import_module(module).main()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
