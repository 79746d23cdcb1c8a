"""Clients are tested on the event loop of a client process."""

import asyncio
from collections.abc import Iterator

import pytest

from sut.event_loop import new_event_loop


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return new_event_loop()


@pytest.fixture(autouse=True)
def event_loops() -> Iterator[None]:
    asyncio.set_event_loop_policy(_Policy())
    yield
    asyncio.set_event_loop_policy(None)
