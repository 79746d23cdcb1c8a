"""Both engines with stand-ins for AsyncLLM and LLMEngine: the calls, and the handling of outputs."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from runs.errors import ExecutionError
from sut.admission import STEPPED_BACK
from sut.engine import Request
from sut.vllm.vllm_engine import OneProcessVllmEngine, VllmEngine
from tests.support.engines.fakes import FakeSink
from tests.support.official import SAMPLING

PROMPT = [5, 6, 7]
PIECES = [[], [1], [2, 3]]
ANSWERED = [("first", 1), ("done", ([1, 2, 3], "length", 0))]


class VllmStandIn:
    """Responses of vLLM with output kind DELTA: each request has the same pieces, new IDs in each.

    Args:
        error: Raised at the end of a response, or in step `error_at`.
    """

    def __init__(self, pieces: list[list[int]] = PIECES, *, error: Exception | None = None, error_at: int = 0) -> None:
        self._pieces, self._error, self._error_at = pieces, error, error_at
        self._open: dict[str, deque[list[int]]] = {}
        self.requests: list[tuple[Any, int]] = []  # prompt, priority
        self.metrics: Any = None
        self.steps = 0

    def _output(self, name: str, ids: list[int], *, finished: bool) -> Any:
        response = SimpleNamespace(token_ids=ids, finish_reason="length" if finished else None)
        facts = {"request_id": name, "num_cached_tokens": None, "metrics": self.metrics}
        return SimpleNamespace(outputs=[response], finished=finished, **facts)

    async def generate(self, prompt: Any, parameters: Any, name: str, *, priority: int) -> AsyncIterator[Any]:
        """Yield outputs as AsyncLLM does."""
        self.requests.append((prompt, priority))
        for number, ids in enumerate(self._pieces, start=1):
            yield self._output(name, ids, finished=number == len(self._pieces))
        if self._error:
            raise self._error

    def add_request(self, name: str, prompt: Any, parameters: Any, *, priority: int) -> None:
        """Add a request as LLMEngine does."""
        if len(prompt["ids"]) > 10:
            raise ValueError("prompt too long")
        self.requests.append((prompt, priority))
        self._open[name] = deque(self._pieces)

    def step(self) -> list[Any]:
        """Compute a step as LLMEngine does."""
        self.steps += 1
        if self._error is not None and self.steps == self._error_at:
            raise self._error
        outputs = []
        for name, pieces in list(self._open.items()):
            outputs.append(self._output(name, pieces.popleft(), finished=not pieces))
            if not pieces:
                del self._open[name]
        return outputs


def engine_around(llm: VllmStandIn, kind: type[VllmEngine], *, stream: bool = True) -> VllmEngine:
    engine = kind("no model", {}, SAMPLING, stream_first_token=stream)
    engine._llm, engine._parameters, engine._tokens_input = llm, None, lambda ids: {"ids": ids}
    return engine


def submit_and_run(engine: VllmEngine, *requests: Request) -> None:
    """Submit requests, and run the loop until no work remains on it."""

    async def work() -> None:
        for request in requests:
            engine.submit(request)
        for _ in range(50):
            await asyncio.sleep(0)

    asyncio.run(work())


KINDS = pytest.mark.parametrize("kind", [VllmEngine, OneProcessVllmEngine])


@KINDS
@pytest.mark.parametrize("priority", [0, STEPPED_BACK])
def test_a_query_reports_one_first_token_and_its_output(kind: type[VllmEngine], priority: int) -> None:
    llm, sink = VllmStandIn(), FakeSink()
    request = Request(sink, PROMPT)
    request.priority = priority
    submit_and_run(engine_around(llm, kind), request)
    assert llm.requests == [({"ids": PROMPT}, priority)]
    assert sink.events == ANSWERED


@KINDS
def test_offline_reports_no_first_token(kind: type[VllmEngine]) -> None:
    sink = FakeSink()
    submit_and_run(engine_around(VllmStandIn([[1, 2, 3]]), kind, stream=False), Request(sink, PROMPT))
    assert sink.events == ANSWERED[1:]


def test_a_failure_is_reported_to_the_request() -> None:
    sink = FakeSink()
    submit_and_run(
        engine_around(VllmStandIn([[1]], error=ValueError("prompt too long")), VllmEngine), Request(sink, PROMPT)
    )
    error = dict(sink.events)["failed"]
    assert isinstance(error, ExecutionError)
    assert "ValueError: prompt too long" in error.message


def test_query_times_of_vllm_omit_the_warm_up() -> None:
    llm = VllmStandIn()
    llm.metrics = SimpleNamespace(queued_ts=1.0, scheduled_ts=1.5, first_token_ts=2.0, last_token_ts=4.0)
    engine = engine_around(llm, VllmEngine)
    submit_and_run(engine, Request(FakeSink(), [5], seq=-1))
    assert asyncio.run(engine.observed()).engines == []
    submit_and_run(engine, *(Request(FakeSink(), [5], seq=number) for number in (0, 1)))
    times = {"queries": 2, "queued_s": 1.0, "prefill_s": 1.0, "decode_s": 4.0}
    assert asyncio.run(engine.observed()).engines == [{"query_times": times}]


# On the run's own event loop ------------------------------------------------------------------------------------------


def test_simultaneous_requests_are_computed_in_common_steps() -> None:
    llm, sinks = VllmStandIn(), [FakeSink(), FakeSink()]
    engine = engine_around(llm, OneProcessVllmEngine)
    submit_and_run(engine, *(Request(sink, PROMPT) for sink in sinks))
    assert [sink.events for sink in sinks] == [ANSWERED, ANSWERED]
    assert engine.activity() == llm.steps == len(PIECES), "a step for each output, and none for an idle engine"


def test_a_completed_request_may_submit_the_next_one() -> None:
    llm, second = VllmStandIn(), FakeSink()
    engine = engine_around(llm, OneProcessVllmEngine)
    first = FakeSink(lambda: engine.submit(Request(second, PROMPT)))
    submit_and_run(engine, Request(first, PROMPT))
    assert first.events == second.events == ANSWERED
    assert llm.steps == 2 * len(PIECES)


def test_a_refused_request_fails_alone() -> None:
    engine, refused, good = engine_around(VllmStandIn(), OneProcessVllmEngine), FakeSink(), FakeSink()
    submit_and_run(engine, Request(refused, PROMPT * 10), Request(good, PROMPT))
    ((word, error),) = refused.events
    assert word == "failed"
    assert "ValueError: prompt too long" in str(error)
    assert good.events == ANSWERED
    engine.check_alive()


def test_a_failed_step_ends_the_engine_and_its_requests() -> None:
    llm, sinks = VllmStandIn([[1], [2, 3]], error=RuntimeError("out of memory"), error_at=2), [FakeSink(), FakeSink()]
    engine = engine_around(llm, OneProcessVllmEngine)
    submit_and_run(engine, *(Request(sink, PROMPT) for sink in sinks))
    for sink in sinks:
        assert [word for word, _ in sink.events] == ["first", "failed"]
        assert "out of memory" in str(sink.events[1][1])
    assert llm.steps == 2, "a dead engine is left alone"
    with pytest.raises(ExecutionError, match="died"):
        engine.check_alive()


@pytest.mark.parametrize("kind", [VllmEngine, OneProcessVllmEngine])
def test_requests_may_have_different_output_lengths(kind: type[VllmEngine]) -> None:
    engine = engine_around(VllmStandIn(), kind)
    engine._parameters = "those of the run"
    engine._interface = SimpleNamespace(sampling_parameters=lambda policy, stream: (policy, stream))
    assert engine._parameters_of(Request(FakeSink(), PROMPT)) == "those of the run"
    policy = SAMPLING.model_copy(update={"min_tokens": 3, "max_tokens": 4})
    assert engine._parameters_of(Request(FakeSink(), PROMPT, output_lengths=(3, 4))) == (policy, True)
