"""The process of vLLM's engine core on a CPU, made by a server process that has imported vLLM and has no threads.

A new process would import vLLM anew, after the run's process and for as long. The server (multiprocessing's forkserver)
imports beside the run's process, and the core is a fork of the server. A fork of the run's process would keep the locks
that its threads held at that moment.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from multiprocessing import forkserver, reduction
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import orjson

# What a core on a CPU imports before it loads weights.
_PRELOADED = ("vllm.v1.engine.core", "vllm.v1.executor.uniproc_executor", "vllm.v1.worker.cpu_worker")


def start_server() -> None:
    """Start the server, which imports while this process goes on. Its variables are those of now."""
    forkserver.set_forkserver_preload(list(_PRELOADED))
    forkserver.ensure_running()


class CoreProcess(ForkServerProcess):
    """A process that writes where its maker writes, although the server was started with another output."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_output": reduction.DupFd(1)}

    def run(self) -> None:
        output = self.__dict__.pop("_output").detach()
        for number in (1, 2):
            os.dup2(output, number)
        os.close(output)
        super().run()


class _Context(ForkServerContext):
    Process = CoreProcess


@contextlib.contextmanager
def from_server() -> Iterator[None]:
    """Within: vLLM makes its core's process by the server. A vLLM that asks elsewhere for a context spawns it."""
    engine_utils: Any = importlib.import_module("vllm.v1.engine.utils")
    own = getattr(engine_utils, "get_mp_context", None)
    if own is None:
        yield
        return
    engine_utils.get_mp_context = _Context
    try:
        yield
    finally:
        engine_utils.get_mp_context = own


def import_model(folder: str) -> None:
    """Import a model's class here: vLLM would start a process to look at it."""
    from vllm import ModelRegistry

    try:
        config = orjson.loads(Path(folder, "config.json").read_bytes())
        for name in config["architectures"]:
            if name in ModelRegistry.models:
                ModelRegistry.register_model(name, ModelRegistry.models[name].load_model_cls())
    except Exception as error:  # vLLM looks for itself, and reports what is wrong
        print(f"model class not imported ahead: {type(error).__name__}: {error}", file=sys.stderr)
