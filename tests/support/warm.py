"""`main.py` in a process of its own that has its modules already: forked from one that imported them, once for all.

Two thirds of what a short leg computes is its start; whoever runs hundreds of them saves minutes. `StartedMain`
(tests/conftest.py) starts Python anew, as a user does.
"""

import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = [__name__, "main", "scenarios.leg.parent", "scenarios.leg.plan", "scenarios.audit.run"]
MODULES += ["compliance.verify.verdict", "compliance.accuracy.rouge", "compliance.accuracy.punkt"]
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
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None
    for number, path in ((1, stdout), (2, stderr)):
        with path.open("wb") as stream:
            os.dup2(stream.fileno(), number)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    sys.path[:] = [str(ROOT), *(path for path in sys.path if path != str(ROOT))]
    sys.argv = ["main.py", *arguments]
    import main

    sys.exit(main.entry())
