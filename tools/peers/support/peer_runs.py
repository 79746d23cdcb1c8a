"""Runs of `main.py`, and the numbers in their files."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs.errors import ExecutionError, ExitCode
from runs.harness import HARNESS_ROOT
from runs.numbers.numbers import Numbers
from runs.numbers.result import RunNumbers, read_result
from runs.record.layout import RunDir
from runs.record.manifest import RunPlan
from runs.record.requests_log import RequestTable, read_request_table
from scenarios.launch.plan import prepare
from scenarios.launch.run_config import make_config

RUN_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class FinishedPeer:
    """A finished run."""

    run: RunDir
    result: RunNumbers
    requests: RequestTable

    @property
    def reported(self) -> Numbers:
        """LoadGen's numbers."""
        assert self.result.reported is not None
        return self.result.reported

    @property
    def rate(self) -> float:
        """The rate in samples/s."""
        return self.reported.samples_per_second or 0.0


def offline_run(place: Path, options: dict[str, Any], samples: int) -> FinishedPeer:
    """Return the options of an Offline run with a number of samples. It has the edge key, because the datacenter key
    has a minimum of 13,368.
    """
    options = {**options, "scenario": "Offline", "lg_model_name": "llama3_1-8b-edge"}
    return execute_run(RunDir(place), options, one_query(samples))


def one_query(samples: int) -> dict[str, object]:
    """Return the user.conf of an Offline run with a number of samples, at any rate."""
    return {"min_duration": 1, "min_query_count": samples, "target_qps": 1}


def execute_run(run: RunDir, options: dict[str, Any], conf: dict[str, object]) -> FinishedPeer:
    """Run `main.py` with these options.

    Args:
        run: new run directory.
        options: options as in `RunConfig`, without user_conf and output_log_dir; True for a switch.
        conf: values of LoadGen keys for all models and scenarios, such as min_duration.

    Raises:
        ExecutionError: If the run has no verdict.
    """
    with started_run(run, options, conf) as process, contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(RUN_TIMEOUT_S)
    check_end(process, run, ExitCode.OK, ExitCode.NEGATIVE)
    return FinishedPeer(run, read_result(run.result), read_request_table(run.requests))


@contextlib.contextmanager
def started_run(run: RunDir, options: dict[str, Any], conf: dict[str, object]) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a run. If it still runs at the end of the block, stop it as by Ctrl-C, and wait for its end."""
    command = [sys.executable, "main.py", *run_arguments(run, options, conf)]
    with _log(run).open("wb") as stream:
        process = subprocess.Popen(command, cwd=HARNESS_ROOT, stdout=stream, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def check_end(process: "subprocess.Popen[bytes]", run: RunDir, *expected: ExitCode) -> None:
    """Raise ExecutionError if a run ended with an unexpected exit code."""
    if process.returncode not in expected:
        raise ExecutionError(f"a run ended with code {process.returncode}", f"see {_log(run)}")


def _log(run: RunDir) -> Path:
    return run.root.with_name(run.root.name + ".log")


def run_arguments(run: RunDir, options: dict[str, Any], conf: dict[str, object]) -> list[str]:
    """Return the command line of a run, and write its user.conf beside the run directory."""
    run.root.parent.mkdir(parents=True, exist_ok=True)
    conf_path = run.root.with_name(run.root.name + ".conf")
    scenario = {"Interactive": "Server"}.get(options["scenario"], options["scenario"])
    conf_path.write_text("".join(f"*.{scenario}.{key} = {value}\n" for key, value in conf.items()))
    arguments = ["--output-log-dir", str(run.root.resolve()), "--user-conf", str(conf_path.resolve())]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for item in value if isinstance(value, list) else [value]:
            arguments += [flag] if item is True else [flag, str(item)]
    return arguments


def engine_plan(work: Path, options: dict[str, Any]) -> RunPlan:
    """Return the plan of a run with these options."""
    values = {**options, "output_log_dir": str(work / "never-run")}
    return prepare(make_config(values), say=lambda _: None).plan
