"""Stand-ins for LoadGen and for an engine, which record their calls, and the system under test between them."""

import asyncio
import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sut.engine import Engine, EngineLimits, EngineReport, Request
from sut.feed import AdmissionControl, Feed
from sut.loadgen_sut import LoadgenSut
from sut.request_writer import FinishedRequest


@dataclass
class Clock:
    """A clock that the test moves."""

    now: float = 0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class FakeSample:
    """LoadGen's QuerySample."""

    id: int
    index: int


@dataclass
class FakeResponse:
    """LoadGen's QuerySampleResponse: a handle, an address, its size in bytes, a token count."""

    id: int
    data: int
    size: int
    n_tokens: int


@dataclass
class FakeLoadgen:
    """The two calls of LoadGen. Like LoadGen, they read the bytes at once and keep no pointer."""

    calls: list[tuple[str, int, list[int], int]] = field(default_factory=list)  # kind, ID, token IDs, n_tokens
    batches: list[int] = field(default_factory=list)  # responses in each call of QuerySamplesComplete
    error: BaseException | None = None  # error of the next call
    QuerySampleResponse = FakeResponse

    def FirstTokenComplete(self, responses: list[FakeResponse]) -> None:
        self._note("first", responses)

    def QuerySamplesComplete(self, responses: list[FakeResponse]) -> None:
        self.batches.append(len(responses))
        self._note("done", responses)

    def _note(self, kind: str, responses: list[FakeResponse]) -> None:
        if self.error is not None:
            raise self.error
        for response in responses:
            data = ctypes.string_at(response.data, response.size)
            ids = list(memoryview(data).cast("i"))
            self.calls.append((kind, response.id, ids, response.n_tokens))


class FakeEngine(Engine):
    """An engine that keeps the requests, which the test completes."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.error: BaseException | None = None  # error of submit

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


class FakeRequestLog:
    """A request log that keeps the outcomes with the time of their completion."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[int, FinishedRequest]] = []
        self.error: BaseException | None = None

    def append(self, complete_ns: int, outcomes: list[FinishedRequest]) -> None:
        if self.error is not None:
            raise self.error
        self.outcomes += [(complete_ns, outcome) for outcome in outcomes]


class FakeSink:
    """A sink that keeps the reports of an engine on a request.

    Args:
        when_over: Called after its response or its failure.
    """

    def __init__(self, when_over: Callable[[], object] = lambda: None) -> None:
        self.events: list[tuple[str, Any]] = []
        self._when_over = when_over

    def _note(self, kind: str, what: Any) -> None:
        self.events.append((kind, what))
        if kind != "first":
            self._when_over()

    def first_token(self, request: Request, token_id: int) -> None:
        self._note("first", token_id)

    def complete(self, request: Request, token_ids: list[int], finish_reason: str, cached_tokens: int) -> None:
        self._note("done", (token_ids, finish_reason, cached_tokens))

    def failed(self, request: Request, error: BaseException) -> None:
        self._note("failed", error)


PROMPTS = [[10, 11], [20], [30, 31, 32], [40]]
HANDLE = 0x7F00_0000_1000  # handles of LoadGen are pointers of 64 bits


class FakeStage:
    """A system under test between a fake LoadGen and a fake engine. The test turns the event loop."""

    def __init__(self, *, report_first_token: bool = True, admission: AdmissionControl | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.loadgen = FakeLoadgen()
        self.engine = FakeEngine()
        self.request_log = FakeRequestLog()
        self.failures: list[BaseException] = []
        self.sut = LoadgenSut(
            self.loadgen,
            self.loop,
            self.engine,
            PROMPTS.__getitem__,
            self.request_log,  # type: ignore[arg-type]  # the one method that is used
            report_first_token=report_first_token,
            on_failure=self.failures.append,
            admission=admission or Feed(EngineLimits()),
        )

    def issue(self, *indices: int) -> list[Request]:
        """Issue samples on a separate thread, as LoadGen does. Return the requests that reached the engine."""
        before = len(self.engine.requests)
        samples = [FakeSample(HANDLE + 8 * (self.sut.issued + place), index) for place, index in enumerate(indices)]
        thread = threading.Thread(target=self.sut.issue_queries, args=(samples,))
        thread.start()
        thread.join()
        self.slices()
        return self.engine.requests[before:]

    def turn(self) -> None:
        """Turn the loop once: run all callbacks that are due at its beginning."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def slices(self) -> None:
        """Turn the loop until no slice is planned."""
        self.turn()
        while self.sut._slice_planned:
            self.turn()
