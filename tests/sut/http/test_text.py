"""Servers that send text: first tokens, counts of tokens, and each fault of a server."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runs.errors import HarnessError, InputError, SetupError
from runs.record.observed import ServerClient
from sut.engine import EngineObserved, Request
from sut.http.address import ServerAddress
from sut.http.http_engine import EndpointEngine
from sut.http.tokenizer import BYTES, load_text_tokenizer
from tests.support.processes.patience import patiently
from tests.support.runs.http_campaign import make_model
from tests.support.servers import text_server as text
from tests.support.servers.http_server import PAUSE_S, HttpServer, ServerReply, json_reply
from tests.support.servers.text_server import PATHS, response_text, text_server
from tests.sut.http.endpoint_runs import (
    PROMPTS,
    SAMPLING,
    SERVERS,
    Events,
    WaitingListener,
    failure_of,
    responses,
    started_engine,
)

EXACT = SAMPLING.model_copy(update={"min_tokens": 8})
MakeReply = Callable[[dict[str, Any]], ServerReply]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_model(tmp_path_factory.mktemp("model") / "model"))


class HonestAtFirst:
    """A server that is honest in the probes, and has a fault in the timed queries."""

    def __init__(self, make_reply: MakeReply) -> None:
        self._make_reply, self._requests = make_reply, 0

    def __call__(self, body: dict[str, Any]) -> ServerReply:
        self._requests += 1
        return text.reply_text(body) if self._requests <= 2 else self._make_reply(body)


@asynccontextmanager
async def engine_of_text_server(
    make_reply: MakeReply, model: str, *, dialect: str = "openai-chat", **more: Any
) -> AsyncIterator[EndpointEngine]:
    more = {"model_path": model, "sampling": EXACT, "connections": 1, **more}
    async with (
        text_server(dialect, HonestAtFirst(make_reply)) as server,
        started_engine(server.url, dialect=dialect, **more) as engine,
    ):
        yield engine


async def ask_text_server(
    make_reply: MakeReply, model: str, **more: Any
) -> tuple[list[Events], EngineObserved, ServerClient]:
    """Send the prompts to a server with these replies."""
    async with engine_of_text_server(make_reply, model, **more) as engine:
        reported = await responses(engine, PROMPTS)
        observed = await engine.observed()
        return reported, observed, ServerClient.model_validate(observed.engines[0]["client"])


async def failure(make_reply: MakeReply, model: str, **more: Any) -> HarnessError:
    async with engine_of_text_server(make_reply, model, **more) as engine:
        (events,) = await responses(engine, PROMPTS[:1])
        failure_of(events)
        error = events[-1][1]
        assert isinstance(error, HarnessError)
        return error


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("dialect", PATHS)
async def test_text_is_tokenized_by_the_tokenizer_of_the_model(dialect: str, streaming: bool, model: str) -> None:
    tokenizer = load_text_tokenizer(model)
    async with (
        text_server(dialect) as server,
        started_engine(
            server.url, streaming=streaming, model_path=model, sampling=EXACT
        ) as engine,  # the dialect is detected
    ):
        reported = await responses(engine, PROMPTS)
        observed = await engine.observed()
    for prompt, events in zip(PROMPTS, reported, strict=True):
        ids = tokenizer.encode(response_text(tokenizer.decode(prompt), 8))
        assert events == [*([("first", ids[0])] if streaming else []), ("done", (ids, "length", 0))]
    sent = server.requests[-1]
    assert {
        "temperature": 0.0,
        "seed": 42,
        "min_tokens": 8,
        "max_tokens": 8,
        "ignore_eos": True,
    }.items() <= sent.items()
    assert text.prompt_of(sent) in {tokenizer.decode(prompt) for prompt in PROMPTS}
    assert any(f"sends text (dialect {dialect})" in reason for reason in observed.unofficial_reasons)
    assert not [note for note in observed.notes if "responses have" in note or " reports " in note or "chunks" in note]


class TimedListener(WaitingListener):
    """A listener that records the time to the first token at the client's reads."""

    ttft_ns = 0

    def first_token(self, request: Request, token_id: int) -> None:
        self.ttft_ns = request.heard_ns - request.issue_ns
        super().first_token(request, token_id)


async def test_a_role_without_text_is_not_a_first_token(model: str) -> None:
    async with engine_of_text_server(text.reply_text, model) as engine:
        listener = TimedListener()
        engine.submit(Request(listener, PROMPTS[0], 0, 0, 0, time.time_ns()))
        await patiently(listener.over.wait(), "the response")
        client = (await engine.observed()).engines[0]["client"]
    assert listener.ttft_ns >= PAUSE_S * 1e9  # the text came this long after the role
    assert client["chunks"] == EXACT.max_tokens


async def test_reasoning_text_is_timed_separately_from_the_answer(model: str) -> None:
    reported, _, client = await ask_text_server(text.reasons_first, model)
    assert client.text is not None
    assert client.text.issue_to_text.count == len(PROMPTS)
    assert client.text.issue_to_text.p99_ms is not None
    assert client.text.issue_to_text.p99_ms >= PAUSE_S * 1e3
    assert client.text.tokens_by_tokenizer == client.text.tokens_by_usage == 8 * len(PROMPTS)
    assert [kind for kind, _ in reported[0]] == ["first", "done"]
    # An accuracy run scores the text alone.
    reported, _, _ = await ask_text_server(text.reasons_first, model, times_count=False)
    (_, first), (_, (ids, *_)) = reported[0]
    assert (first, len(ids)) == (ids[0], 6)


COUNTED_FAULTS: dict[str, tuple[MakeReply, dict[str, int], str]] = {
    "ignore_eos is dropped": (
        text.drops_ignore_eos,
        {"short": 4, "tokens_by_usage": 12, "tokens_by_tokenizer": 12},
        "4 of 4 responses have fewer than 8 tokens: the server does not honor min_tokens or ignore_eos",
    ),
    "tokens are counted wrongly": (
        text.counts_wrongly,
        {"tokens_by_usage": 64, "tokens_by_tokenizer": 32, "long": 4},
        "reports 64 output tokens, but its text has 32 with the tokenizer of --model-path (-50.0%)",
    ),
    "no usage": (
        text.without_usage,
        {"responses_with_usage": 0, "responses_estimated": 0},
        "reports no usage in 4 of 4 responses",
    ),
    "an empty usage": (text.with_empty_usage, {"responses_with_usage": 0}, "reports no usage in 4 of 4 responses"),
    "no text": (text.is_silent, {"empty": 4, "padded": 4, "short": 0}, "4 of 4 responses have no text"),
    "only [DONE]": (text.sends_only_done, {"empty": 4, "padded": 4, "short": 0}, "4 of 4 responses have no text"),
    "cut": (
        text.cuts_without_reason,
        {"without_finish_reason": 4, "short": 0, "empty": 0},
        "4 of 4 responses have no finish reason: they were cut",
    ),
}


@pytest.mark.parametrize("name", COUNTED_FAULTS)
async def test_each_server_fault_is_counted_and_noted(name: str, model: str) -> None:
    make_reply, counts, message = COUNTED_FAULTS[name]
    reported, observed, client = await ask_text_server(make_reply, model)
    assert client.text is not None
    counted = client.text.model_dump()
    assert {key: counted[key] for key in counts} == counts
    assert any(message in note for note in observed.notes), observed.notes
    assert all([kind for kind, _ in events] == ["first", "done"] for events in reported)
    assert all(len(events[1][1][0]) >= 2 for events in reported)  # LoadGen accepts no fewer
    assert all(events[0][1] == events[1][1][0][0] for events in reported)


@pytest.mark.parametrize(("owner", "counts"), [("vllm", {"continuous_usage_stats": True}), ("somebody", {})])
async def test_only_vllm_is_requested_to_count_the_tokens_of_each_chunk(
    owner: str, counts: dict[str, bool], model: str
) -> None:
    async with text_server("openai-chat", owner=owner) as server:
        url = server.url + PATHS["openai-chat"]
        async with started_engine(url, streaming=True, model_path=model, sampling=EXACT) as engine:
            await responses(engine, PROMPTS)
    assert server.requests[-1]["stream_options"] == {"include_usage": True, **counts}


async def test_without_tokenizer_loadgen_receives_zero_ids(model: str) -> None:
    """Their number is that of the tokens that the server reports.

    Without usage, it is that of the chunks, an estimate.
    """
    reported, observed, client = await ask_text_server(text.several_at_first, BYTES)
    assert [events[1][1][0] for events in reported] == [[0] * 8] * 4
    assert client.text is not None
    assert not client.text.is_tokenized
    assert any(
        "32 tokens arrived in 20 chunks: the first chunk may contain multiple tokens" in note for note in observed.notes
    )
    # The finish reason `length` states the number. Another finish reason does not.
    reported, observed, _ = await ask_text_server(
        lambda body: text.several_at_first({**body, "stream_options": {}}), BYTES
    )
    assert [events[1][1][0] for events in reported] == [[0] * 8] * 4
    reported, observed, _ = await ask_text_server(
        lambda body: text.response_in_pieces({**body, "stream_options": {}}, "abcdefgh", reason="stop", first=4), BYTES
    )
    assert [events[1][1][0] for events in reported] == [[0] * 5] * 4
    assert any("the tokens of 4 of 4 responses are estimated, one per chunk" in note for note in observed.notes)
    with pytest.raises(InputError, match="--accuracy: the tokenizer of"):
        await ask_text_server(text.reply_text, BYTES, times_count=False)


async def test_multiple_tokens_in_the_first_chunk_are_counted_and_noted(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sut.http.http_engine.FEW_RESPONSES", 0)
    _, observed, client = await ask_text_server(text.several_at_first, model)
    assert client.first_tokens_with_others == 4
    assert any("4 of 4 first tokens arrived with later tokens" in note for note in observed.notes)


@pytest.mark.parametrize("make_reply", [text.is_silent, text.sends_only_done, text.cuts_without_reason])
async def test_many_failed_responses_end_the_run(
    make_reply: MakeReply, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sut.http.text.FEW_RESPONSES", 0)
    error = await failure(make_reply, model)
    assert "1 of 1 responses failed" in error.message


ENDS: dict[str, tuple[MakeReply, str, str]] = {
    "dies": (text.dies, "closed|reset", "with curl"),
    "ends early": (text.ends_early, "without a finish reason", "with curl"),
    "no stream": (text.does_not_stream, "does not stream: only throughput can be measured", "with curl"),
    "an error without a stream": (
        lambda _: json_reply({"error": {"message": "model is loading"}}),
        "the server reports an error: {",
        "with curl",
    ),
    "401": (lambda _: json_reply({"error": "no key"}, 401), "status 401", "--api-key-env"),
    "404": (lambda _: json_reply({"error": "no model"}, 404), 'status 404: {"error": "no model"}', "--api-model-name"),
    "429": (lambda _: json_reply({"error": "slow down"}, 429), "status 429", "--api-connections"),
    "a filter": (
        lambda body: text.response_in_pieces(body, "ab", reason="content_filter"),
        "content_filter",
        "with curl",
    ),
    "an unknown field": (
        text.refuses_unknown,
        "status 422",
        "omit these fields with --api-omit min_tokens --api-omit ignore_eos",
    ),
}


@pytest.mark.parametrize("name", ENDS)
async def test_invalid_responses_end_the_run(name: str, model: str) -> None:
    make_reply, words, fix = ENDS[name]
    error = await failure(make_reply, model)
    assert any(word in error.message for word in words.split("|")), error.message
    assert fix in error.fix


async def test_an_unsupported_field_can_be_omitted(model: str) -> None:
    async with text_server("openai", text.refuses_unknown) as server:
        with pytest.raises(SetupError) as refused:
            async with started_engine(server.url, model_path=model, sampling=EXACT):
                pass
        assert "--api-omit ignore_eos" in refused.value.fix
        omitted = ("ignore_eos", "min_tokens")
        async with started_engine(server.url, model_path=model, sampling=EXACT, omitted=omitted) as engine:
            assert (await responses(engine, PROMPTS))[0][-1][0] == "done"
        assert not {"ignore_eos", "min_tokens"} & server.requests[-1].keys()
        async with started_engine(server.url, model_path=model):  # neither has an effect, so neither is sent
            pass


async def test_the_dialect_is_chosen_by_name_path_or_owner(model: str) -> None:
    async with text_server("openai") as server:
        for url, dialect in ((server.url, None), (f"{server.url}/v1/completions", None), (server.url, "openai")):
            engine = EndpointEngine(url, SAMPLING, streaming=True, connections=1, dialect=dialect, model_path=model)
            report = await engine.start()
            await engine.stop()
            assert report.configuration["dialect"] == "openai"
            assert report.configuration["probes"]["not_checked"]
        for url, dialect in ((f"{server.url}/v1/chat/completions", None), (server.url, "openai-chat")):
            with pytest.raises(SetupError, match=r"has no /v1/chat/completions \(dialect openai-chat\)"):
                async with started_engine(url, dialect=dialect, model_path=model):
                    pass
    async with HttpServer("/other", text.reply_text, "somebody") as server:
        with pytest.raises(SetupError, match="no route of a supported dialect"):
            async with started_engine(server.url, model_path=model):
                pass


def test_the_path_of_a_route_is_not_part_of_the_address() -> None:
    address = ServerAddress.parse("http://host/prefix/v1/chat/completions")
    assert (address.url, address.route) == ("http://host:80/prefix", "/v1/chat/completions")
    assert ServerAddress.parse("http://host/prefix/v1") == address


async def test_a_server_of_token_ids_requires_tokenizer_and_all_fields(model: str) -> None:
    async with SERVERS["vllm"]() as server:
        with pytest.raises(InputError, match=r"--model-path bytes: server .* takes token IDs"):
            async with started_engine(server.url, model_path=BYTES):
                pass
        with pytest.raises(InputError, match="--api-omit seed: dialect vllm sends every field"):
            async with started_engine(server.url, model_path=model, omitted=("seed",)):
                pass


def test_decoded_prompts_omit_only_the_leading_special_token(model: str, tmp_path: Path) -> None:
    tokenizer = load_text_tokenizer(model)
    ids = [0, *tokenizer.encode("a "), 1, *tokenizer.encode("b")]
    assert tokenizer.decode(ids) == "a <eos>b"
    assert load_text_tokenizer(BYTES).decode([256, *b"ab", 257]) == "ab"
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match="its tokenizer cannot be loaded"):
        load_text_tokenizer(str(tmp_path))
