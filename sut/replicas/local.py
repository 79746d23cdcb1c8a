"""Replicas on this machine: processes in the leg's process group."""

import os
import platform
import subprocess
import sys

import msgspec

from runs.environment import module_path
from sut.replicas.member import Host
from sut.replicas.messages import ReplicaSpec


def launch(specs: list[ReplicaSpec]) -> list[Host]:
    """Start replicas in this process group, with which they end."""
    return [_host(spec) for spec in specs]


def start_replica(spec: ReplicaSpec, *, own_group: bool = False) -> "subprocess.Popen[bytes]":
    """Start a replica on this machine and tell it what it is. It writes where this process writes.

    It ends when its standard input closes, as it does with this process.

    Args:
        own_group: it leads a process group of its own.
    """
    variables = {**spec.plan["environment"], **os.environ, **spec.variables, **module_path(), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "sut.replicas.replica"],
        env=variables,
        stdin=subprocess.PIPE,
        start_new_session=own_group,
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(spec) + b"\n")
    process.stdin.flush()
    return process


def _host(spec: ReplicaSpec) -> Host:
    process = start_replica(spec)

    def ended() -> str | None:
        return None if process.poll() is None else f"exit code {process.returncode}"

    def end() -> None:
        process.kill()
        process.wait()

    where = f"{place_of(spec.devices, spec.cores)}, host {platform.node()}"
    return Host(lambda: where, ended, end)


def place_of(devices: list[str], cores: list[int]) -> str:
    """A replica's devices or cores, for a person."""
    if devices:
        return f"device {','.join(devices)}"
    return f"cores {','.join(map(str, cores))}" if cores else "all cores"
