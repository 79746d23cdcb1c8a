"""Commands of the harness, started as a user starts them. They end with the stage, whatever ends it."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs.errors import ExecutionError, ExitCode
from runs.harness import HARNESS_ROOT
from runs.processes.child import owned
from runs.processes.interrupts import critical, ended, ended_within
from runs.record.engines.engine_stages import last_error
from tools.gpu.stage import GpuStage, OutOfTimeError

POLL_S = 0.5
STOP_S = 10.0  # time for a command to end after a signal; the stage's time includes it
ENGINE_START_S = 300
VERDICTS = (ExitCode.OK, ExitCode.NEGATIVE)


@dataclass(frozen=True)
class EndedCommand:
    """A command that ended, or that was stopped because it had measured enough."""

    code: int
    seconds: float
    log: Path

    @property
    def lines(self) -> list[str]:
        """The lines of its output."""
        return self.log.read_text(errors="replace").strip().splitlines()

    def error(self) -> str:
        """Return the last error with its fix, otherwise the end of the output; and the last error of an engine."""
        numbers = [number for number, line in enumerate(self.lines) if line.startswith("error")]
        lines = self.lines[numbers[-1] :][:3] if numbers else self.lines[-4:]
        logs = sorted(self.log.with_suffix("").rglob("engine.log"), key=lambda path: path.stat().st_mtime)
        if logs and (engine_error := last_error(logs[-1])):
            lines.append(f"engine.log: {engine_error}")
        return " / ".join(lines)

    def check(self, *expected: int) -> "EndedCommand":
        """Return this command.

        Raises:
            ExecutionError: If the exit code is not one of the expected codes.
        """
        if self.code not in expected:
            raise ExecutionError(f"exit code {self.code}: {self.error()}")
        return self


def words_of(options: Mapping[str, Any]) -> list[str]:
    """Return options as words of a command line: True is a switch, and a dictionary repeats KEY=VALUE."""
    words: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, dict):
            for key, item in value.items():
                words += [flag, f"{key}={item if isinstance(item, str) else json.dumps(item)}"]
        else:
            words += [flag] if value is True else [flag, str(value)]
    return words


def run_command(
    stage: GpuStage, name: str, words: list[str], has_enough: Callable[[], bool] = lambda: False
) -> EndedCommand:
    """Run `main.py WORDS`, until its end or until it has measured enough.

    Args:
        name: name of its log in the directory of the stage, and of its directory.
        has_enough: called every half second; it may record figures, and returns True to stop the command.

    Raises:
        OutOfTimeError: If the time of the stage ended before.
    """
    log, started_s = stage.folder / f"{name}.log", time.monotonic()
    is_enough = False
    with process_group([sys.executable, "main.py", *words], log) as process:
        while not ended(process, POLL_S) and not is_enough and stage.left_s > STOP_S:
            is_enough = has_enough()
        has_ended = process.poll() is not None
        if not has_ended:
            process.terminate()
            ended_within(process, STOP_S)
    is_enough |= has_enough()
    seconds = time.monotonic() - started_s
    if not has_ended and not is_enough:
        raise OutOfTimeError(f"{name} took more than {seconds:.0f} s")
    return EndedCommand(ExitCode.OK if is_enough and not has_ended else process.returncode, seconds, log)


@contextlib.contextmanager
def process_group(command: list[str], log: Path, **more: Any) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a process group for a block, which ends with the block or with this process."""
    with contextlib.ExitStack() as at_the_end:
        with critical():
            with log.open("ab") as stream:
                process = subprocess.Popen(
                    command, cwd=HARNESS_ROOT, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True, **more
                )
            at_the_end.enter_context(owned(process))
        yield process
