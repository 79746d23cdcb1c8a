"""Commands that judge foreign files, as a user calls them, and their contract on any input."""

import contextlib
import io
import json
from pathlib import Path

from runs.errors import ExitCode
from scenarios.dispatch import main
from tests.support.runs.submission_runs import SYSTEM

SUBMITTED = ("--organization", "O", "--system-name", "S")
CONTRACTED = {int(code) for code in ExitCode} - {int(ExitCode.INTERRUPTED)}
MARKS = ("Traceback (most recent call last)", "MemoryError", "no verdict: the sign-off itself failed")


def call(*arguments: object) -> tuple[int, str]:
    """Run a command. Return its exit code and its complete output."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        code = main([str(argument) for argument in arguments])
        stream.flush()
    return code, stream.buffer.getvalue().decode()  # type: ignore[attr-defined]


def commands_on_runs(result: Path, out: Path) -> dict[str, list[object]]:
    """Return commands on the directory of a result (performance/run_1 and accuracy in it).

    Each one writes only to `out`.
    """
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
    """Return how the end of a command violates the contract, or ""."""
    if code not in CONTRACTED:
        return f"{name}: exit code {code}: {output[-400:]}"
    mark = next((mark for mark in MARKS if mark in output), None)
    return f"{name}: {mark}: {output[-1500:]}" if mark else ""
