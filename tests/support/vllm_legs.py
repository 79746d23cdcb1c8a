"""Legs with the real vLLM as a user starts them: to their end, or disturbed while their queries are answered."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import psutil

from runs.environment import HARNESS_ROOT
from runs.record.layout import RunDir
from runs.record.progress import Progress, read_progress
from runs.record.requests_log import RequestTable, read_requests
from tests.support.warm import hear_signals

LEG_TIMEOUT_S = 1200.0  # far beyond any leg here, also on a busy machine
# Words that would claim something. INVALID is another word.
CLAIM = re.compile(r"\b(VALID|PASS|PASSED)\b")


@dataclass(frozen=True)
class FinishedLeg:
    """A leg that a user started and that came to its end, whatever that was."""

    run: RunDir
    exit_code: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        log = self.run.engine_log
        tail = log.read_text(errors="replace")[-3000:] if log.exists() else ""
        return f"exit code {self.exit_code}\n{self.stdout}\n{self.stderr}\n--- engine.log\n{tail}"

    @cached_property
    def manifest(self) -> dict[str, Any]:
        content: dict[str, Any] = orjson.loads(self.run.manifest.read_bytes())
        return content

    @cached_property
    def result(self) -> dict[str, Any]:
        content: dict[str, Any] = orjson.loads(self.run.result.read_bytes())
        return content

    @cached_property
    def requests(self) -> RequestTable:
        return read_requests(self.run.requests)

    def claims(self) -> list[str]:
        """Files (and terminal output) in which a word of success stands."""
        texts = {path.name: path.read_text() for path in (self.run.summary, self.run.result) if path.exists()}
        observed = {key: value for key, value in self.manifest.items() if key not in ("asked", "plan", "notes")}
        texts |= {self.run.manifest.name: json.dumps(observed), "stdout": self.stdout, "stderr": self.stderr}
        return [name for name, text in texts.items() if CLAIM.search(text)]


def leg_command(model: Path, run_dir: Path, conf: str, arguments: list[str]) -> list[str]:
    """The command line of a leg, with a user.conf of its own beside the run directory."""
    conf_path = run_dir.with_suffix(".conf")
    conf_path.write_text(conf)
    return [
        sys.executable,
        str(HARNESS_ROOT / "main.py"),
        *arguments,
        "--vllm",
        "--model-path",
        str(model),
        "--user-conf",
        str(conf_path),
        "--output-log-dir",
        str(run_dir),
    ]


def run_leg(command: list[str], run_dir: Path) -> FinishedLeg:
    """Run a leg to its end."""
    done = subprocess.run(
        command, cwd=run_dir.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LEG_TIMEOUT_S
    )
    return FinishedLeg(RunDir(run_dir), done.returncode, done.stdout, done.stderr)


class RunningLeg:
    """A leg whose queries are being answered right now, with all its processes."""

    def __init__(self, command: list[str], run_dir: Path) -> None:
        self.run = RunDir(run_dir)
        self._output = run_dir.with_suffix(".stdout"), run_dir.with_suffix(".stderr")
        with self._output[0].open("wb") as stdout, self._output[1].open("wb") as stderr:
            self.parent = psutil.Popen(
                command,
                cwd=run_dir.parent,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                preexec_fn=hear_signals,
            )
        self.processes: list[psutil.Process] = []

    def wait_until_answering(self) -> None:
        """Return once some queries are answered (and on record) and others are open."""

        def answering() -> bool:
            assert self.parent.poll() is None, f"the leg ended early:\n{self.finished()}"
            now = self.progress  # its rates count what is written to requests.jsonl
            return now is not None and now.phase == "running" and now.samples_per_second > 0 and now.outstanding > 0

        assert wait_for(answering, LEG_TIMEOUT_S), f"no answers:\n{self.finished()}"
        self.processes = [self.parent, *self.parent.children(recursive=True)]

    @property
    def progress(self) -> Progress | None:
        return read_progress(self.run.progress)

    @property
    def leg_process(self) -> psutil.Process:
        """The process of the leg itself, child of the one the user started."""
        assert self.progress is not None
        return psutil.Process(self.progress.pid)

    @property
    def engine_core(self) -> psutil.Process:
        """vLLM's engine core: it names itself so."""
        (core,) = [process for process in self.leg_process.children(recursive=True) if is_engine_core(process)]
        return core

    def finished(self, timeout_s: float = 0.0) -> FinishedLeg:
        """Wait for the end of the process that the user started."""
        try:
            code = self.parent.wait(timeout_s)
        except psutil.TimeoutExpired:
            code = None
        stdout, stderr = (path.read_text() for path in self._output)
        return FinishedLeg(self.run, code if code is not None else -999, stdout, stderr)

    def survivors(self, within_s: float) -> list[str]:
        """Processes of this leg that still run after a while; usually returns long before."""
        wait_for(lambda: not self._alive(), within_s)
        return [f"{process.pid} {process.name()}" for process in self._alive()]

    def _alive(self) -> list[psutil.Process]:
        return [process for process in self.processes if _runs(process)]

    def end(self) -> None:
        """Leave nothing behind, whatever the test found."""
        found = [self.parent, *self.parent.children(recursive=True)] if _runs(self.parent) else []
        for process in {*found, *self.processes}:
            if _runs(process):
                process.send_signal(signal.SIGKILL)
        self.parent.wait()


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until a condition holds; whether it did."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def is_engine_core(process: psutil.Process) -> bool:
    try:
        return "EngineCore" in process.name() or "EngineCore" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
