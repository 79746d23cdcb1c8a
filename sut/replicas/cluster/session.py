"""The connection of one process to a Ray cluster."""

import contextlib
import logging
import socket
import textwrap
from collections.abc import Iterator
from typing import Any

from runs.environment import variables
from runs.errors import SetupError

# Variables of the user that mean the same on every node, and are set there too. The others are the node's own.
PASSED_ON = ("VLLM_", "NCCL_", "GLOO_", "UCX_", "OMP_", "KMP_", "MALLOC_", "TORCH_")
REACH_TIMEOUT_S = 5.0
SAID_LENGTH = 300
INSTALL = "install it: `.venv/bin/pip install ray==2.60.0` (docs/parallel.md)"


def passed_on() -> dict[str, str]:
    """The variables of this process that a leg's processes on all nodes are given; Ray shows them to whoever asks."""
    return variables(PASSED_ON)


def last_words(error: Exception) -> str:
    """The last line of an error of Ray's: what comes before are names, or the course of calls elsewhere."""
    return textwrap.shorten(str(error).strip().rpartition("\n")[2], SAID_LENGTH) or type(error).__name__


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Within: the module `ray`, connected.

    Args:
        address: HOST:PORT of the head, or auto for the cluster of which this machine is a node.

    Raises:
        SetupError: there is no Ray, or no such cluster.
    """
    try:
        import ray
    except ImportError as error:
        raise SetupError(f"--cluster {address} needs Ray: {error}", INSTALL) from error
    start = "start one with `ray start --head`, and on the other machines `ray start --address=HEAD:6379`"
    if address != "auto":
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), REACH_TIMEOUT_S).close()
        except OSError as error:
            raise SetupError(f"--cluster {address}: no cluster answers there ({error})", start) from error
    try:
        ray.init(address=address, logging_level=logging.ERROR, runtime_env={"env_vars": passed_on()})
    except Exception as error:  # Ray raises whatever it likes
        raise SetupError(
            f"--cluster {address}: {textwrap.shorten(str(error), SAID_LENGTH)}",
            f"{start}; this machine has to be a node of it",
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()
