"""Runs of the dummy engine through the real LoadGen: settings for short ones, and what they leave behind."""

import json
import os
import textwrap
from pathlib import Path
from typing import Any

import psutil

from runs.errors import ExitCode
from runs.record.layout import RunDir
from runs.record.manifest import Manifest, read_manifest
from runs.record.requests_log import read_request_table
from tests.conftest import ROOT, Finished
from tests.support.processes.warm import FOR_RUNS

# Limits that no busy machine misses, and enough queries for a VALID: Server 512 (early stopping needs 459),
# SingleStream 128, Offline all 64 at once.
USER_CONF = """
*.Offline.min_duration = 200
*.Offline.min_query_count = 64
*.Offline.target_qps = 50
*.Server.target_qps = 800
*.Server.min_duration = 600
*.Server.ttft_latency = 60000
*.Server.tpot_latency = 10000
*.SingleStream.target_latency = 8
*.SingleStream.min_duration = 400
"""
TIMES = {"Offline": ("--dummy-ttft-ms", 250)}  # longer than the minimum duration

# A run that would take ten minutes: there is time to disturb it, however busy the machine.
LONG_USER_CONF = """
*.Server.target_qps = 50
*.Server.min_duration = 600000
*.Offline.target_qps = 50
*.Offline.min_duration = 1
*.Offline.min_query_count = 64
"""

# For `patched`: an engine whose start takes longer than any test.
SLOW_START = """
import asyncio
from sut.dummy.dummy_engine import DummyEngine
async def start(self):
    await asyncio.sleep(3600)
DummyEngine.start = start
"""


def arguments(scenario: str, out: Path, *more: object, conf: str = USER_CONF) -> list[object]:
    """The command line of a run into `out`, with a user.conf beside it."""
    user_conf = out.with_name(out.name + "-user.conf")
    user_conf.write_text(conf)
    return [
        "--scenario", scenario, "--engine", "dummy", "--user-conf", user_conf, "--output-log-dir", out,
        *TIMES.get(scenario, ()), *more,
    ]  # fmt: skip


def environment_with_code(folder: Path, *, in_run: str = "", in_parent: str = "") -> dict[str, str]:
    """An environment in which code is run at the start of the run's process or of main.py, before anything else.

    Python imports a `sitecustomize` module by itself; this one looks which of the two processes it is in.
    """
    indent = " " * 4
    if not in_parent:
        folder /= FOR_RUNS
        folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        'if "scenarios.launch.start" in sys.orig_argv:\n'
        + textwrap.indent(textwrap.dedent(in_run or "pass"), indent)
        + '\nelif any(word.endswith("main.py") for word in sys.orig_argv):\n'
        + textwrap.indent(textwrap.dedent(in_parent or "pass"), indent)
        + "\n"
    )
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


def progress(out: Path) -> dict[str, Any]:
    """The heartbeat as it stands; empty before the first."""
    path = RunDir(out).progress
    return json.loads(path.read_bytes()) if path.exists() else {}


def run_pid(out: Path) -> int:
    """The run's process, which leads the process group of the run."""
    return int(progress(out)["pid"])


def is_running(process: psutil.Process, word: str = "") -> bool:
    """Whether a process runs that has this word in its name or command line; one that waits to be reaped does not."""
    try:
        named = word in process.name() or word in " ".join(process.cmdline())
        return named and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def processes_of_group(group: int) -> list[int]:
    """Processes of a group that still run; those that only wait to be reaped do not count."""
    pids = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                pids.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            pass
    return pids


def digests(out: Path) -> dict[int, str]:
    """Sample → the digest of its response."""
    table = read_request_table(RunDir(out).requests)
    return dict(zip(table.sample_index.tolist(), table.output_sha256, strict=True))


def check_failed(
    finished: Finished, out: Path, code: ExitCode, cause: str, *, loadgen_finished: bool = False
) -> Manifest:
    """A run that failed says so everywhere, and nowhere the contrary.

    Only where LoadGen itself came to its end before the failure, its own summary may hold its own verdict.
    """
    run = RunDir(out)
    assert finished.code == code, finished.stderr
    assert finished.stderr.startswith("error: ")
    assert cause in finished.stderr
    assert "Traceback" not in finished.stderr
    manifest = read_manifest(run.manifest)
    assert manifest.status == ("interrupted" if code == ExitCode.INTERRUPTED else "failed")
    assert manifest.exit_code == code
    assert manifest.error["exit_code"] == code
    assert cause in manifest.error["message"] + manifest.error["fix"]
    assert manifest.start_time_ns < manifest.end_time_ns
    result = json.loads(run.result.read_bytes())
    assert result["verdict"] == "ERROR"
    check_claims_nothing(finished, out, loadgen_finished=loadgen_finished)
    return manifest


def check_claims_nothing(finished: Finished, out: Path, *, loadgen_finished: bool = False) -> None:
    """No file and no line says VALID or PASS; nothing of the run has not ended."""
    run = RunDir(out)
    for path in sorted(out.iterdir()):
        # LoadGen's detail log has settings and messages, but no verdict in words.
        if path.name != run.detail.name and not (loadgen_finished and path.name == run.summary.name):
            content = path.read_bytes()
            assert b"VALID" not in content, path.name
            assert b"PASS" not in content, path.name
        assert not path.name.endswith((".tmp", ".partial")), path.name
    assert "VALID" not in finished.stdout
    assert "PASS" not in finished.stdout
    if progress(out):
        assert processes_of_group(run_pid(out)) == []
