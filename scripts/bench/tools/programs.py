"""Starting the bench's own programs, each in a process of its own, and hearing what they measured."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson

from runs.environment import HARNESS_ROOT
from runs.errors import ExecutionError


def measure(module: str, *arguments: object, log: Path, environment: dict[str, str] | None = None) -> Any:
    """Run `python -m scripts.bench.MODULE ARGUMENTS…` and return the JSON of its last line.

    Args:
        module: name within this package.
        log: file for everything the program says besides.
        environment: variables on top of this process's.

    Raises:
        ExecutionError: the program failed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream:
        done = subprocess.run(
            [sys.executable, "-m", f"scripts.bench.{module}", *map(str, arguments)],
            cwd=HARNESS_ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stream,
            check=False,
        )
        stream.write(done.stdout)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise ExecutionError(f"scripts.bench.{module} ended with code {done.returncode}", f"see {log}")
    return orjson.loads(lines[-1])


def tell(measured: Any) -> None:
    """What a program ends with: its measurement, on a line of its own."""
    print(orjson.dumps(measured).decode(), flush=True)
