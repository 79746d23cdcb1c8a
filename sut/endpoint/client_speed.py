"""What this machine's client can carry, measured against a server that computes nothing (`instant_server`)."""

import asyncio
import contextlib
import gc
import random
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from runs.benchmark import SamplingPolicy
from runs.benchmarks import default_benchmark
from runs.environment import HARNESS_ROOT
from runs.errors import HarnessError, SetupError
from sut.endpoint.dialects.dialect import Dialect
from sut.endpoint.dialects.openai import VllmTokens
from sut.endpoint.engine import EndpointEngine
from sut.engine import Request
from sut.event_loop import freeze_garbage_collection, new_event_loop

CONNECTIONS = 2_000
OPEN_AT_MOST = 1_800  # an answer takes half a second there, so that 3,600/s could be carried
BURST_ANSWERS, BURST_EVENTS = 8_000, 200_000  # the smaller of the two
TWO_EVENTS = 2
PACED_PER_S = 200.0
PACED_ANSWERS = 1_000
PROMPT_TOKENS = 870  # CNN-DailyMail's mean
ARRIVALS_SEED = 1


@dataclass(frozen=True)
class ClientSpeed:
    """Streaming, 128 ids, prompts of `PROMPT_TOKENS`."""

    events: int  # an answer
    answers_per_s: float  # with as many open as are carried
    answers_per_core_s: float  # the same by the processor time of the client
    ttft_p99_ms: float  # of Poisson arrivals at `PACED_PER_S`; the server adds a fraction of a millisecond


class _Listener:
    def __init__(self, answers: int) -> None:
        self.left = answers
        self.over = asyncio.Event()
        self.ttft_ns = array("q")
        self.failure: BaseException | None = None

    def first_token(self, request: Request, token_id: int) -> None:
        self.ttft_ns.append(time.time_ns() - request.issue_ns)

    def complete(self, request: Request, token_ids: Sequence[int], finish_reason: str, cached_tokens: int) -> None:
        self.left -= 1
        if not self.left:
            self.over.set()

    def failed(self, request: Request, error: BaseException) -> None:
        self.failure = error
        self.over.set()


@contextlib.contextmanager
def instant_server(events: int = TWO_EVENTS) -> Iterator[str]:
    """The server in a process of its own; gives its URL."""
    command = [sys.executable, "-m", "sut.endpoint.instant_server", str(events)]
    server = subprocess.Popen(command, cwd=HARNESS_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.stdin.close()
        server.wait()


def measure_client(dialect: type[Dialect] = VllmTokens) -> ClientSpeed:
    """Ask the server, on the loop that a client process has: first as fast as it goes, then at a steady rate. An answer
    comes in as many events as a server of this dialect sends.

    Raises:
        SetupError: an answer was lost, or the server did not start.
    """
    sampling = default_benchmark("Server").sampling["performance"]
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_measure(sampling, TWO_EVENTS if dialect.two_chunks else sampling.max_tokens))


async def _measure(sampling: SamplingPolicy, events: int) -> ClientSpeed:
    with instant_server(events) as url:
        engine = EndpointEngine(url, sampling, streaming=True, connections=CONNECTIONS, times_count=False)
        await engine.start()
        freeze_garbage_collection()  # as a client's process does
        prompt = random.Random(ARRIVALS_SEED).choices(range(1_000, 100_000), k=PROMPT_TOKENS)
        burst = min(BURST_ANSWERS, BURST_EVENTS // events)
        wall_s, cpu_s = await _burst(engine, prompt, burst)
        ttft_ns = await _paced(engine, prompt)
        await engine.stop()
        gc.enable()
    return ClientSpeed(events, burst / wall_s, burst / cpu_s, float(np.percentile(ttft_ns, 99)) / 1e6)


async def _burst(engine: EndpointEngine, prompt: list[int], answers: int) -> tuple[float, float]:
    listener = _Listener(answers)
    wall_s, cpu_s = time.monotonic(), time.process_time()
    for seq in range(answers):
        while seq - (answers - listener.left) >= OPEN_AT_MOST and not listener.over.is_set():
            await asyncio.sleep(0)
        engine.submit(Request(listener, prompt, 0, seq, seq, time.time_ns()))
    await _over(listener)
    return time.monotonic() - wall_s, time.process_time() - cpu_s


async def _paced(engine: EndpointEngine, prompt: list[int]) -> "array[int]":
    listener = _Listener(PACED_ANSWERS)
    arrivals = random.Random(ARRIVALS_SEED)
    due_s = time.monotonic()
    for seq in range(PACED_ANSWERS):
        due_s += arrivals.expovariate(PACED_PER_S)
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        engine.submit(Request(listener, prompt, 0, seq, seq, time.time_ns()))
    await _over(listener)
    return listener.ttft_ns


async def _over(listener: _Listener) -> None:
    await listener.over.wait()
    failure = listener.failure
    if failure is not None:
        said = failure.message if isinstance(failure, HarnessError) else failure
        raise SetupError(f"the client's speed: {said}", "measure when the machine has less else to do")
