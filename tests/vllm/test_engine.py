"""The vLLM engine by itself: what it is asked to do, what it answers, and which configurations it refuses."""

import asyncio
import os
import re
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qsl.dataset import Dataset
from runs.errors import ExecutionError, HarnessError, InputError, SetupError
from runs.record.manifest import LegPlan
from scenarios.leg.config import make_config
from scenarios.leg.plan import prepare
from sut.engine import Engine, EngineReport, Request
from sut.replicas.pool import make_engine
from sut.vllm.engine import VllmEngine
from tests.support.greedy import Answer
from tests.support.official import SAMPLING

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

ANSWER_TIMEOUT_S = 300.0
# vLLM's cache works in blocks of tokens; on CPUs a block has 128.
MORE_THAN_A_BLOCK = 300


@dataclass
class Reply:
    """All that was said about one request, in order, and what the engine's activity was at each word."""

    names: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    activity: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    cached_tokens: int = 0


class Listener:
    """A sink that writes everything down."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.replies: dict[int, Reply] = {}
        self._done: dict[int, asyncio.Event] = {}

    async def ask(self, prompts: list[list[int]]) -> list[Reply]:
        """Submit all prompts at once and wait for the end of each."""
        requests = [Request(self, prompt, seq=number) for number, prompt in enumerate(prompts)]
        for request in requests:
            self.replies[request.seq], self._done[request.seq] = Reply(), asyncio.Event()
            self._engine.submit(request)
        await asyncio.gather(*(event.wait() for event in self._done.values()))
        await asyncio.sleep(0.5)  # a second answer would come now
        return list(self.replies.values())

    def _heard(self, request: Request, name: str, value: Any) -> Reply:
        reply = self.replies[request.seq]
        reply.names.append(name)
        reply.values.append(value)
        reply.activity.append(self._engine.activity())
        return reply

    def first_token(self, request: Request, token_id: int) -> None:
        self._heard(request, "first token", token_id)

    def complete(self, request: Request, token_ids: list[int], finish_reason: str, cached_tokens: int) -> None:
        reply = self._heard(request, "complete", token_ids)
        reply.ids, reply.finish_reason, reply.cached_tokens = token_ids, finish_reason, cached_tokens
        self._done[request.seq].set()

    def failed(self, request: Request, error: BaseException) -> None:
        self._heard(request, "failed", error)
        self._done[request.seq].set()


class EngineThread:
    """An engine on an event loop of its own, as in a leg."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, Any], timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(timeout_s)

    def ask(self, *prompts: list[int]) -> list[Reply]:
        replies: list[Reply] = self.do(Listener(self.engine).ask(list(prompts)))
        return replies

    def close(self) -> None:
        self.do(self.engine.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


@pytest.fixture(scope="module")
def plan(tiny_model: Path) -> LegPlan:
    """The plan of a Server leg, with the engine options that a user gets who asks for none."""
    return prepare(make_config({"scenario": "Server", "model_path": str(tiny_model), "target_qps": 2})).plan


@pytest.fixture(scope="module")
def engine_thread(plan: LegPlan) -> Iterator[EngineThread]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in plan.environment.items():
            if name not in os.environ:  # what is set for all tests here wins, as in a leg
                patch.setenv(name, value)
        thread = EngineThread(make_engine(plan))
        yield thread
        thread.close()


@pytest.fixture(scope="module")
def report(engine_thread: EngineThread) -> EngineReport:
    """The report of the started engine; whoever needs the engine started asks for this."""
    started: EngineReport = engine_thread.do(engine_thread.engine.start(), 300.0)
    return started


@pytest.fixture(scope="module")
def running(engine_thread: EngineThread, report: EngineReport) -> EngineThread:
    return engine_thread


@pytest.fixture(scope="module")
def replies(running: EngineThread, dataset: Dataset) -> list[Reply]:
    """All 64 articles at once."""
    assert len(dataset) == 64
    return running.ask(*dataset.prompts)


# The running engine --------------------------------------------------------------------------------------------------


def test_the_report_tells_what_was_asked_for_the_software_and_the_limits(
    report: EngineReport, plan: LegPlan, dataset: Dataset
) -> None:
    asked = {"model": plan.model_path, **plan.engine_options}
    of_itself = {"enable_prefix_caching": False, "device": "cpu", "dtype": "float32", "speculative": False}
    assert (asked | of_itself).items() <= report.configuration.items()
    assert report.prefix_caching is False
    assert report.versions["vllm"].startswith("0.")
    assert report.vocab_size == 1024
    assert report.max_model_len == dataset.longest_prompt + SAMPLING.max_tokens


def test_a_prompt_sent_twice_is_computed_twice(running: EngineThread, dataset: Dataset, answers: list[Answer]) -> None:
    prompt = next(prompt for prompt in dataset.prompts if len(prompt) > MORE_THAN_A_BLOCK)
    first, second = running.ask(prompt)[0], running.ask(prompt)[0]
    assert (first.cached_tokens, second.cached_tokens) == (0, 0)
    assert first.ids == second.ids
    assert answers[dataset.prompts.index(prompt)].matches(first.ids)  # alone as among others


def test_answers_are_those_of_greedy_decoding(replies: list[Reply], answers: list[Answer]) -> None:
    wrong = [
        (number, reply.ids, answer.ids)
        for number, (reply, answer) in enumerate(zip(replies, answers, strict=True))
        if not answer.matches(reply.ids)
    ]
    assert not wrong
    # A tie may part a few of them; were it many, the comparison would be worth nothing.
    identical = sum(reply.ids == answer.ids for reply, answer in zip(replies, answers, strict=True))
    assert identical >= 60
    # Each once, the first token at once.
    assert [reply.names for reply in replies] == [["first token", "complete"]] * 64
    assert [reply.values[0] for reply in replies] == [reply.ids[0] for reply in replies]


def test_answers_end_at_a_stop_id_or_at_the_limit(replies: list[Reply], greedy_stops: set[int]) -> None:
    lengths = {len(reply.ids) for reply in replies}
    assert max(lengths) == SAMPLING.max_tokens
    assert min(lengths) < SAMPLING.max_tokens, "no answer ended early: the stop ids were not honoured"
    for reply in replies:
        stopped = reply.ids[-1] in greedy_stops
        assert not greedy_stops & set(reply.ids[:-1])
        assert reply.finish_reason == ("stop" if stopped else "length")
        assert stopped or len(reply.ids) == SAMPLING.max_tokens


@pytest.fixture(scope="module")
def greedy_stops(tiny_model: Path) -> set[int]:
    from transformers import GenerationConfig

    return set(GenerationConfig.from_pretrained(str(tiny_model)).eos_token_id)


def test_activity_shows_progress_within_a_request(running: EngineThread, replies: list[Reply]) -> None:
    before = running.engine.activity()
    longest = max(replies, key=lambda reply: len(reply.ids))
    at_first_token, at_end = longest.activity
    # Between the first and the last of 128 tokens nothing is said to the sink, and yet the watchdog must see life.
    assert at_end - at_first_token > 10
    assert running.engine.activity() == before, "an idle engine makes no progress"


def test_a_request_that_the_engine_refuses_fails_alone(
    running: EngineThread, report: EngineReport, dataset: Dataset
) -> None:
    assert report.max_model_len is not None
    too_long, unknown_id, good = running.ask([5] * (report.max_model_len + 1), [5, 10**6, 5], dataset.prompts[0])
    for reply in (too_long, unknown_id):
        assert reply.names == ["failed"]
        assert isinstance(reply.values[0], ExecutionError)
        assert "request" in reply.values[0].message
    assert good.names == ["first token", "complete"]
    running.engine.check_alive()


# Configurations that are refused, without waiting for an engine -------------------------------------------------------


def refusal(model: Path, **options: Any) -> HarnessError:
    """How the engine refuses options (on top of small defaults)."""
    base = {"dtype": "float32", "enforce_eager": True, "enable_prefix_caching": False, "max_model_len": 1000}
    engine = VllmEngine(str(model), {**base, **options}, SAMPLING, stream_first_token=True)
    with pytest.raises(HarnessError) as caught:
        asyncio.run(engine.start())
    return caught.value


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_num_seq", 8, "did you mean max_num_seqs"),
        ("dtype", "float99", "dtype"),
        ("max_model_len", "2k", "max_model_len"),
        ("max_model_len", 5000, "max_model_len (5000)"),
        ("quantization", "fp99", "fp99"),
    ],
)
def test_an_option_that_vllm_refuses_is_bad_input(tiny_model: Path, name: str, value: object, words: str) -> None:
    error = refusal(tiny_model, **{name: value})
    assert isinstance(error, InputError)
    assert error.message.startswith((f"vLLM refuses {name}={value}: ", f"--engine-arg {name}: vLLM "))
    assert words in str(error)


def test_a_folder_without_a_model_is_bad_input(tmp_path: Path) -> None:
    error = refusal(tmp_path)
    assert isinstance(error, InputError)
    assert str(tmp_path) in str(error)


class StandIn:
    """What `AsyncLLM` would be with vLLM's own configuration, but without processes."""

    def __init__(self, config: Any) -> None:
        self.vllm_config = config
        self.log_stats = self.log_requests = False
        self.engine_core = SimpleNamespace(get_output_async=None)
        self.parameters: Any = None

    async def generate(self, prompt: Any, parameters: Any, request_id: str, *, priority: int) -> AsyncIterator[Any]:
        self.parameters = parameters
        output = SimpleNamespace(token_ids=[7, 8], finish_reason="stop")
        yield SimpleNamespace(outputs=[output], finished=True, num_cached_tokens=0, metrics=None)


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    """Engines that were 'started' in a test."""
    from vllm.v1.engine.async_llm import AsyncLLM

    made: list[StandIn] = []

    def from_engine_args(arguments: Any, usage_context: Any) -> StandIn:
        made.append(StandIn(arguments.create_engine_config(usage_context)))
        return made[-1]

    monkeypatch.setattr(AsyncLLM, "from_engine_args", from_engine_args)
    return made


def test_an_option_that_vllm_changes_stops_the_start(tiny_model: Path, stand_ins: list[StandIn]) -> None:
    error = refusal(tiny_model, async_scheduling=True)  # not available on CPUs: vLLM logs it and goes on without
    assert stand_ins, "vLLM accepted the option"
    assert isinstance(error, SetupError)
    assert re.search("async_scheduling: asked True, .* runs with False", error.message)


@pytest.mark.parametrize("stream_first_token", [True, False])
def test_vllm_is_given_the_official_sampling(
    tiny_model: Path, stand_ins: list[StandIn], stream_first_token: bool
) -> None:
    from vllm.sampling_params import RequestOutputKind, SamplingType

    engine = VllmEngine(str(tiny_model), {"dtype": "float32"}, SAMPLING, stream_first_token=stream_first_token)

    async def start_and_ask() -> list[Reply]:
        await engine.start()
        return await Listener(engine).ask([[1, 2, 3]])

    (reply,) = asyncio.run(start_and_ask())
    assert reply.names == (["first token", "complete"] if stream_first_token else ["complete"])
    given = stand_ins[0].parameters
    assert given.sampling_type == SamplingType.GREEDY
    assert (given.temperature, given.top_p, given.seed) == (0.0, 1.0, 42)
    assert (given.min_tokens, given.max_tokens, given.n) == (1, 128, 1)
    assert (given.presence_penalty, given.frequency_penalty, given.repetition_penalty) == (0.0, 0.0, 1.0)
    assert (given.stop, given.ignore_eos, given.logit_bias) == ([], False, None)
    assert given.detokenize is False
    assert given.output_kind == (RequestOutputKind.DELTA if stream_first_token else RequestOutputKind.FINAL_ONLY)
