"""Warming up: prompts like the data set's, and none of the data set's."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.errors import ExecutionError
from scenarios.leg.config import make_config
from scenarios.leg.plan import prepare
from scenarios.leg.warmup import random_prompts, warm_up
from sut.dummy.engine import DummyEngine
from sut.engine import Request
from tests.support.official import SAMPLING

PROMPTS = [[index % 250 + 1] * length for index, length in enumerate(range(5, 105))]


def test_lengths_run_from_the_shortest_to_the_longest() -> None:
    made = random_prompts(PROMPTS, 16, 256)
    lengths = [len(prompt) for prompt in made]
    assert len(made) == 16
    assert (lengths[0], lengths[-1]) == (5, 104)
    assert lengths == sorted(lengths)
    assert set(lengths) <= {len(prompt) for prompt in PROMPTS}


@given(
    st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=3), min_size=1, max_size=20),
    st.integers(1, 20),
    st.integers(1, 12),
)
def test_never_a_prompt_of_the_data_set_nor_an_unknown_id(prompts: list[list[int]], count: int, vocab: int) -> None:
    made = random_prompts(prompts, count, vocab)
    assert len(made) <= count
    assert all(prompt not in prompts for prompt in made)
    assert all(0 <= token_id < vocab for prompt in made for token_id in prompt)


def test_the_same_prompts_each_time() -> None:
    assert random_prompts(PROMPTS, 4, 256) == random_prompts(PROMPTS, 4, 256)
    assert len(random_prompts(PROMPTS, 1, 256)) == 1


class Watching(DummyEngine):
    """Notes what is submitted."""

    def __init__(self) -> None:
        super().__init__(SAMPLING, ttft_ms=1, tpot_ms=0.001)
        self.requests: list[Request] = []

    def submit(self, request: Request) -> None:
        self.requests.append(request)
        super().submit(request)


async def _warm(engine: DummyEngine) -> dict[str, int]:
    plan = prepare(make_config({"scenario": "Server", "engine": "dummy"})).plan
    await engine.start()
    return await warm_up(engine, plan.model_copy(update={"warmup_prompts": 5}), 256, PROMPTS)


def test_warm_up_reports_what_it_did() -> None:
    engine = Watching()
    facts = asyncio.run(_warm(engine))
    assert facts["prompts"] == len(engine.requests) == 5
    assert facts["output_tokens"] == sum(len(engine.answer(request.prompt_ids)) for request in engine.requests)
    assert all(request.seq == -1 for request in engine.requests)  # no fault is meant for these


def test_an_engine_that_fails_in_the_warm_up() -> None:
    class Failing(DummyEngine):
        def submit(self, request: Request) -> None:
            request.sink.failed(request, ExecutionError("no memory"))

    with pytest.raises(ExecutionError, match="no memory"):
        asyncio.run(_warm(Failing(SAMPLING)))
