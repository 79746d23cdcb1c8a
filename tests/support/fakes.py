"""Stand-ins for LoadGen's module and for an engine, which note everything they are told."""

import ctypes
from dataclasses import dataclass, field
from typing import Any

from sut.engine import Engine, EngineReport, Request
from sut.recorder import Outcome


@dataclass(frozen=True)
class Sample:
    """LoadGen's QuerySample."""

    id: int
    index: int


@dataclass
class Response:
    """LoadGen's QuerySampleResponse: a handle, an address, its size in bytes, a token count."""

    id: int
    data: int
    size: int
    n_tokens: int


@dataclass
class FakeLoadgen:
    """The two calls that answer LoadGen. Like LoadGen, they read the bytes at once and keep no pointer."""

    calls: list[tuple[str, int, list[int], int]] = field(default_factory=list)  # kind, id, token ids, n_tokens
    batches: list[int] = field(default_factory=list)  # answers in each call of QuerySamplesComplete
    error: BaseException | None = None  # raised by the next call
    QuerySampleResponse = Response

    def FirstTokenComplete(self, responses: list[Response]) -> None:
        self._note("first", responses)

    def QuerySamplesComplete(self, responses: list[Response]) -> None:
        self.batches.append(len(responses))
        self._note("done", responses)

    def _note(self, kind: str, responses: list[Response]) -> None:
        if self.error is not None:
            raise self.error
        for response in responses:
            data = ctypes.string_at(response.data, response.size)
            ids = list(memoryview(data).cast("i"))
            self.calls.append((kind, response.id, ids, response.n_tokens))


class FakeEngine(Engine):
    """Keeps the requests; the test answers them itself."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.error: BaseException | None = None  # raised by submit

    async def start(self) -> EngineReport:
        return EngineReport("fake")

    def submit(self, request: Request) -> None:
        if self.error is not None:
            raise self.error
        self.requests.append(request)

    def check_alive(self) -> None: ...

    def activity(self) -> int:
        return 0

    async def stop(self) -> None: ...


class FakeRecorder:
    """Keeps the outcomes, each behind the time of its completion."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[int, Outcome]] = []
        self.error: BaseException | None = None

    def append(self, complete_ns: int, outcomes: list[Outcome]) -> None:
        if self.error is not None:
            raise self.error
        self.outcomes += [(complete_ns, outcome) for outcome in outcomes]


class FakeSink:
    """Keeps what an engine tells."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def first_token(self, request: Request, token_id: int) -> None:
        self.events.append(("first", token_id))

    def complete(self, request: Request, token_ids: list[int], finish_reason: str, cached_tokens: int) -> None:
        self.events.append(("done", (token_ids, finish_reason, cached_tokens)))

    def failed(self, request: Request, error: BaseException) -> None:
        self.events.append(("failed", error))
