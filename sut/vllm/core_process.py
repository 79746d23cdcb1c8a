"""The process of vLLM's engine core on a CPU, forked from a single-threaded server process that has imported vLLM.

A new process would import vLLM again after the run's process, which takes as long. The server (multiprocessing's
forkserver) imports vLLM in parallel with the run's process. A fork of the run's process would keep the locks that its
threads held at that moment.
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

# Modules that a core on a CPU imports before it loads weights.
_PRELOADED = ("vllm.v1.engine.core", "vllm.v1.executor.uniproc_executor", "vllm.v1.worker.cpu_worker")


def start_server() -> None:
    """Start the server, which imports in the background. It keeps the present environment variables."""
    forkserver.set_forkserver_preload(list(_PRELOADED))
    forkserver.ensure_running()


class CoreProcess(ForkServerProcess):
    """A process that shares the output of the process that requested it, although the server had another output."""

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
    """Make vLLM fork its core's process from the server, for the block. A vLLM version with another start method spawns
    it.
    """
    engine_utils: Any = importlib.import_module("vllm.v1.engine.utils")
    get_context = getattr(engine_utils, "get_mp_context", None)
    if get_context is None:
        yield
        return
    engine_utils.get_mp_context = _Context
    try:
        yield
    finally:
        engine_utils.get_mp_context = get_context


def import_model(folder: str) -> None:
    """Import a model's class in this process, because vLLM would start a process to inspect it."""
    from vllm import ModelRegistry

    try:
        config = orjson.loads(Path(folder, "config.json").read_bytes())
        for name in config["architectures"]:
            if name in ModelRegistry.models:
                ModelRegistry.register_model(name, ModelRegistry.models[name].load_model_cls())
    except Exception as error:  # vLLM inspects the class itself and reports the problem
        print(f"model class not imported ahead: {type(error).__name__}: {error}", file=sys.stderr)
