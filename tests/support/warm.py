"""`main.py`, and its legs, in processes of their own that have their modules already: forked from one that imported
them, once for all.

Most of what a short leg computes is the start of two Pythons; whoever runs hundreds of them saves minutes.
`StartedMain` (tests/conftest.py) starts Python anew, and so do its legs, as a user's. A leg of vLLM is never forked:
its libraries read variables when they are loaded.
"""

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

ROOT = Path(__file__).resolve().parents[2]
MODULES = [__name__, "main", "scenarios.leg.parent", "scenarios.leg.plan", "scenarios.audit.run"]
MODULES += ["compliance.verify.verdict", "compliance.accuracy.rouge", "compliance.accuracy.punkt"]
MODULES += ["scenarios.leg.process"]
LEG = ["-m", "scenarios.leg.start"]
FOR_LEGS = "for-legs"  # a folder whose `sitecustomize` does nothing in main.py
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(MODULES)
_lock = threading.Lock()  # who reads how a process ended does so alone


def _start(process: multiprocessing.process.BaseProcess) -> None:
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = str(ROOT)  # for the process that imports
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    process.start()


def run(
    arguments: Sequence[object], folder: Path, timeout_s: float, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run `main.py ARGUMENTS…` in a folder to its end; its exit code, standard output and standard error."""
    with tempfile.TemporaryDirectory() as said:
        streams = Path(said, "stdout"), Path(said, "stderr")
        words = [str(word) for word in arguments]
        process = _context.Process(target=_enter, args=(words, folder, {**os.environ, **(environment or {})}, *streams))
        with _lock:
            _start(process)
        ended = wait([process.sentinel], timeout_s)
        with _lock:
            if not ended:
                process.kill()
            process.join()
        assert ended, f"main.py {' '.join(words)} took more than {timeout_s:g} s"
        stdout, stderr = (stream.read_text() for stream in streams)
        return int(process.exitcode or 0), stdout, stderr


def _enter(arguments: list[str], folder: Path, environment: dict[str, str], stdout: Path, stderr: Path) -> None:
    os.setsid()
    os.chdir(folder)
    _take_environment(environment)
    for number, path in ((1, stdout), (2, stderr)):
        with path.open("wb") as stream:
            os.dup2(stream.fileno(), number)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
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
    """Forks a leg's process instead of starting a Python, unless that is to find a `sitecustomize`."""

    def __init__(self, args: Any, *positional: Any, **named: Any) -> None:
        if args[1:3] == LEG and args[3] != "vllm" and not _is_customised(named["env"]):
            named["preexec_fn"] = partial(_become_leg, args[3:], named["env"])
        super().__init__(args, *positional, **named)


def is_for_legs(environment: Mapping[str, str]) -> bool:
    """Whether an environment changes legs alone, so that main.py needs no Python of its own to find it."""
    return environment.keys() == {"PYTHONPATH"} and f"/{FOR_LEGS}{os.pathsep}" in environment["PYTHONPATH"]


def _is_customised(environment: Mapping[str, str]) -> bool:
    return any(Path(path, "sitecustomize.py").exists() for path in environment["PYTHONPATH"].split(os.pathsep))


def _become_leg(arguments: list[str], environment: Mapping[str, str]) -> NoReturn:
    """In the new process, whose session, directory and standard streams are those of the leg; it never returns to be
    another program. With the pipe that would tell of that, all that a Python would not have inherited is closed."""
    try:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)  # as Python does at its start
        _take_environment(environment)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
        sys.argv = ["start.py", *arguments]
        from scenarios.leg import start

        start.main()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
