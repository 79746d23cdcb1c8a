"""vLLM's own `LLM.generate`, kept alive while legs run beside it, and stopped (SIGSTOP) meanwhile.

As a program, `python -m tools.bench.support.llm_server SPEC.json`: reads commands from its input, one per line, and
answers each with a line of JSON: the seconds of each call. `all` is one call for all prompts, `one` a call per prompt.
"""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from runs.benchmarks import BENCHMARKS
from runs.environment import HARNESS_ROOT
from runs.errors import ExecutionError
from runs.files import write_json

SAMPLING = BENCHMARKS["llama3_1-8b"].sampling["performance"]
ANSWER = b"ANSWER "  # vLLM writes to the same output


class LlmServer:
    """A living `LLM`; its process group is stopped unless it computes an answer."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self._log = process, log

    def ask(self, command: str) -> list[float]:
        """Run `all` or `one`; returns the seconds of each call."""
        self.signal(signal.SIGCONT)
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> list[float]:
        """Wait for the next answer, then stop the process group."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                self.signal(signal.SIGSTOP)
                seconds: list[float] = orjson.loads(line[len(ANSWER) :])
                return seconds
        raise ExecutionError("LLM.generate's process ended", f"see {self._log}")

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)


@contextlib.contextmanager
def llm_server(
    folder: Path, model: Path, options: dict[str, Any], environment: dict[str, str], prompts: list[list[int]]
) -> Iterator[LlmServer]:
    """Start an `LLM`, and end its whole process group on leaving.

    Args:
        environment: variables on top of this process's.
        prompts: token ids, in the order in which the engine gets them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    spec, log = folder / "llm.json", folder / "llm.log"
    write_json(
        spec, {"model": str(model), "options": options, "prompts": prompts, "sampling": dataclasses.asdict(SAMPLING)}
    )
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "tools.bench.support.llm_server", str(spec.resolve())],
            cwd=HARNESS_ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
            start_new_session=True,
        )
    server = LlmServer(process, log)
    try:
        server.answer()
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.signal(signal.SIGKILL)
        process.wait()


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

    generate(prompts[:4])
    _write([])
    for line in sys.stdin:
        _write([generate([prompt]) for prompt in prompts] if line.strip() == "one" else [generate(prompts)])


def _write(seconds: list[float]) -> None:
    sys.stdout.buffer.write(ANSWER + orjson.dumps(seconds) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
