"""Signals at random times to a command that supervises a child process.

Usage: `python -m tests.support.processes.signal_storm COUNT`.

Each case is a process forked from this one, which runs scenarios/launch/supervisor.py with a shell in place of a run.
The shell ends, hangs, or ignores signals, or the command computes and reaches no safe point. It gets one to three
signals, at a random time or between two instructions of the code that starts, waits for and ends processes. It must
end within the grace time with the right exit code, and close its record once. It must leave no process (they would
become children of this one) and no temporary folder. The program prints a JSON object. Each fault has the number that
repeats it: `python -m tests.support.processes.signal_storm 1 --first NUMBER`.
"""

import argparse
import collections
import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from runs.errors import Ending, ExitCode, Interrupted
from runs.processes import child, interrupts, listening
from runs.record.layout import RunDir
from scenarios.launch import supervisor

RUNS = {
    "ends": "sleep 0.0$(($$ % 5))",
    "hangs": "sleep 600 & sleep 600",
    "ignores": "trap '' INT TERM HUP; sleep 600 & sleep 600",
    "computes": "sleep 600",
}
GRACE_S = 20.0  # time limit of a case, which ends within a second on an idle host
ORPHAN_S = 5.0  # time until a killed process has ended
REACHED_S = 0.5  # time until an instruction is reached, or never
LATEST_S = 0.06  # latest random time of a signal
INSTRUCTIONS = 9_000  # approximate number of instructions of a case; half of them while it waits
TRACED = {sys.modules[name].__file__ for name in ("contextlib", "subprocess")} | {
    module.__file__ for module in (child, interrupts, listening, supervisor)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    arguments = parser.parse_args()
    prepare()
    outcomes: collections.Counter[str] = collections.Counter()
    faults, signals, longest_s = [], 0, 0.0
    with tempfile.TemporaryDirectory() as root:
        for number in range(arguments.first, arguments.first + arguments.count):
            case = SignalCase(number, Path(root))
            seconds, code, case_faults = case.run()
            signals += case.signals
            longest_s = max(longest_s, seconds)
            outcomes[f"{case.kind}: {code}"] += 1
            faults += [f"{number} ({case.kind}): {fault}" for fault in case_faults]
    summary = {"cases": arguments.count, "signals": signals, "longest_s": round(longest_s, 2)}
    print(json.dumps({**summary, "outcomes": dict(sorted(outcomes.items())), "faults": faults}))
    return bool(faults)


def prepare() -> None:
    """Shorten the times of cases."""
    become_reaper()
    signal.pthread_sigmask(signal.SIG_BLOCK, interrupts.ENDING)  # until a case listens
    supervisor.POLL_S, supervisor.STOP_GRACE_S = 0.005, 0.05
    interrupts.NOTICE_S, interrupts.UNWIND_S = 0.05, 10.0


def become_reaper() -> None:
    """Let processes that lose their parent become children of this one. Also receive signals in the background."""
    for number in interrupts.ENDING:
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


class SignalCase:
    """One command and its signals. All of it follows from its number."""

    def __init__(self, number: int, root: Path) -> None:
        chance = random.Random(number)
        self.kind = chance.choice(list(RUNS))
        self.instruction = chance.randrange(INSTRUCTIONS) if chance.random() < 0.5 else None
        self.number = chance.choice(interrupts.ENDING)
        self.later = [
            (chance.uniform(0, LATEST_S), chance.choice(interrupts.ENDING)) for _ in range(chance.randrange(3))
        ]
        self.first_s = chance.uniform(0, LATEST_S)
        self.signals = 1 + len(self.later)
        self.folder = root / str(number)

    def run(self) -> tuple[float, int | None, list[str]]:
        """Return the seconds from the first signal to the end, the exit code, and the faults."""
        for name in ("temporary", "run"):
            (self.folder / name).mkdir(parents=True)
        pid = os.fork()
        if pid == 0:
            self._be_the_command()
        time.sleep(self.first_s)
        end = time.monotonic() + REACHED_S
        while self.instruction is not None and not (self.folder / "sent").exists() and time.monotonic() < end:
            time.sleep(0.002)
        started_s = time.monotonic()
        os.kill(pid, self.number)  # it is not reaped yet
        for delay_s, number in self.later:
            time.sleep(delay_s)
            os.kill(pid, number)
        faults = []
        code = wait_for_exit_code(pid, GRACE_S)
        seconds = time.monotonic() - started_s
        if code is None:
            faults.append(f"did not end within {GRACE_S:g} s")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        faults += [f"process {orphan} is left" for orphan in orphans()]
        reported = (self.folder / "told").read_text()
        if code not in (ExitCode.INTERRUPTED, *([ExitCode.FAILED] if self.kind == "ends" else [])) and not faults:
            faults.append(f"exit code {code}: {reported}")
        if code == ExitCode.INTERRUPTED and "interrupted by SIG" not in reported:
            faults.append(f"no message: {reported}")
        faults += [f"left {path.name}" for path in (self.folder / "temporary").iterdir()]
        record = self.folder / "record"
        if record.exists() and (lines := record.read_text().split()) not in (
            ["open", "closed"],
            ["open"] * (code is None),
        ):
            faults.append(f"the record says {lines}")
        shutil.rmtree(self.folder)
        return seconds, code, faults

    def _be_the_command(self) -> None:
        code = 1
        try:
            descriptor = os.open(self.folder / "told", os.O_CREAT | os.O_WRONLY)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            tempfile.tempdir = str(self.folder / "temporary")
            supervisor.COMMAND = ("/bin/sh", "-c", RUNS[self.kind])
            with listening.listening():
                signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupts.ENDING)
                try:
                    if self.instruction is not None:
                        sys.settrace(SignalTrace(self).call)
                    self._supervise()
                except Ending as error:
                    os.write(2, f"error: {error}\n".encode())
                    code = error.exit_code
                finally:
                    sys.settrace(None)
                    for number in interrupts.ENDING:
                        signal.signal(number, signal.SIG_IGN)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _supervise(self) -> None:
        record = self.folder / "record"

        def close(_: Interrupted) -> None:
            with record.open("a") as stream:
                stream.write("closed\n")

        @contextlib.contextmanager
        def on_record() -> Iterator[None]:  # as in scenarios/launch/parent.py
            with contextlib.ExitStack() as stack, interrupts.if_abandoned(close):
                try:
                    yield
                except BaseException:
                    stack.enter_context(interrupts.critical())
                    close(Interrupted(""))
                    raise

        with supervisor.EarlyRun("engine", {}) as run, contextlib.ExitStack() as opened:
            with interrupts.critical():
                record.write_text("open\n")
                opened.enter_context(on_record())
            if self.kind == "computes":
                while True:
                    sum(range(100))
            run.run(RunDir(self.folder / "run"), "engine", {}, lambda _: None)


class SignalTrace:
    """A trace function that sends the signal between two instructions."""

    def __init__(self, case: SignalCase) -> None:
        self._case, self._left = case, case.instruction or 0
        self._traced: dict[CodeType, bool] = {}

    def call(self, frame: FrameType, _event: str, _value: Any) -> Any:
        code = frame.f_code
        if not self._traced.setdefault(code, code.co_filename in TRACED):
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, _value: Any) -> Any:
        if event == "opcode":
            self._left -= 1
            if self._left == 0:
                (self._case.folder / "sent").touch()
                os.kill(os.getpid(), self._case.number)
        return self._step


def wait_for_exit_code(pid: int, seconds: float) -> int | None:
    """Return the exit code of a child process, or None if it still runs after this time.

    Reap its remains, as init does.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended_pid, status = os.waitpid(-1, os.WNOHANG)
        if ended_pid == pid:
            return os.waitstatus_to_exitcode(status)
        if not ended_pid:
            time.sleep(0.002)
    return None


def orphans() -> list[str]:
    """Return the processes that outlived the command, and kill them."""
    end = time.monotonic() + ORPHAN_S
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.002)
        except ChildProcessError:
            return []
    commands = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                commands.append(f"{folder.name} {(folder / 'cmdline').read_bytes()!r}")
                os.kill(int(folder.name), signal.SIGKILL)
                os.waitpid(int(folder.name), 0)
    return commands


if __name__ == "__main__":
    sys.exit(main())
