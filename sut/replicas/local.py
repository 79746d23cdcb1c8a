"""Replicas on this machine: processes in the leg's process group."""

import os
import platform
import subprocess
import sys

import msgspec

from runs.environment import HARNESS_ROOT
from sut.replicas.member import Host
from sut.replicas.messages import ReplicaSpec


def launch(spec: ReplicaSpec) -> Host:
    """Start a replica and tell it what it is. It writes where the leg writes.

    It ends with the leg's process group, and when its standard input closes, as it does with this process.
    """
    paths = [str(HARNESS_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {
        **spec.plan["environment"],
        **os.environ,
        **spec.variables,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYTHONUNBUFFERED": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "sut.replicas.replica"],
        env=variables,
        stdin=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(spec) + b"\n")
    process.stdin.flush()

    def end() -> None:
        process.kill()
        process.wait()

    return Host(f"{_where(spec)}, host {platform.node()}", process.poll, end)


def _where(spec: ReplicaSpec) -> str:
    """A replica's devices or cores, for a person."""
    if spec.devices:
        return f"device {','.join(spec.devices)}"
    return f"cores {','.join(map(str, spec.cores))}" if spec.cores else "all cores"
