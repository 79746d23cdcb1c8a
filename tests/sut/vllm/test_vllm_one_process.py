"""The engine on the leg's own event loop, with a stand-in for LLMEngine."""

import asyncio
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from runs.errors import ExecutionError
from sut.engine import Request
from sut.vllm.engine import OneProcessVllmEngine
from tests.support.fakes import FakeSink
from tests.support.official import SAMPLING

PROMPT = [5, 6, 7]


class StandIn:
    """Answers as LLMEngine does with output kind DELTA, each request with the same pieces, one a step."""

    def __init__(self, pieces: list[list[int]], *, dies_at_step: int = 0, longest_prompt: int = 10) -> None:
        self._pieces = pieces
        self._open: dict[str, deque[list[int]]] = {}
        self._dies_at_step = dies_at_step
        self._longest_prompt = longest_prompt
        self.priorities: list[int] = []
        self.steps = 0

    def add_request(self, name: str, prompt: list[int], parameters: Any, *, priority: int) -> None:
        if len(prompt) > self._longest_prompt:
            raise ValueError("prompt too long")
        self._open[name] = deque(self._pieces)
        self.priorities.append(priority)

    def step(self) -> list[Any]:
        self.steps += 1
        if self.steps == self._dies_at_step:
            raise RuntimeError("out of memory")
        outputs = []
        for name, pieces in list(self._open.items()):
            ids, finished = pieces.popleft(), not pieces
            if finished:
                del self._open[name]
            answer = SimpleNamespace(token_ids=ids, finish_reason="length" if finished else None)
            outputs.append(
                SimpleNamespace(
                    request_id=name, outputs=[answer], finished=finished, num_cached_tokens=None, metrics=None
                )
            )
        return outputs


class Asking(FakeSink):
    """A sink that does something when an answer is there."""

    def __init__(self, when_answered: Callable[[], None]) -> None:
        super().__init__()
        self._when_answered = when_answered

    def complete(self, request: Request, token_ids: list[int], finish_reason: str, cached_tokens: int) -> None:
        super().complete(request, token_ids, finish_reason, cached_tokens)
        self._when_answered()


def engine_around(llm: StandIn) -> OneProcessVllmEngine:
    engine = OneProcessVllmEngine("no model", {}, SAMPLING, stream_first_token=True)
    engine._llm, engine._parameters, engine._tokens_input = llm, None, lambda ids: ids
    return engine


def run(submit: Callable[[], None]) -> None:
    """Run the loop until nothing is left to do on it."""

    async def work() -> None:
        submit()
        for _ in range(50):
            await asyncio.sleep(0)

    asyncio.run(work())


ANSWERED = [("first", 1), ("done", ([1, 2, 3], "length", 0))]


def test_the_first_token_is_told_once_and_the_answer_is_whole() -> None:
    llm = StandIn([[], [1], [2, 3]])
    engine, told = engine_around(llm), FakeSink()
    run(lambda: engine.submit(Request(told, PROMPT)))
    assert told.events == ANSWERED
    assert engine.activity() == llm.steps == 3, "a step for each output, and none for an idle engine"


def test_a_query_keeps_its_priority() -> None:
    llm = StandIn([[1]])
    request = Request(FakeSink(), PROMPT)
    request.priority = 4
    run(lambda: engine_around(llm).submit(request))
    assert llm.priorities == [4]


def test_requests_that_are_there_together_are_stepped_together() -> None:
    llm = StandIn([[1], [2, 3]])
    engine, told = engine_around(llm), [FakeSink(), FakeSink()]

    def submit() -> None:
        for sink in told:
            engine.submit(Request(sink, PROMPT))

    run(submit)
    assert [sink.events for sink in told] == [ANSWERED, ANSWERED]
    assert llm.steps == 2


def test_an_answer_may_bring_the_next_query() -> None:
    llm = StandIn([[1], [2, 3]])
    engine, second = engine_around(llm), FakeSink()
    first = Asking(lambda: engine.submit(Request(second, PROMPT)))
    run(lambda: engine.submit(Request(first, PROMPT)))
    assert first.events == second.events == ANSWERED
    assert llm.steps == 4


def test_a_request_that_vllm_refuses_fails_alone() -> None:
    engine, refused, good = engine_around(StandIn([[1], [2, 3]])), FakeSink(), FakeSink()

    def submit() -> None:
        engine.submit(Request(refused, PROMPT * 10))
        engine.submit(Request(good, PROMPT))

    run(submit)
    ((word, error),) = refused.events
    assert word == "failed"
    assert "ValueError: prompt too long" in str(error)
    assert good.events == ANSWERED
    engine.check_alive()


def test_an_engine_that_fails_in_a_step_is_dead_and_its_requests_failed() -> None:
    llm = StandIn([[1], [2, 3]], dies_at_step=2)
    engine, told = engine_around(llm), [FakeSink(), FakeSink()]

    def submit() -> None:
        for sink in told:
            engine.submit(Request(sink, PROMPT))

    run(submit)
    for sink in told:
        assert [word for word, _ in sink.events] == ["first", "failed"]
        assert "out of memory" in str(sink.events[1][1])
    assert llm.steps == 2, "a dead engine is left alone"
    with pytest.raises(ExecutionError, match="died"):
        engine.check_alive()
