"""The official submission checker, run unmodified from a checkout of mlcommons/inference."""

import csv
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from runs.errors import ExecutionError
from runs.files.temporary import temporary_folder
from runs.processes.child import run_program
from runs.rounds import Round

PACKAGE = Path("tools") / "submission" / "submission_checker"
TIMEOUT_S = 600
MAX_MESSAGES = 2000
# The modules of the checker log in two formats: `ERROR:main:text` and `[time file:line ERROR] text`.
_PREFIX = r"^(?:\[[^\]]* (?P<level>[A-Z]+)\] |(?P<short>[A-Z]+):[\w.]+:)"
_MESSAGE = re.compile(_PREFIX + r"(?P<text>.*)$")
_SUMMARY = re.compile(_PREFIX + r"SUMMARY: (?P<text>.*)$", re.MULTILINE)
_GRAVE = ("ERROR", "WARNING", "CRITICAL")
_CLEAN = "submission looks OK"

CheckerOutcome = Literal["ok", "errors", "crashed"]


@dataclass(frozen=True)
class CheckerMessage:
    """One log message of the official checker."""

    level: str
    text: str


@dataclass
class OfficialResult:
    """The outcome of the official checker. `crashed`: the checker ended with a traceback, as on some trees."""

    checkout: str
    round: str
    outcome: CheckerOutcome
    exit_code: int
    summary: str
    messages: list[CheckerMessage] = field(default_factory=list)
    # Rows of the checker's CSV file, one for each accepted result.
    results: list[dict[str, str]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


def run_official(checkout: Path, tree: Path, in_round: Round) -> OfficialResult:
    """Run the official checker in a separate process and working directory, without writing to tree or checkout.

    Raises:
        ExecutionError: If the checker is missing, does not start, or does not end in time.
    """
    package = checkout / PACKAGE
    if not (package / "main.py").is_file():
        raise ExecutionError(
            f"--official {checkout}: {PACKAGE / 'main.py'} is missing",
            "give a clone of https://github.com/mlcommons/inference",
        )
    with temporary_folder("official-check-") as folder:
        csv_file = folder / "summary.csv"
        command = [sys.executable, "-m", "submission_checker.main"]
        command += ["--input", str(tree.resolve()), "--version", in_round.name, "--csv", str(csv_file)]
        environment = {**os.environ, "PYTHONPATH": str(package.parent.resolve()), "PYTHONDONTWRITEBYTECODE": "1"}
        output = folder / "output.txt"
        try:
            with output.open("wb") as stream:
                code = run_program(command, cwd=folder, env=environment, output=stream, timeout_s=TIMEOUT_S).returncode
        except subprocess.TimeoutExpired as error:
            raise ExecutionError(
                f"the official checker did not end within {TIMEOUT_S} s", "correct the other findings, and check again"
            ) from error
        except OSError as error:
            raise ExecutionError(f"the official checker cannot be started: {error}") from error
        text = output.read_text(errors="replace")
        table = csv_file.read_text(errors="replace") if csv_file.is_file() else ""
    return _result(checkout, in_round, code, text, table)


def _result(checkout: Path, in_round: Round, code: int, text: str, table: str) -> OfficialResult:
    last = text.rstrip().rpartition("\n")[2]
    match = _SUMMARY.search(text)
    if match is None and ("ModuleNotFoundError" in last or "ImportError" in last or code == 2 or code < 0):
        raise ExecutionError(
            f"the official checker could not run (exit code {code}): {last[:300]}",
            "install PyYAML, and give a clone of mlcommons/inference that supports the round",
        )
    outcome: CheckerOutcome = "crashed"
    if match is not None:
        outcome = "ok" if match["text"].strip() == _CLEAN and code == 0 else "errors"
    shown = match["text"].strip() if match else last[:1000]
    result = OfficialResult(str(checkout), in_round.name, outcome, code, shown)
    for line in text.splitlines():
        message = _MESSAGE.match(line)
        if message is None or "SUMMARY:" in line or len(result.messages) >= MAX_MESSAGES:
            continue
        level = message["level"] or message["short"]
        if level in _GRAVE:
            result.messages.append(CheckerMessage(level, message["text"][:1000]))
    if outcome != "crashed":  # After a crash the table is incomplete.
        result.results = [dict(row) for row in csv.DictReader(table.splitlines())]
    return result
