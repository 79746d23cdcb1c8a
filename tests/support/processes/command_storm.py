"""Signals at random times to complete commands with the dummy engine.

Usage: `python -m tests.support.processes.command_storm COUNT`.

Each case is `main.py`, forked from this process, with one to three signals. It must end within the grace time with exit
code 130, unless its files were complete before. It must leave no process, no temporary file, no held lock, no record
with the status running and no verdict. The program prints a JSON object. `--first NUMBER` repeats the fault of this
number.
"""

import argparse
import collections
import fcntl
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import yaml

from runs.errors import ExitCode
from runs.processes.interrupts import ENDING
from tests.support.processes import warm
from tests.support.processes.signal_storm import become_reaper, orphans, wait_for_exit_code
from tests.support.runs.run_commands import LONG_USER_CONF, USER_CONF

GRACE_S = 60.0  # ends within two seconds on an idle host; a run that ignores the signal is killed after ten
LATEST_S = {"short run": 1.2, "accuracy run": 1.2, "audit": 2.5, "campaign": 8.0}  # latest time of the first signal
ELSE_LATEST_S = 4.0
PAUSE_S = 0.5  # maximum between two signals
TUNE_CONF = USER_CONF.replace("min_duration = 600", "min_duration = 1500")
DUMMY = ["--engine", "dummy", "--output-log-dir", "out"]
COMMANDS: dict[str, list[str]] = {
    "run": ["run", "--scenario", "Server", "--user-conf", "long.conf", *DUMMY],
    "short run": ["run", "--scenario", "Offline", "--user-conf", "user.conf", *DUMMY],
    "accuracy run": ["run", "--scenario", "Offline", "--accuracy", "--user-conf", "user.conf", "--json", *DUMMY],
    "audit": ["audit", "--test", "TEST06", "--scenario", "Offline", "--user-conf", "user.conf", *DUMMY],
    "campaign": ["campaign", "--config", "campaign.yaml", "--output-log-dir", "out"],
    "tune": ["tune", "--scenario", "Server", "--user-conf", "tune.conf", "--offline-qps", "400", *DUMMY],
    "bench": ["bench", "--duration", "1", *DUMMY],
    "replicas": ["run", "--scenario", "Server", "--user-conf", "long.conf", "--replicas", "2", *DUMMY],
}
CAMPAIGN = {
    "benchmark": "llama3.1-8b",
    "engine": "dummy",
    "user_conf": "user.conf",
    "scenarios": {"Offline": {"dummy_ttft_ms": 250}, "Server": None},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    arguments = parser.parse_args()
    for name in warm.MODULES:
        importlib.import_module(name)
    become_reaper()
    outcomes: collections.Counter[str] = collections.Counter()
    faults, signals, longest_s = [], 0, 0.0
    with tempfile.TemporaryDirectory() as root:
        for number in range(arguments.first, arguments.first + arguments.count):
            case = CommandCase(number, Path(root))
            seconds, code, case_faults = case.run()
            signals += 1 + len(case.later)
            longest_s = max(longest_s, seconds)
            outcomes[f"{case.command}: {code}"] += 1
            faults += [f"{number} ({case.command}): {fault}" for fault in case_faults]
    summary = {"cases": arguments.count, "signals": signals, "longest_s": round(longest_s, 2)}
    print(json.dumps({**summary, "outcomes": dict(sorted(outcomes.items())), "faults": faults}))
    return bool(faults)


class CommandCase:
    """One command and its signals. All of it follows from its number."""

    def __init__(self, number: int, root: Path) -> None:
        chance = random.Random(number)
        self.command = list(COMMANDS)[number % len(COMMANDS)]
        self.first = chance.uniform(0, LATEST_S.get(self.command, ELSE_LATEST_S)), chance.choice(ENDING)
        self.later = [(chance.uniform(0, PAUSE_S), chance.choice(ENDING)) for _ in range(chance.randrange(3))]
        self.folder = root / str(number)

    def run(self) -> tuple[float, int | None, list[str]]:
        """Return the seconds from the first signal to the end, the exit code, and the faults."""
        temporary, out = self.folder / "temporary", self.folder / "out"
        temporary.mkdir(parents=True)
        for name, text in (("user.conf", USER_CONF), ("long.conf", LONG_USER_CONF), ("tune.conf", TUNE_CONF)):
            (self.folder / name).write_text(text)
        (self.folder / "campaign.yaml").write_text(yaml.safe_dump(CAMPAIGN))
        streams = self.folder / "stdout", self.folder / "stderr"
        pid = os.fork()
        if pid == 0:
            try:
                environment = {**os.environ, "TMPDIR": str(temporary)}
                warm._enter(COMMANDS[self.command], self.folder, environment, *streams)
            except SystemExit as error:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(int(error.code or 0))
            finally:
                os._exit(1)
        time.sleep(self.first[0])
        started_s = time.monotonic()
        output_sizes, signal_ns = sizes(streams), time.time_ns()
        os.kill(pid, self.first[1])
        for delay_s, number in self.later:
            time.sleep(delay_s)
            os.kill(pid, number)  # it is not reaped yet
        code = wait_for_exit_code(pid, GRACE_S)
        seconds = time.monotonic() - started_s
        faults = []
        if code is None:
            faults.append(f"did not end within {GRACE_S:g} s")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        faults += [f"process {orphan} is left" for orphan in orphans()]
        stderr = streams[1].read_text() if streams[1].exists() else ""
        # A command with complete files may still print its last lines.
        written_ns = [path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()]
        is_written = bool(written_ns) and max(written_ns) < signal_ns
        was_over = code in (ExitCode.OK, ExitCode.NEGATIVE) and (output_sizes == sizes(streams) or is_written)
        before_its_start = code in [-number for number in ENDING] and not any(output_sizes) and not out.exists()
        if code != ExitCode.INTERRUPTED and not was_over and not before_its_start:
            faults.append(f"exit code {code}: {stderr}")
        if code == ExitCode.INTERRUPTED:
            faults += self._faults_of_interrupted(stderr, streams[0].read_text(), out)
        faults += [f"left {path}" for path in (*temporary.iterdir(), *out.rglob(".*.tmp"))]
        faults += [f"{path} is locked" for path in out.glob("*.lock") if is_locked(path)]
        shutil.rmtree(self.folder)
        return seconds, code, faults

    def _faults_of_interrupted(self, stderr: str, stdout: str, out: Path) -> list[str]:
        faults = []
        if "error: interrupted by SIG" not in stderr or "Traceback" in stderr:
            faults.append(f"said {stderr}")
        if "--json" in COMMANDS[self.command] and stdout and json.loads(stdout)["exit_code"] != ExitCode.INTERRUPTED:
            faults.append(f"answered {stdout}")
        for path in out.rglob("manifest.json"):
            status = json.loads(path.read_bytes())["status"]
            sealed = path.with_name("seal.json").exists()
            if (status, sealed) not in (("interrupted", False), ("finished", True)):
                faults.append(f"{path.relative_to(out)} says {status}")
        if list(out.rglob("audit_*.json")) and self.command == "audit":
            faults.append("there is a verdict")
        return faults


def sizes(streams: tuple[Path, ...]) -> list[int]:
    return [path.stat().st_size if path.exists() else 0 for path in streams]


def is_locked(path: Path) -> bool:
    with path.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
