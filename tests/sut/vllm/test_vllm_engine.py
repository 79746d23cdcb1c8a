"""The engine's side towards vLLM, with a stand-in for AsyncLLM: what is asked of it, what becomes of its outputs."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from runs.errors import ExecutionError
from sut.admission import STEPPED_BACK
from sut.engine import Request
from sut.vllm.engine import VllmEngine
from tests.support.fakes import FakeSink
from tests.support.official import SAMPLING


class StandIn:
    """Answers as AsyncLLM does with output kind DELTA: new ids in each output."""

    def __init__(self, pieces: list[list[int]], error: Exception | None = None) -> None:
        self.pieces = pieces
        self.error = error
        self.calls: list[tuple[Any, int]] = []
        self.metrics: Any = None

    async def generate(self, prompt: Any, parameters: Any, request_id: str, *, priority: int) -> AsyncIterator[Any]:
        self.calls.append((prompt, priority))
        for number, ids in enumerate(self.pieces, start=1):
            finished = number == len(self.pieces)
            answer = SimpleNamespace(token_ids=ids, finish_reason="length" if finished else None)
            yield SimpleNamespace(outputs=[answer], finished=finished, num_cached_tokens=None, metrics=self.metrics)
        if self.error:
            raise self.error


def answered(llm: StandIn, *, stream: bool = True, priority: int = 0) -> FakeSink:
    told = FakeSink()
    engine = VllmEngine("no model", {}, SAMPLING, stream_first_token=stream)
    engine._llm, engine._parameters, engine._tokens_input = llm, None, lambda ids: {"ids": ids}
    request = Request(told, [5, 6, 7])
    request.priority = priority

    async def run() -> None:
        engine.submit(request)
        await asyncio.gather(*engine._tasks)

    asyncio.run(run())
    return told


@pytest.mark.parametrize("priority", [0, STEPPED_BACK])
def test_a_query_is_asked_for_with_its_ids_and_priority(priority: int) -> None:
    llm = StandIn([[1], [2, 3]])
    answered(llm, priority=priority)
    assert llm.calls == [({"ids": [5, 6, 7]}, priority)]


def test_the_first_token_is_told_once_and_the_answer_is_whole() -> None:
    told = answered(StandIn([[], [1], [2, 3]]))
    assert told.events == [("first", 1), ("done", ([1, 2, 3], "length", 0))]


def test_offline_tells_no_first_token() -> None:
    told = answered(StandIn([[1, 2, 3]]), stream=False)
    assert told.events == [("done", ([1, 2, 3], "length", 0))]


def test_a_failure_reaches_the_sink() -> None:
    told = answered(StandIn([[1]], ValueError("prompt too long")))
    error = dict(told.events)["failed"]
    assert isinstance(error, ExecutionError)
    assert "ValueError: prompt too long" in error.message


def test_vllms_own_times_are_summed_without_those_of_warm_ups() -> None:
    llm, engine = StandIn([[1], [2]]), VllmEngine("no model", {}, SAMPLING, stream_first_token=True)
    llm.metrics = SimpleNamespace(queued_ts=1.0, scheduled_ts=1.5, first_token_ts=2.0, last_token_ts=4.0)
    engine._llm, engine._parameters, engine._tokens_input = llm, None, lambda ids: {"ids": ids}

    async def run(*numbers: int) -> list[dict[str, Any]]:
        for number in numbers:
            engine.submit(Request(FakeSink(), [5], seq=number))
        await asyncio.gather(*engine._tasks)
        return (await engine.observed()).engines

    assert asyncio.run(run(-1)) == []
    times = {"queries": 2, "queued_s": 1.0, "prefill_s": 1.0, "decode_s": 4.0}
    assert asyncio.run(run(0, 1)) == [{"query_times": times}]
