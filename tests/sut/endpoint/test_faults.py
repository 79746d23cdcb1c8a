"""What a server, or a box in front of it, can do to an answer: each is found and told, none is mended."""

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from runs.errors import ExecutionError
from sut.endpoint import exchange
from sut.endpoint.engine import EndpointEngine
from tests.support import server_dialects as speak
from tests.support.http_server import HANG, PAUSE_S, RESET, HttpServer, Raw, Reply, Step, event, json_reply
from tests.sut.endpoint.legs import PROMPTS, SERVERS, answers, engine_for, failure_of

Change = Callable[[list[Step]], list[Step] | Reply]


class HonestUntilTimed:
    """Speaks a server's words, vLLM's if not told; a fault is in every answer to one of the timed prompts."""

    def __init__(
        self, change: Change, prompts: list[list[int]] = PROMPTS, speaks: Callable[[dict[str, Any]], Reply] = speak.vllm
    ) -> None:
        self.change = change
        self._prompts = prompts
        self._speaks = speaks

    def __call__(self, body: dict[str, Any]) -> Reply:
        reply = self._speaks(body)
        if next(body[name] for name in ("prompt", "token_ids", "input_ids") if name in body) not in self._prompts:
            return reply
        made = self.change(speak.payloads(reply))
        return made if isinstance(made, Reply) else Reply(made, content_type=reply.content_type)


def _in_usage(name: str, value: Any) -> Change:
    def change(steps: list[Step]) -> list[Step]:
        steps[3] = speak.changed(steps[3], lambda content: content["usage"].update({name: value}))
        return steps

    return change


def _without(place: int) -> Change:
    return lambda steps: steps[:place] + steps[place + 1 :]


def _twice(place: int) -> Change:
    return lambda steps: [*steps[: place + 1], *steps[place:]]


def _reason(value: Any) -> Change:
    def change(steps: list[Step]) -> list[Step]:
        steps[2] = speak.changed(steps[2], lambda content: content["choices"][0].update(finish_reason=value))
        return steps

    return change


def _other_ids(ids: list[Any]) -> Change:
    def change(steps: list[Step]) -> list[Step]:
        steps[0] = speak.changed(steps[0], lambda content: content["choices"][0].update(token_ids=ids))
        return steps

    return change


def _compressed(steps: list[Step]) -> Reply:
    data = gzip.compress(b"".join(step for step in steps if isinstance(step, bytes)))
    return Reply([data], content_type=speak.EVENT_STREAM, headers=("content-encoding: gzip",))


def _bare(*data: bytes) -> Change:
    return lambda _: Reply([Raw(one) for one in data], head=False)


def _until_it_closes(steps: list[Step]) -> Reply:
    head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    return Reply([Raw(head), *[Raw(step) for step in steps if isinstance(step, bytes)]], head=False)


REDIRECT = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"

FAULTS: dict[str, tuple[Change, str]] = {
    "204": (_bare(b"HTTP/1.1 204 No Content\r\n\r\n"), "status 204: without a word"),
    "a redirect": (_bare(REDIRECT), "status 307: without a word"),
    "an id beyond the vocabulary": (_other_ids([1_000]), "id 1000 came, and the model's vocabulary has 1000"),
    "an id below zero": (_other_ids([-1]), "not what vllm says"),
    "a line without an end": (lambda steps: [steps[0], b"data: " + b"x" * (5 << 20)], "more than 4 MiB"),
    "the end in half a character": (lambda steps: [*steps[:2], b'data: {"text": "\xc3'], "ends within an event"),
    "HTTP/1.0 until the connection is closed": (_until_it_closes, "the server closed the connection"),
    "nothing at all": (_bare(), "the server closed the connection"),
    "429": (lambda _: json_reply({"error": "too many requests"}, 429), 'status 429: {"error": "too many requests"}'),
    "503 without a word": (lambda _: Reply([], 503), "status 503: without a word"),
    "503 cut off": (lambda _: Reply([b"first line\nsecond", RESET], 503), "status 503: first line"),
    "500 as a page": (lambda _: Reply([b"<html>\nmore"], 500, "text/html"), "status 500: <html>"),
    "200, but no stream": (lambda _: json_reply({"choices": []}), "is application/json, not text/event-stream"),
    "reset before the head": (lambda _: Reply([RESET]), "closed|reset"),
    "reset in the middle": (lambda steps: [steps[0], 0.01, RESET], "closed|reset"),
    "end in the middle": (lambda steps: [steps[0]], "ends after 1 ids without a finish reason"),
    "end within an event": (lambda steps: [*steps[:2], b"data: {"], "ends within an event"),
    "error in the stream": (
        lambda steps: [steps[0], event({"error": {"message": "out of memory", "code": 500}})],
        "out of memory",
    ),
    "no JSON": (lambda steps: [steps[0], b"data: {]\n\n"], "not what vllm says"),
    "ids that are none": (_other_ids(["x"]), "not what vllm says"),
    "an id that no int32 holds": (_other_ids([1 << 31]), "not what vllm says"),
    "no usage": (_without(3), "counts no tokens"),
    "fewer counted": (_in_usage("completion_tokens", 7), "8 ids came, and the server counts 7"),
    "more counted": (_in_usage("completion_tokens", 9), "8 ids came, and the server counts 9"),
    "another prompt counted": (_in_usage("prompt_tokens", 1000), "the server counts 1000"),
    "an event twice": (_twice(0), "9 ids came"),
    "the end twice": (_twice(2), "ids came behind the finish reason"),
    "an event lost": (_without(0), "7 ids came, and the server counts 8"),
    "behind the end": (lambda steps: [*steps, steps[0]], "goes on behind its end"),
    "no finish reason": (_reason(None), "without a finish reason"),
    "given up": (_reason("abort"), "finish reason 'abort'"),
    "compressed": (_compressed, "gzip"),
    "no HTTP": (lambda steps: [steps[0], Raw(b"zz\r\nno chunk\r\n")], "no HTTP response"),
    "a stream without an end": (
        lambda steps: [steps[0]] * 1000,
        "9 ids came; at most 8 were asked for",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_the_request_and_nothing_is_sent_twice(name: str) -> None:
    change, words = FAULTS[name]

    async def leg() -> None:
        async with HttpServer("/v1/completions", HonestUntilTimed(change), "vllm") as server:
            engine = engine_for(server.url, connections=1, vocab_size=1_000)
            await engine.start()
            before = len(server.requests)
            (told,) = await answers(engine, PROMPTS[:1])
            message = failure_of(told)
            assert server.url in message
            assert "query 0, sample 0" in message
            assert any(word in message for word in words.split("|")), message
            await asyncio.sleep(0.1)
            assert len(server.requests) == before + 1
            await engine.stop()

    asyncio.run(leg())


def _counting(more: int | None) -> Change:
    """In the last event that has it, the count of the answer's tokens; None: without it."""

    def recount(content: Any) -> bool:
        found = False
        for name, value in list(content.items()) if isinstance(content, dict) else []:
            if name in ("completion_tokens", "tokens_predicted"):
                content.pop(name) if more is None else content.update({name: value + more})
                return True
            found = found or recount(value)
        return found

    def change(steps: list[Step]) -> list[Step]:
        for place in reversed(range(len(steps))):
            if isinstance(step := steps[place], bytes) and step != speak.DONE:
                content = json.loads(step.removeprefix(b"data: "))
                if recount(content):
                    return [*steps[:place], event(content), *steps[place + 1 :]]
        raise AssertionError("nothing counts")

    return change


IN_ALL_DIALECTS: dict[str, tuple[Change, str]] = {
    **{name: FAULTS[name] for name in ("429", "503 without a word", "reset in the middle", "end in the middle")},
    **{name: FAULTS[name] for name in ("compressed", "nothing at all", "no HTTP", "end within an event")},
    "error in the stream": FAULTS["error in the stream"],
    "no JSON": (FAULTS["no JSON"][0], "not what"),
    "more counted": (_counting(1), "the server counts|neither new ids nor all so far"),
    "not counted": (_counting(None), "counts no tokens|not what"),
    "an endless stream": (lambda steps: [steps[0]] * 1000, "at most|the server counts|neither new|without a"),
}


@pytest.mark.parametrize("name", [name for name in SERVERS if name != "vllm"])
def test_faults_end_a_request_in_every_dialect(name: str) -> None:
    async def leg() -> None:
        server = SERVERS[name]()
        changing = HonestUntilTimed(list, speaks=server.speak)
        server.speak = changing
        async with server:
            engine = engine_for(server.url)
            await engine.start()
            for fault, (change, words) in IN_ALL_DIALECTS.items():
                changing.change = change
                message = failure_of((await answers(engine, PROMPTS[:1]))[0])
                assert any(word in message for word in words.split("|")), (fault, message)
            changing.change = lambda steps: [0.3, *steps[:1], PAUSE_S, *_cut(steps[1:], 5)]
            assert (await answers(engine, PROMPTS[:1]))[0][-1][0] == "done"
            await engine.stop()

    asyncio.run(leg())


def _cut(data: list[Step], sizes: int) -> list[Step]:
    """The same bytes in chunks of another size, whatever stands at their borders."""
    whole = b"".join(step for step in data if isinstance(step, bytes))
    return [whole[place : place + sizes] for place in range(0, len(whole), sizes)]


def _in_events(steps: list[Step], **reply: Any) -> Reply:
    return Reply(steps, content_type=speak.EVENT_STREAM, **reply)


def _http_1_0(steps: list[Step]) -> Reply:
    events = b"".join(step for step in steps if isinstance(step, bytes))
    head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(events)
    return Reply([Raw(head + bytes(steps[0])), PAUSE_S, Raw(events[len(bytes(steps[0])) :])], head=False)  # type: ignore[arg-type]  # an event


HARMLESS: dict[str, Change] = {
    "heartbeats": lambda steps: [b": ping\n\n", steps[0], b": ping\n\n", *steps[1:], b": ping\n\n"],
    "several lines of data in an event": lambda steps: [
        step.replace(b', "', b',\ndata: "') if isinstance(step, bytes) else step for step in steps
    ],
    "trailers": lambda steps: _in_events(steps, ending=b"0\r\nx-checksum: 1\r\ncontent-encoding: gzip\r\n\r\n"),
    "a connection for each answer": lambda steps: _in_events(steps, headers=("connection: close",), closes=True),
    "HTTP/1.0": _http_1_0,
    "half a character at a time": lambda steps: [steps[0], PAUSE_S, *_cut(steps[2:], 1)],
    "odd chunks": lambda steps: [*_cut(steps[:1], 7), PAUSE_S, *_cut(steps[2:], 13)],
    "slow first byte": lambda steps: [0.3, *steps],
    "comments and other fields": lambda steps: [b": ping\n\nevent: x\nid: 3\n\n", *steps],
    "lines that end in CR LF": lambda steps: [
        step.replace(b"\n", b"\r\n") if isinstance(step, bytes) else step for step in steps
    ],
    "broken characters in the text": lambda steps: [
        steps[0],
        PAUSE_S,
        steps[2].replace(b"\\u00e9", b"\xc3") if isinstance(steps[2], bytes) else b"",
        *steps[3:],
    ],
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_changes_no_id_changes_nothing(name: str) -> None:
    async def leg() -> None:
        async with HttpServer("/v1/completions", speak.vllm, "vllm") as honest:
            engine = engine_for(honest.url)
            await engine.start()
            wanted = await answers(engine, PROMPTS)
            await engine.stop()
        async with HttpServer("/v1/completions", HonestUntilTimed(HARMLESS[name]), "vllm") as server:
            engine = engine_for(server.url)
            await engine.start()
            assert await answers(engine, PROMPTS) == wanted
            await engine.stop()

    asyncio.run(leg())


def test_several_ids_with_the_first_token_are_counted() -> None:
    def change(steps: list[Step]) -> list[Step]:
        first = json.loads(bytes(steps[0]).removeprefix(b"data: "))  # type: ignore[arg-type]  # an event
        rest = json.loads(bytes(steps[2]).removeprefix(b"data: "))  # type: ignore[arg-type]
        ids = [*first["choices"][0]["token_ids"], *rest["choices"][0]["token_ids"]]
        first["choices"][0]["token_ids"], rest["choices"][0]["token_ids"] = ids[:3], ids[3:]
        return [event(first), PAUSE_S, event(rest), *steps[3:]]

    async def leg() -> None:
        async with HttpServer("/v1/completions", HonestUntilTimed(change), "vllm") as server:
            engine = engine_for(server.url)
            await engine.start()
            await answers(engine, PROMPTS)
            facts = (await engine.observed()).facts
            assert facts["first_tokens_with_others"] == len(PROMPTS)
            assert facts["most_tokens_in_a_chunk"] == 5
            assert facts["chunks"] == 2 * len(PROMPTS)
            assert facts["issue_to_wire"]["count"] == len(PROMPTS)
            assert facts["read_to_loadgen"]["count"] == 2 * len(PROMPTS)
            await engine.stop()

    asyncio.run(leg())


@pytest.mark.parametrize("times_count", [True, False])
def test_answers_that_come_whole_end_a_leg_whose_times_count(times_count: bool) -> None:
    """A box that keeps a stream back until it is over: TTFT would be the latency, and TPOT nothing."""

    def change(steps: list[Step]) -> list[Step]:
        return [b"".join(step for step in steps if isinstance(step, bytes))]

    async def leg() -> None:
        async with HttpServer("/v1/completions", HonestUntilTimed(change), "vllm") as server:
            engine = engine_for(server.url, connections=1, times_count=times_count)
            await engine.start()
            told = await answers(engine, PROMPTS[:1] * (exchange.FEW_ANSWERS + 1))
            assert (await engine.observed()).facts["answers_read_at_once"] == exchange.FEW_ANSWERS + 1
            assert all(events[-1][0] == "done" for events in told[:-1])
            if times_count:
                assert "TPOT is 0" in failure_of(told[-1])
            else:
                assert told[-1][-1][0] == "done"
            await engine.stop()

    asyncio.run(leg())


@pytest.mark.parametrize("kept", [1, 3])  # steps of an answer before the silence: the first id; all ids, but no end
def test_a_response_that_stands_still_is_given_up(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "END_LIMIT_S", 0.5)

    async def leg() -> None:
        change: Change = lambda steps: [*steps[:kept], HANG]  # noqa: E731
        async with HttpServer("/v1/completions", HonestUntilTimed(change), "vllm") as server:
            engine = engine_for(server.url, silence_s=0.5)
            await engine.start()
            (told,) = await answers(engine, PROMPTS[:1])
            assert ("no end of the response" if kept == 3 else "then nothing") in failure_of(told)
            await engine.stop()

    asyncio.run(leg())


def test_an_answer_that_never_comes_is_missed_while_others_do() -> None:
    async def leg() -> None:
        change: Change = lambda _: Reply([Raw(b""), HANG], head=False)  # noqa: E731
        async with HttpServer("/v1/completions", HonestUntilTimed(change, PROMPTS[:1]), "vllm") as server:
            engine = engine_for(server.url, silence_s=0.5)
            await engine.start()
            lost = asyncio.ensure_future(answers(engine, PROMPTS[:1]))
            while not lost.done():
                await answers(engine, PROMPTS[1:2])
            assert "later is there" in failure_of((await lost)[0])
            await engine.stop()

    asyncio.run(leg())


def _alive(engine: EndpointEngine) -> bool:
    try:
        engine.check_alive()
    except ExecutionError:
        return False
    return True


def test_a_server_that_goes_away_while_nothing_is_asked_is_missed() -> None:
    async def leg() -> None:
        async with HttpServer("/v1/completions", speak.vllm, "vllm") as server:
            engine = engine_for(server.url)
            await engine.start()
            engine.check_alive()
        server.abort_all()
        async with asyncio.timeout(30.0):
            while _alive(engine):
                await asyncio.sleep(0.05)
        with pytest.raises(ExecutionError, match=server.url):
            engine.check_alive()
        await engine.stop()

    asyncio.run(leg())


def test_an_idle_connection_is_renewed_before_the_server_closes_it() -> None:
    async def leg() -> None:
        async with HttpServer("/v1/completions", speak.vllm, "vllm") as server:
            engine = engine_for(server.url, connections=1)
            await engine.start()
            await asyncio.sleep(3.0)
            told = await answers(engine, PROMPTS)
            assert all(events[-1][0] == "done" for events in told)
            assert (await engine.observed()).facts["connections_renewed"] >= 1
            await engine.stop()

    asyncio.run(leg())


def test_a_listener_hears_of_one_end_only() -> None:
    """A reset behind a fault that was told already adds nothing that LoadGen could be told twice."""

    async def leg() -> None:
        change: Change = lambda steps: [steps[0], b"data: {]\n\n", RESET]  # noqa: E731
        async with HttpServer("/v1/completions", HonestUntilTimed(change), "vllm") as server:
            engine = engine_for(server.url, connections=1)
            await engine.start()
            (told,) = await answers(engine, PROMPTS[:1])
            await asyncio.sleep(0.2)
            assert [kind for kind, _ in told] == ["first", "failed"]
            await engine.stop()

    asyncio.run(leg())


def test_a_connection_that_is_closed_between_requests_is_opened_again() -> None:
    async def leg() -> None:
        change: Change = lambda steps: _in_events(steps, closes=True)  # noqa: E731
        async with HttpServer("/v1/completions", HonestUntilTimed(change), "vllm") as server:
            engine = engine_for(server.url, connections=1)
            await engine.start()
            for prompt in PROMPTS:
                (told,) = await answers(engine, [prompt])
                assert told[-1][0] == "done"
                await asyncio.sleep(0.1)
            assert (await engine.observed()).facts["connections_renewed"] >= len(PROMPTS)
            engine.check_alive()
            await engine.stop()

    asyncio.run(leg())


def test_an_answer_that_comes_twice_ends_the_leg() -> None:
    """A box on the way that answers once more: the next request must not be given what belongs to this one."""

    async def leg() -> None:
        again = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 14\r\n\r\ndata: [DONE]\n\n"
        change: Change = lambda steps: _in_events(steps, ending=b"0\r\n\r\n" + again)  # noqa: E731
        async with HttpServer("/v1/completions", HonestUntilTimed(change), "vllm") as server:
            engine = engine_for(server.url, connections=1)
            await engine.start()
            await answers(engine, PROMPTS[:1])
            await asyncio.sleep(0.1)
            with pytest.raises(ExecutionError, match="nobody asked for"):
                engine.check_alive()
            await engine.stop()

    asyncio.run(leg())
