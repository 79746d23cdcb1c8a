"""Hosts and containers that hide facts: their runs are started and signed off."""

import subprocess
import sys
from pathlib import Path

import pytest

from compliance.signoff.judge import sign_off
from compliance.signoff.signoff_verdict import headline
from tests.conftest import ROOT
from tests.support.runs.run_commands import USER_CONF

pytestmark = pytest.mark.long

# Name → files that replace files of the kernel in a separate namespace; EMPTY is an empty file.
MACHINES = {
    "no-processor-times": "mount --bind EMPTY /proc/stat",
    "no-processor-name": "mount --bind EMPTY /proc/cpuinfo && mount --bind EMPTY /proc/loadavg",
    "no-settings-of-the-kernel": "mount -t tmpfs tmpfs /proc/sys/kernel",
    "no-devices": "mount -t tmpfs tmpfs /sys",
    "no-network": "true",
}
NAMESPACES = ("unshare", "--mount", "--net")


@pytest.mark.parametrize("name", MACHINES)
def test_runs_on_hosts_that_hide_their_facts_are_signed_off(tmp_path: Path, name: str) -> None:
    (empty := tmp_path / "empty").touch()
    (conf := tmp_path / "user.conf").write_text(USER_CONF)
    hide = MACHINES[name].replace("EMPTY", str(empty))
    if subprocess.run([*NAMESPACES, "sh", "-c", hide], capture_output=True, check=False).returncode:
        pytest.skip("namespaces, which only root may make here")
    result = tmp_path / "result"
    for more in (("performance/run_1",), ("accuracy", "--accuracy")):
        command = [sys.executable, ROOT / "main.py", "--scenario", "Server", "--engine", "dummy", "--user-conf", conf]
        command += ["--output-log-dir", result / more[0], *more[1:]]
        hidden = [*NAMESPACES, "sh", "-c", f'{hide} && exec "$@"', "sh", *map(str, command)]
        done = subprocess.run(hidden, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    verdict = sign_off("bundle", [result])
    assert verdict.outcome in ("PASS", "FLAG"), headline(verdict)
