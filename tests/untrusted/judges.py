"""The commands that judge files of others, as a user calls them, and what is asked of each whatever it is given."""

import contextlib
import io
import json
from pathlib import Path

from runs.errors import ExitCode
from scenarios.command_line.dispatch import main
from tests.support.runs.submission_runs import SYSTEM

SUBMITTED = ("--organization", "O", "--system-name", "S")
CONTRACTED = {int(code) for code in ExitCode} - {int(ExitCode.INTERRUPTED)}
MARKS = ("Traceback (most recent call last)", "MemoryError", "no verdict: the sign-off itself failed")


def call(*arguments: object) -> tuple[int, str]:
    """The exit code of a command, and all that it said."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        code = main([str(one) for one in arguments])
        stream.flush()
    return code, stream.buffer.getvalue().decode()  # type: ignore[attr-defined]


def commands_on_runs(result: Path, out: Path) -> dict[str, list[object]]:
    """Commands over a result's directory (performance/run_1 and accuracy in it). Each writes into `out` alone."""
    system = out / "system.yaml"
    out.mkdir(parents=True, exist_ok=True)
    system.write_text(json.dumps({"system": SYSTEM}))
    return {
        "verify": ["verify", result, "--output", out / "verify"],
        "signoff": ["signoff", "--scope", "harness", "--ref", result],
        "gate": ["gate", result, "--strict"],
        "status": ["status", result],
        "results": ["results", result],
        "report": ["report", result, "--output", out / "report.html"],
        "store": ["store", "ingest", result, "--db", out / "store.sqlite"],
        "submit": ["submit", result, *SUBMITTED, "--system", system, "--output", out / "tree"],
    }


def contract_violation(name: str, code: int, output: str) -> str:
    """What is wrong with how a command ended; "" where nothing is."""
    if code not in CONTRACTED:
        return f"{name}: exit code {code}: {output[-400:]}"
    mark = next((mark for mark in MARKS if mark in output), None)
    return f"{name}: {mark}: {output[-1500:]}" if mark else ""
