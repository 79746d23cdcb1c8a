"""Steps: commands of main.py, each in a process of its own. What one came to is kept, and a repeated start goes on."""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from runs.environment import HARNESS_ROOT
from runs.errors import ExitCode, HarnessError
from runs.files import write_json
from scenarios.held_directory import set_aside

LEAST_S = 5.0  # no step is begun with less time than this
ENDING_S = 60.0  # what a step that was told to end may take for it
ANSWERED = (ExitCode.OK, ExitCode.NEGATIVE)


@dataclass(frozen=True)
class Outcome:
    """What became of a step."""

    name: str  # of the step, and of its directory
    arguments: list[str]  # of main.py
    exit_code: int | None  # None where it was not begun
    seconds: float
    error: str = ""  # why it has no answer, "" where it has one
    answer: dict[str, Any] = field(default_factory=dict)  # the command's own, as `--json` gives it

    @property
    def answered(self) -> bool:
        return self.exit_code in ANSWERED


@dataclass(eq=False)
class Steps:
    """Runs steps into one directory, until the time is over."""

    folder: Path  # of the whole acceptance
    seconds: float  # that all steps of this start may take together
    say: Callable[[str], None]  # told of each step
    outcomes: list[Outcome] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds

    def place(self, name: str) -> Path:
        """The directory of a step."""
        return self.folder / name

    def command(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        expected_s: float,
        environment: dict[str, str] | None = None,
        continues: bool = False,
    ) -> Outcome:
        """Run `main.py ARGUMENTS… --json`, unless that was done before or there is no time for it.

        Args:
            expected_s: what it takes; with less time left it is not begun.
            environment: variables on top of this process's.
            continues: the command goes on by itself in a directory that an interrupted one left.
        """

        def run() -> Outcome:
            place, before = self.place(name), _recorded(self._record(name))
            same = before is None or before.arguments == list(arguments)
            if place.exists() and not (continues and same):
                set_aside([place], self.folder / "discarded")
            return self._run(name, list(arguments), environment or {})

        return self.step(name, list(arguments), run, expected_s)

    def step(self, name: str, arguments: list[str], run: Callable[[], Outcome], expected_s: float) -> Outcome:
        """Do `run`, unless that was done before or there is no time for it; what fails is an outcome too."""
        record = self._record(name)
        outcome = _recorded(record)
        if outcome is not None and outcome.answered and outcome.arguments == arguments:
            self.say(f"{name}: done before")
        elif self.left_s < max(expected_s, LEAST_S):
            error = f"not begun: it takes about {expected_s:.0f} s, and {max(0.0, self.left_s):.0f} s are left"
            outcome = Outcome(name, arguments, None, 0.0, error)
            self.say(f"{name}: {outcome.error}")
        else:
            self.say(f"{name}: about {expected_s:.0f} s; {self.left_s / 60:.0f} min left")
            started = time.monotonic()
            try:
                outcome = run()
                outcome = dataclasses.replace(outcome, seconds=outcome.seconds or time.monotonic() - started)
            except HarnessError as error:
                if error.exit_code == ExitCode.INTERRUPTED:
                    raise
                outcome = Outcome(name, arguments, int(error.exit_code), time.monotonic() - started, str(error))
            self.say(f"{name}: {outcome.error or 'done'}, {outcome.seconds:.0f} s")
            write_json(record, asdict(outcome))
        self.outcomes.append(outcome)
        return outcome

    def _record(self, name: str) -> Path:
        return self.folder / "steps" / f"{name}.json"

    @property
    def left_s(self) -> float:
        return self._end - time.monotonic()

    def _run(self, name: str, arguments: list[str], environment: dict[str, str]) -> Outcome:
        log = self.folder / "steps" / f"{name}.log"
        answer = log.with_suffix(".answer")
        started = time.monotonic()
        with log.open("wb") as said, answer.open("wb") as answered:
            process = subprocess.Popen(
                [sys.executable, str(HARNESS_ROOT / "main.py"), *arguments, "--json"],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=answered,
                stderr=said,
            )
        late = ""
        try:
            process.wait(max(LEAST_S, self.left_s))
        except subprocess.TimeoutExpired:
            late = "ended: the time was over; "
        finally:
            _end(process)
        seconds = time.monotonic() - started
        try:
            whole = orjson.loads(answer.read_bytes())
            error = whole["error"]["message"] if whole["error"] else ""
            found: dict[str, Any] = whole["answer"]
        except (orjson.JSONDecodeError, KeyError):
            error, found = f"no answer; see {log}", {}
        if process.returncode not in ANSWERED:
            error = f"{late}{error or 'failed'} (exit code {process.returncode})"
        return Outcome(name, arguments, process.returncode, seconds, error, found)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """A command that still runs is asked to stop, as by a user's Ctrl-C, and waited for."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _recorded(record: Path) -> Outcome | None:
    """What a step came to in an earlier start."""
    try:
        return Outcome(**orjson.loads(record.read_bytes()))
    except (FileNotFoundError, orjson.JSONDecodeError, TypeError):
        return None
