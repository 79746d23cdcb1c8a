"""vLLM's `LLM.generate`, for comparison with runs. On a CPU its process stays alive and is stopped (SIGSTOP) during
runs.

As a program, `python -m tools.peers.support.llm_server SPEC.json`: reads commands from its input, one per line, and
prints a line of JSON for each command: the seconds of each call. `all` is one call for all prompts, `one` a call per
prompt.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from runs.benchmarks import BENCHMARKS
from runs.errors import ExecutionError
from runs.files.writing import write_json
from runs.harness import HARNESS_ROOT
from runs.processes.child import end_group
from runs.record.manifest import RunPlan
from sut.vllm.machine import this_machine

SAMPLING = BENCHMARKS["llama3_1-8b"].sampling["performance"]
RESPONSE = b"RESPONSE "  # prefix of a response line, because vLLM writes to the same output
WARM_UP = 4  # number of warm-up prompts
WARM_UP_ANEW = (
    256  # warm-up prompts of an engine with a single call: its kernels and graphs are compiled for large batches
)


class LlmServer:
    """A running `LLM`; its process group is stopped except while it computes a response."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self._log = process, log

    def ask(self, command: str) -> list[float]:
        """Run `all` or `one`; return the seconds of each call."""
        self.signal(signal.SIGCONT)
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()
        return self.response()

    def response(self) -> list[float]:
        """Wait for the next response, then stop the process group."""
        assert self.process.stdout is not None
        with self._log.open("ab") as log:
            for line in self.process.stdout:
                if line.startswith(RESPONSE):
                    self.signal(signal.SIGSTOP)
                    seconds: list[float] = orjson.loads(line[len(RESPONSE) :])
                    return seconds
                log.write(line)
        raise ExecutionError("LLM.generate's process ended", f"see {self._log}")

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)


@contextlib.contextmanager
def llm_server(
    folder: Path,
    model: Path,
    options: dict[str, Any],
    environment: dict[str, str],
    prompts: list[list[int]],
    *,
    warm_up: int = WARM_UP,
    limit_s: float | None = None,
) -> Iterator[LlmServer]:
    """Start an `LLM`, and end its process group at the end of the block.

    Args:
        environment: environment variables in addition to those of this process.
        prompts: token IDs, in the order in which the engine gets them.
        warm_up: number of prompts for the warm-up.
        limit_s: seconds after which its process is killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    spec, log = folder / "llm.json", folder / "llm.log"
    sampling = SAMPLING.model_dump()
    write_json(
        spec,
        {"model": str(model), "options": options, "prompts": prompts, "sampling": sampling, "warm_up": warm_up},
    )
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "tools.peers.support.llm_server", str(spec.resolve())],
            cwd=HARNESS_ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
            start_new_session=True,
        )
    server = LlmServer(process, log)
    limit = threading.Timer(limit_s or 0.0, process.kill)
    try:
        if limit_s is not None:
            limit.start()
        server.response()
        yield server
    finally:
        limit.cancel()
        end_group(process)  # waits until its memory is free


@contextlib.contextmanager
def generate_in_turns(folder: Path, plan: RunPlan, prompts: list[list[int]]) -> Iterator[Callable[[str], list[float]]]:
    """Return `LLM.generate` with the engine options of a run, to be called between runs.

    An accelerator's memory cannot hold its engine and a run's engine. There, each call starts an engine, which ends
    before the next run.
    """
    arguments = (Path(plan.model_path), plan.engine_options, plan.environment, prompts)
    if this_machine().on_cpu:
        with llm_server(folder, *arguments) as server:
            yield server.ask
        return

    def ask_anew(command: str) -> list[float]:
        with llm_server(folder, *arguments, warm_up=WARM_UP_ANEW) as server:
            return server.ask(command)

    yield ask_anew


def main() -> None:
    """Start the engine, report it ready, and serve commands until the input ends."""
    spec = orjson.loads(Path(sys.argv[1]).read_bytes())
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(spec["model"], **spec["options"])
    parameters = SamplingParams(**spec["sampling"], detokenize=False)
    prompts = [TokensPrompt(prompt_token_ids=ids) for ids in spec["prompts"]]

    def generate(some: list[Any]) -> float:
        started = time.perf_counter()
        llm.generate(some, parameters, use_tqdm=False)
        return time.perf_counter() - started

    generate(prompts[: spec["warm_up"]])
    _write([])
    for line in sys.stdin:
        _write([generate([prompt]) for prompt in prompts] if line.strip() == "one" else [generate(prompts)])


def _write(seconds: list[float]) -> None:
    sys.stdout.buffer.write(RESPONSE + orjson.dumps(seconds) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
