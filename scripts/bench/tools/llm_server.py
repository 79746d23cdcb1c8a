"""vLLM's own `LLM.generate`, kept alive beside the legs and stopped (SIGSTOP) while they run.

As a program, `python -m scripts.bench.tools.llm_server SPEC.json`: reads commands from its input, one a line, and
answers each with a line of JSON. `all`: one call for all prompts; `one`: one call a prompt, one after the other.
"""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from runs.benchmarks import BENCHMARKS
from runs.environment import HARNESS_ROOT
from runs.errors import ExecutionError
from runs.files import write_json

SAMPLING = BENCHMARKS["llama3_1-8b"].sampling["performance"]
ANSWER = b"ANSWER "  # vLLM writes on the same output


@dataclass(frozen=True)
class Call:
    """What one command came to."""

    seconds: float
    output_tokens: int
    latencies_s: list[float]  # of `one`: a prompt each


class LlmServer:
    """A living `LLM`; its process group is stopped unless it is asked something."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log

    def ask(self, command: str) -> Call:
        """`all` or `one`."""
        self.signal(signal.SIGCONT)
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()
        answer = Call(**self.answer())
        self.signal(signal.SIGSTOP)
        return answer

    def answer(self) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                return orjson.loads(line[len(ANSWER) :])
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
) -> Iterator[LlmServer]:
    """Start an `LLM` and end its whole process group on leaving.

    Args:
        environment: variables on top of this process's.
        prompts: token ids, in the order in which they are given to the engine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    spec, log = folder / "llm.json", folder / "llm.log"
    write_json(
        spec, {"model": str(model), "options": options, "prompts": prompts, "sampling": dataclasses.asdict(SAMPLING)}
    )
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "scripts.bench.tools.llm_server", str(spec.resolve())],
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
        server.signal(signal.SIGSTOP)
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.signal(signal.SIGKILL)
        process.wait()


def main() -> None:
    """Start the engine, say so, and serve commands until the input ends."""
    spec = orjson.loads(Path(sys.argv[1]).read_bytes())
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(spec["model"], **spec["options"])
    parameters = SamplingParams(**spec["sampling"], detokenize=False)
    prompts = [TokensPrompt(prompt_token_ids=ids) for ids in spec["prompts"]]

    def generate(some: list[Any]) -> tuple[float, int]:
        started = time.perf_counter()
        outputs = llm.generate(some, parameters, use_tqdm=False)
        return time.perf_counter() - started, sum(len(output.outputs[0].token_ids) for output in outputs)

    _say({})
    if prompts:
        generate(prompts[:4])
    for line in sys.stdin:
        one_by_one = line.strip() == "one"
        calls = [generate([prompt]) for prompt in prompts] if one_by_one else [generate(prompts)]
        _say(
            {
                "seconds": sum(seconds for seconds, _ in calls),
                "output_tokens": sum(tokens for _, tokens in calls),
                "latencies_s": [seconds for seconds, _ in calls] if one_by_one else [],
            }
        )


def _say(answer: Any) -> None:
    sys.stdout.buffer.write(ANSWER + orjson.dumps(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
