"""The vLLM engine alone: its requests, its responses, and the configurations that it refuses."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qsl.dataset import Dataset
from runs.errors import ExecutionError, HarnessError, InputError, SetupError
from runs.record.manifest import RunPlan
from scenarios.launch.plan import prepare
from scenarios.launch.run_config import make_config
from sut.engine import Engine, EngineReport, Request
from sut.engines import make_engine
from sut.vllm.vllm_engine import VllmEngine
from tests.support.engines.engine_turn import engine_turn
from tests.support.engines.fakes import FakeSink
from tests.support.engines.greedy import GreedyResponse
from tests.support.official import SAMPLING
from tests.support.processes.patience import patiently

pytestmark = pytest.mark.vllm

# vLLM's cache has blocks of tokens; on CPUs a block has 128.
MORE_THAN_A_BLOCK = 300


class EngineReply(FakeSink):
    """All reports on one request, in order, and the activity of the engine at each."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.activity: list[int] = []
        self.over = asyncio.Event()
        super().__init__(self.over.set)

    def _note(self, kind: str, what: Any) -> None:
        self.activity.append(self._engine.activity())
        super()._note(kind, what)

    @property
    def names(self) -> list[str]:
        return [kind for kind, _ in self.events]

    @property
    def response(self) -> tuple[list[int], str, int]:
        """Return its IDs, its finish reason, and the number of cached prompt tokens."""
        ids, finish_reason, cached_tokens = dict(self.events)["done"]
        return ids, finish_reason, cached_tokens


async def ask(
    engine: Engine, *prompts: list[int], lengths: Sequence[tuple[int, int] | None] | None = None
) -> list[EngineReply]:
    """Submit all prompts at once, with their own output lengths, and wait for the end of each."""
    replies = [EngineReply(engine) for _ in prompts]
    for seq, (reply, prompt, limits) in enumerate(zip(replies, prompts, lengths or [None] * len(prompts), strict=True)):
        engine.submit(Request(reply, prompt, seq=seq, output_lengths=limits))
    await patiently(asyncio.gather(*(reply.over.wait() for reply in replies)), "the replies")
    await asyncio.sleep(0.5)  # a second response would arrive now
    return replies


class Running:
    """A started engine on its own event loop, as in a run."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._loop = asyncio.new_event_loop()
        self.report: EngineReport = self.do(engine.start())

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    def ask(self, *prompts: list[int], **more: Any) -> list[EngineReply]:
        replies: list[EngineReply] = self.do(ask(self.engine, *prompts, **more))
        return replies


@pytest.fixture(scope="module")
def plan(tiny_model: Path) -> RunPlan:
    """Return the plan of a Server run, with the engine options of a user who sets none."""
    return prepare(make_config({"scenario": "Server", "model_path": str(tiny_model), "target_qps": 2})).plan


@pytest.fixture(scope="module")
def running(plan: RunPlan) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in plan.environment.items():
            if name not in os.environ:  # the environment of all tests here takes precedence, as in a run
                patch.setenv(name, value)
        with engine_turn:
            running = Running(make_engine(plan))
        yield running
        running.do(running.engine.stop())


@pytest.fixture(scope="module")
def replies(running: Running, dataset: Dataset) -> list[EngineReply]:
    """Return the replies to all 64 articles at once."""
    assert len(dataset) == 64
    return running.ask(*dataset.prompts)


# The running engine --------------------------------------------------------------------------------------------------


def test_the_report_has_options_versions_and_limits(running: Running, plan: RunPlan, dataset: Dataset) -> None:
    report = running.report
    arguments = {"model": plan.model_path, **plan.engine_options}
    of_itself = {"enable_prefix_caching": False, "device": "cpu", "dtype": "float32", "speculative": False}
    assert (arguments | of_itself).items() <= report.configuration.items()
    assert report.prefix_caching is False
    assert report.versions["vllm"].startswith("0.")
    assert report.vocab_size == 1024
    assert report.max_model_len == dataset.longest_prompt + SAMPLING.max_tokens


def test_a_repeated_prompt_is_computed_again(
    running: Running, dataset: Dataset, responses: list[GreedyResponse]
) -> None:
    prompt = next(prompt for prompt in dataset.prompts if len(prompt) > MORE_THAN_A_BLOCK)
    first, second = running.ask(prompt)[0].response, running.ask(prompt)[0].response
    assert first == second
    assert first[2] == 0
    assert responses[dataset.prompts.index(prompt)].matches(first[0])  # equal alone and among others


def test_responses_equal_greedy_decoding(replies: list[EngineReply], responses: list[GreedyResponse]) -> None:
    outputs = [reply.response[0] for reply in replies]
    assert not [ids for ids, response in zip(outputs, responses, strict=True) if not response.matches(ids)]
    # A tie may change a few of them. With many, the comparison would prove nothing.
    assert sum(ids == response.ids for ids, response in zip(outputs, responses, strict=True)) >= 60
    # Each once, the first token at once
    assert [reply.names for reply in replies] == [["first", "done"]] * 64
    assert [reply.events[0][1] for reply in replies] == [ids[0] for ids in outputs]


def test_responses_end_at_a_stop_id_or_the_limit(replies: list[EngineReply], greedy_stops: set[int]) -> None:
    lengths = {len(reply.response[0]) for reply in replies}
    assert max(lengths) == SAMPLING.max_tokens
    assert min(lengths) < SAMPLING.max_tokens, "no response ended early: the stop IDs were not honored"
    for reply in replies:
        ids, finish_reason, _ = reply.response
        stopped = ids[-1] in greedy_stops
        assert not greedy_stops & set(ids[:-1])
        assert finish_reason == ("stop" if stopped else "length")
        assert stopped or len(ids) == SAMPLING.max_tokens


def test_requests_may_have_different_output_lengths(
    running: Running, dataset: Dataset, responses: list[GreedyResponse], replies: list[EngineReply]
) -> None:
    early = min(range(64), key=lambda index: len(replies[index].response[0]))
    prompt, ids = dataset.prompts[early], responses[early].ids
    long, short, usual = running.ask(prompt, prompt, prompt, lengths=[(len(ids) + 9,) * 2, (2, 2), None])
    assert (long.response[0][: len(ids) - 1], len(long.response[0])) == (ids[:-1], len(ids) + 9)
    assert short.response[:2] == (ids[:2], "length")
    assert usual.response[0] == ids


@pytest.fixture(scope="module")
def greedy_stops(tiny_model: Path) -> set[int]:
    from transformers import GenerationConfig

    return set(GenerationConfig.from_pretrained(str(tiny_model)).eos_token_id)


def test_activity_changes_within_a_request(running: Running, replies: list[EngineReply]) -> None:
    before = running.engine.activity()
    longest = max(replies, key=lambda reply: len(reply.response[0]))
    at_first_token, at_end = longest.activity
    # Between the first and the last of 128 tokens the sink receives nothing, but the watchdog must see progress.
    assert at_end - at_first_token > 10
    assert running.engine.activity() == before, "an idle engine makes no progress"


def test_a_refused_request_fails_alone(running: Running, dataset: Dataset) -> None:
    too_long, unknown_id, good = running.ask(
        [5] * (running.report.max_model_len + 1), [5, 10**6, 5], dataset.prompts[0]
    )
    for reply in (too_long, unknown_id):
        ((name, error),) = reply.events
        assert name == "failed"
        assert isinstance(error, ExecutionError)
        assert "request" in error.message
    assert good.names == ["first", "done"]
    running.engine.check_alive()


# Refused configurations, without waiting for an engine ----------------------------------------------------------------


def start_refusal(model: Path, **options: Any) -> HarnessError:
    """Return the error of the engine for options, added to small defaults."""
    base = {"dtype": "float32", "enforce_eager": True, "enable_prefix_caching": False, "max_model_len": 1000}
    engine = VllmEngine(str(model), {**base, **options}, SAMPLING, stream_first_token=True)
    with engine_turn, pytest.raises(HarnessError) as caught:
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
def test_an_option_refused_by_vllm_is_bad_input(tiny_model: Path, name: str, value: object, words: str) -> None:
    error = start_refusal(tiny_model, **{name: value})
    assert isinstance(error, InputError)
    assert error.message.startswith((f"vLLM refuses {name}={value}: ", f"--engine-arg {name}: vLLM "))
    assert words in str(error)


def test_a_folder_without_a_model_is_bad_input(tmp_path: Path) -> None:
    error = start_refusal(tmp_path)
    assert isinstance(error, InputError)
    assert str(tmp_path) in str(error)


class AsyncLlmStandIn:
    """A stand-in for `AsyncLLM` with vLLM's own configuration, but without processes."""

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
def engine_stand_ins(monkeypatch: pytest.MonkeyPatch) -> list[AsyncLlmStandIn]:
    """Return the engines that were 'started' in a test."""
    from vllm.v1.engine.async_llm import AsyncLLM

    made: list[AsyncLlmStandIn] = []

    def from_engine_args(arguments: Any, usage_context: Any) -> AsyncLlmStandIn:
        made.append(AsyncLlmStandIn(arguments.create_engine_config(usage_context)))
        return made[-1]

    monkeypatch.setattr(AsyncLLM, "from_engine_args", from_engine_args)
    return made


def test_an_option_changed_by_vllm_stops_the_start(tiny_model: Path, engine_stand_ins: list[AsyncLlmStandIn]) -> None:
    # Not available on CPUs: vLLM logs it and continues without
    error = start_refusal(tiny_model, async_scheduling=True)
    assert engine_stand_ins, "vLLM accepted the option"
    assert isinstance(error, SetupError)
    assert re.search("async_scheduling: requested True, .* has False", error.message)


@pytest.mark.parametrize("stream_first_token", [True, False])
def test_vllm_receives_the_official_sampling(
    tiny_model: Path, engine_stand_ins: list[AsyncLlmStandIn], stream_first_token: bool
) -> None:
    from vllm.sampling_params import RequestOutputKind, SamplingType

    engine = VllmEngine(str(tiny_model), {"dtype": "float32"}, SAMPLING, stream_first_token=stream_first_token)

    async def start_and_ask() -> list[EngineReply]:
        await engine.start()
        return await ask(engine, [1, 2, 3])

    (reply,) = asyncio.run(start_and_ask())
    assert reply.names == (["first", "done"] if stream_first_token else ["done"])
    parameters = engine_stand_ins[0].parameters
    assert parameters.sampling_type == SamplingType.GREEDY
    assert (parameters.temperature, parameters.top_p, parameters.seed) == (0.0, 1.0, 42)
    assert (parameters.min_tokens, parameters.max_tokens, parameters.n) == (1, 128, 1)
    assert (parameters.presence_penalty, parameters.frequency_penalty, parameters.repetition_penalty) == (0.0, 0.0, 1.0)
    assert (parameters.stop, parameters.ignore_eos, parameters.logit_bias) == ([], False, None)
    assert parameters.detokenize is False
    assert parameters.output_kind == (RequestOutputKind.DELTA if stream_first_token else RequestOutputKind.FINAL_ONLY)
