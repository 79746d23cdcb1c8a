"""Runs of the dummy engine through the real LoadGen: settings for short ones, and checks of their files."""

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

# Limits that each busy host meets, and enough queries for VALID: Server 512 (early stopping needs 459),
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

# A run of ten minutes, which can be disturbed on each busy host.
LONG_USER_CONF = """
*.Server.target_qps = 50
*.Server.min_duration = 600000
*.Offline.target_qps = 50
*.Offline.min_duration = 1
*.Offline.min_query_count = 64
"""

# For `environment_with_code`: an engine whose start takes longer than any test.
SLOW_START = """
import asyncio
from sut.dummy.dummy_engine import DummyEngine
async def start(self):
    await asyncio.sleep(3600)
DummyEngine.start = start
"""


def arguments(scenario: str, out: Path, *more: object, conf: str = USER_CONF) -> list[object]:
    """Return the command line of a run into `out`, with a user.conf beside it."""
    user_conf = out.with_name(out.name + "-user.conf")
    user_conf.write_text(conf)
    return [
        "--scenario", scenario, "--engine", "dummy", "--user-conf", user_conf, "--output-log-dir", out,
        *TIMES.get(scenario, ()), *more,
    ]  # fmt: skip


def environment_with_code(folder: Path, *, in_run: str = "", in_parent: str = "") -> dict[str, str]:
    """Return an environment in which code runs first at the start of the run's process or of main.py.

    Python imports a `sitecustomize` module by itself. This one detects its process.
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
    """Return the current heartbeat; empty before the first one."""
    path = RunDir(out).progress
    return json.loads(path.read_bytes()) if path.exists() else {}


def run_pid(out: Path) -> int:
    """Return the process of the run, which leads the process group of the run."""
    return int(progress(out)["pid"])


def is_running(process: psutil.Process, word: str = "") -> bool:
    """Return whether a process with this word in its name or command line runs. Zombies do not count."""
    try:
        named = word in process.name() or word in " ".join(process.cmdline())
        return named and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def processes_of_group(group: int) -> list[int]:
    """Return the running processes of a group. Zombies do not count."""
    pids = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                pids.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            pass
    return pids


def digests(out: Path) -> dict[int, str]:
    """Return the digest of the response of each sample."""
    table = read_request_table(RunDir(out).requests)
    return dict(zip(table.sample_index.tolist(), table.output_sha256, strict=True))


def check_failed(
    finished: Finished, out: Path, code: ExitCode, cause: str, *, loadgen_finished: bool = False
) -> Manifest:
    """Check that all files of a failed run agree on the failure.

    LoadGen's own summary may have its verdict if LoadGen itself ended before the failure.
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
    """Check that no file and no line has VALID or PASS, and that each part of the run has ended."""
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
