"""Warm-up: its prompts are similar to those of the dataset, and different from each of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.errors import ExecutionError
from scenarios.launch import warmup
from scenarios.launch.plan import prepare
from scenarios.launch.run_config import make_config
from scenarios.launch.trial import Measured
from scenarios.launch.warmup import random_prompts, warm_up
from sut.dummy.dummy_engine import DummyEngine
from sut.engine import EngineLimits, EngineReport, Request
from tests.support.official import SAMPLING
from tests.support.simulated import virtual_time as virtual

# All longer than the shortest of a warm-up
PROMPTS = [[index % 250 + 1] * length for index, length in enumerate(range(9, 109))]


def test_warm_up_prompts_cover_the_lengths_of_the_dataset() -> None:
    made = random_prompts(PROMPTS, 16, 256)
    assert made == random_prompts(PROMPTS, 16, 256)
    assert len(random_prompts(PROMPTS, 1, 256)) == 1
    lengths = [len(prompt) for prompt in made]
    assert len(made) == 16
    assert (lengths[0], lengths[-1]) == (9, 108)
    assert lengths == sorted(lengths)
    assert set(lengths) <= {len(prompt) for prompt in PROMPTS}


@given(
    st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=3), min_size=1, max_size=20),
    st.integers(1, 20),
    st.integers(1, 12),
)
def test_warm_up_prompts_are_new_and_in_the_vocabulary(prompts: list[list[int]], count: int, vocab: int) -> None:
    made = random_prompts(prompts, count, vocab)
    assert len(made) <= count
    assert all(prompt not in prompts for prompt in made)
    assert all(0 <= token_id < vocab for prompt in made for token_id in prompt)


class ObservedEngine(DummyEngine):
    """An engine that records the submitted requests, and the number of open ones at each look."""

    def __init__(self, tpot_ms: float = 0.001) -> None:
        super().__init__(SAMPLING, ttft_ms=1, tpot_ms=tpot_ms)
        self.requests: list[Request] = []
        self.open = self.most_open = 0
        self.sizes: set[int] = set()

    def submit(self, request: Request) -> None:
        self.requests.append(request)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        super().submit(request)

    def activity(self) -> int:
        self.sizes.add(self.open)
        return super().activity()

    def _finish(self, request: Request, ids: list[int]) -> None:
        self.open -= 1
        super()._finish(request, ids)


LIMITS = EngineLimits(queries=100, step_tokens=1_000)
# Ms per token; responses of 32 tokens and more, so that a batch is computed together for two seconds
FOR_LONG_MS = 60.0


async def _warm_or_measure(
    engine: DummyEngine, scenario: str, *, compiles: bool, trial: bool, **more: float
) -> tuple[dict[str, int], Measured | None]:
    made = prepare(make_config({"scenario": scenario, "engine": "dummy"})).plan
    plan = made.model_copy(update={"warmup_prompts": 5, "compiles": compiles, "trial": trial})
    await engine.start()
    report = EngineReport("dummy", vocab_size=256, limits=LIMITS)
    return await warm_up(engine, plan, report, PROMPTS, **more)


async def _warm(engine: DummyEngine, *, compiles: bool = False, **more: float) -> dict[str, int]:
    facts, measured = await _warm_or_measure(engine, "Server", compiles=compiles, trial=False, **more)
    assert measured is None
    return facts


@pytest.mark.parametrize(
    ("scenario", "compiles", "warmed", "measured"),
    [("Server", False, 0, 4), ("Offline", False, 0, 4), ("SingleStream", False, 1, 1), ("Interactive", True, 105, 4)],
)
def test_a_trial_measures_complete_queries(scenario: str, compiles: bool, warmed: int, measured: int) -> None:
    engine = ObservedEngine(FOR_LONG_MS)
    facts, measurement = virtual.run(_warm_or_measure(engine, scenario, compiles=compiles, trial=True))
    assert measurement is not None
    last = engine.requests[-measured:]
    assert measurement.queries == measured
    assert measurement.output_tokens == sum(len(engine.response(request.prompt_ids)) for request in last)
    assert measurement.seconds >= measurement.output_tokens / measured * FOR_LONG_MS / 1e3 * 0.9
    assert all(request.prompt_ids not in PROMPTS for request in last)
    assert facts["prompts"] == len(engine.requests) >= warmed + measured
    assert compiles or len(engine.requests) == warmed + measured


def test_the_warm_up_reports_its_counts() -> None:
    engine = ObservedEngine()
    facts = virtual.run(_warm(engine))
    assert facts["prompts"] == len(engine.requests) == 5
    assert facts["queries_at_once"] == 4
    assert facts["prompt_tokens_at_once"] == sum(len(request.prompt_ids) for request in engine.requests[1:])
    assert facts["output_tokens"] == sum(len(engine.response(request.prompt_ids)) for request in engine.requests)
    assert all(request.seq == -1 for request in engine.requests)  # these requests have no fault


def test_a_compiling_engine_is_warmed_up_with_its_largest_batches() -> None:
    engine = ObservedEngine(FOR_LONG_MS)
    facts = virtual.run(_warm(engine, compiles=True))
    assert facts["prompts"] == len(engine.requests)
    assert facts["queries_at_once"] == engine.most_open == LIMITS.queries
    assert facts["prompt_tokens_at_once"] >= warmup.FULL_STEPS * 1_000
    assert max(len(request.prompt_ids) for request in engine.requests) == 108  # the longest of the dataset
    assert all(request.prompt_ids not in PROMPTS for request in engine.requests)
    assert engine.sizes >= {1, 2, 4, 8, 16, 32, 64, 100}  # batches of these sizes were computed before


def test_a_batch_stops_growing_if_responses_take_too_long() -> None:
    engine = ObservedEngine()
    facts = virtual.run(_warm(engine, compiles=True, longest_batch_s=0.0))
    assert [len(request.prompt_ids) for request in engine.requests].count(warmup.SHORT_PROMPT_TOKENS) == 1
    assert facts["queries_at_once"] < 100  # the manifest has it


def test_an_engine_that_dies_during_the_warm_up_is_an_error() -> None:
    class Dying(ObservedEngine):
        def submit(self, request: Request) -> None:
            if len(request.prompt_ids) == warmup.SHORT_PROMPT_TOKENS:
                self._dead = True
            super().submit(request)

    with pytest.raises(ExecutionError, match="died"):
        virtual.run(_warm(Dying(), compiles=True))


def test_a_failed_warm_up_request_is_an_error() -> None:
    class Failing(DummyEngine):
        def submit(self, request: Request) -> None:
            request.sink.failed(request, ExecutionError("no memory"))

    with pytest.raises(ExecutionError, match="no memory"):
        virtual.run(_warm(Failing(SAMPLING)))
