"""Manipulations of responses by a proxy between client and server, and their effect (docs/server-reference.md).

They expect streams of vLLM on either route: two events with IDs, one with the counts, `[DONE]`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from tests.support.servers.http_server import RESET, Step
from tests.support.servers.proxy import Events, Trick, content_of, with_content

HELD_S = 0.3
Content = dict[str, Any]
Steps = AsyncIterator[Step]


@dataclass(frozen=True)
class Row:
    """A manipulation and its effect.

    Attributes:
        make: The manipulation; one for each proxy, because some have a memory.
        ends: Words of the failure that ends the run; empty if the responses are accepted.
        counted: Counts of each response in the manifest.
        noted: Words of a note.
    """

    make: Callable[[], Trick]
    ends: str = ""
    counted: tuple[str, ...] = ()
    noted: str = ""


async def _list(events: Events) -> list[bytes]:
    return [event async for event in events]


def _on_complete_responses(change: Callable[[list[bytes]], list[Step]]) -> Callable[[], Trick]:
    """Return a manipulation of a response that is kept until it is complete."""

    async def trick(body: Content, events: Events) -> Steps:
        for step in change(await _list(events)):
            yield step

    return lambda: trick


def _on_each_event(change: Callable[[int, Content], None]) -> Callable[[], Trick]:
    """Return a manipulation of the content of each event, with its number."""

    async def trick(body: Content, events: Events) -> Steps:
        number = 0
        async for event in events:
            if b"[DONE]" in event:
                yield event
                continue
            content = content_of(event)
            change(number, content)
            yield with_content(event, content)
            number += 1

    return lambda: trick


def _in_usage(name: str, more: int) -> Callable[[], Trick]:
    def change(_: int, content: Content) -> None:
        if usage := content.get("usage"):
            usage[name] += more

    return _on_each_event(change)


def _shorter() -> Trick:
    """Remove the last ID, and reduce the count."""

    def change(_: int, content: Content) -> None:
        if content["choices"] and content["choices"][0]["finish_reason"]:
            content["choices"][0]["token_ids"].pop()
            content["choices"][0]["finish_reason"] = "stop"
        if usage := content.get("usage"):
            usage["completion_tokens"] -= 1

    return _on_each_event(change)()


def _other_ids(_: int, content: Content) -> None:
    for choice in content["choices"]:
        choice["token_ids"] = [token + 1 for token in choice["token_ids"]]


async def _later(body: Content, events: Events) -> Steps:
    async for event in events:
        yield 0.02
        yield event


async def _held_back(body: Content, events: Events) -> Steps:
    first = await anext(events)
    yield HELD_S
    yield first
    async for event in events:
        yield event


def _ids_in_front(events: list[bytes]) -> list[Step]:
    first, second = content_of(events[0]), content_of(events[1])
    ids = second["choices"][0]["token_ids"]
    first["choices"][0]["token_ids"] += ids[:2]
    second["choices"][0]["token_ids"] = ids[2:]
    return [with_content(events[0], first), 0.05, with_content(events[1], second), *events[2:]]


class _Exchanged:
    """A manipulation that exchanges the responses of two requests."""

    def __init__(self) -> None:
        self._first: asyncio.Future[list[bytes]] | None = None
        self._second: asyncio.Future[list[bytes]] | None = None

    async def __call__(self, body: Content, events: Events) -> Steps:
        own_events = await _list(events)
        if self._first is None or self._second is None:
            loop = asyncio.get_running_loop()
            self._first, self._second = loop.create_future(), loop.create_future()
            self._first.set_result(own_events)
            swapped = await self._second
        else:
            self._second.set_result(own_events)
            swapped = await self._first
            self._first = self._second = None
        for event in swapped:
            yield event


class _Before:
    """A manipulation that gives each request the previous response; the first request gets its own."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []

    async def __call__(self, body: Content, events: Events) -> Steps:
        current = await _list(events)
        reported, self._kept = self._kept or current, current
        for event in reported:
            yield event


class _Kept:
    """A manipulation that keeps responses by their prompt, and repeats them.

    Args:
        renamed: Whether the repeated response has the ID of its request.
    """

    def __init__(self, *, renamed: bool) -> None:
        self._renamed = renamed
        self._kept: dict[str, tuple[str, list[bytes]]] = {}

    async def __call__(self, body: Content, events: Events) -> Steps:
        prompt, own_id = str(body.get("prompt") or body["token_ids"]), str(body["request_id"])
        if prompt not in self._kept:
            self._kept[prompt] = own_id, await _list(events)
        old_id, reported = self._kept[prompt]
        for place, event in enumerate(reported):
            yield event.replace(old_id.encode(), own_id.encode()) if self._renamed else event
            yield 0.05 if place == 0 else 0.0


ROWS: dict[str, Row] = {
    "delays": Row(lambda: _later),
    "holds first tokens back": Row(lambda: _held_back),
    "resets the connection": Row(_on_complete_responses(lambda events: [RESET]), "closed|reset"),
    "resets it in the middle": Row(_on_complete_responses(lambda events: [events[0], 0.05, RESET]), "closed|reset"),
    "drops an event": Row(_on_complete_responses(lambda events: events[1:]), "but the server reports"),
    "drops the counts": Row(
        _on_complete_responses(lambda events: [*events[:2], *events[3:]]), "reports no token counts"
    ),
    "sends an event twice": Row(_on_complete_responses(lambda events: [events[0], *events]), "token IDs"),
    "sends an answer twice": Row(_on_complete_responses(lambda events: [*events, *events]), "arrived after the end"),
    "cuts an answer short": Row(
        _on_complete_responses(lambda events: [events[0]]), "ends after 1 IDs without a finish reason"
    ),
    "cuts within an event": Row(
        _on_complete_responses(lambda events: [events[0], events[1][:-9]]), "ends within an event"
    ),
    "counts fewer tokens": Row(_in_usage("completion_tokens", -1), "but the server reports"),
    "counts another prompt": Row(_in_usage("prompt_tokens", 1), "prompt IDs were sent, but the server reports"),
    "exchanges events": Row(
        _on_complete_responses(lambda events: [events[1], events[0], *events[2:]]), "after the finish reason"
    ),
    "exchanges two answers": Row(_Exchanged, "the response has the ID"),
    "sends the answer before": Row(_Before, "the response has the ID"),
    "answers from a cache": Row(lambda: _Kept(renamed=False), "the response has the ID"),
    "the same, under new ids": Row(lambda: _Kept(renamed=True), noted="but the client received"),
    "sends all events at once": Row(
        _on_complete_responses(lambda events: [b"".join(events)]), counted=("answers_read_at_once",)
    ),
    "moves ids to the first event": Row(_on_complete_responses(_ids_in_front), counted=("first_tokens_with_others",)),
    "shortens answer and count": Row(_shorter, noted="but the client received"),
    "changes ids": Row(_on_each_event(_other_ids)),  # only an accuracy run detects this
}
