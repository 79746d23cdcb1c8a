"""The interface of an engine, seen from the system under test.

An engine takes a `Request` (token IDs) and calls the request's sink with the first token and the finished output
(token IDs). It knows nothing of LoadGen; the system under test knows nothing of the engine's kind.
Everything here happens on one asyncio event loop.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

ANSWERED = 0  # in place of a response ID that must never be used again; LoadGen's IDs are pointers, so never 0


@dataclass(slots=True, eq=False, repr=False)
class Request:
    """One sample on its way through the engine. With slots, as hundreds of thousands are made."""

    sink: "Sink"
    prompt_ids: list[int]
    response_id: int = 0  # LoadGen's handle, a pointer; only the SUT may look at it. ANSWERED when used
    seq: int = -1  # order of issue, from 0
    sample_index: int = -1
    issue_ns: int = 0
    first_token_ns: int = field(default=0, init=False)
    heard_ns: int = field(default=0, init=False)  # when the client of a server read what it now passes on
    replica: int | None = field(default=None, init=False)  # number of the replica, if there are several
    priority: int = field(default=0, init=False)  # the lowest is computed first by an engine that knows priorities


class Sink(Protocol):
    """Takes the outcome of a request. Called on the event loop, once each, in this order."""

    def first_token(self, request: Request, token_id: int) -> None: ...

    def complete(self, request: Request, token_ids: Sequence[int], finish_reason: str, cached_tokens: int) -> None:
        """`token_ids` is the whole output, first token included (if an array, of int32); `cached_tokens` counts prompt
        tokens whose computation the engine skipped by a prefix cache."""

    def failed(self, request: Request, error: BaseException) -> None: ...


@dataclass
class OneResponse:
    """A sink for one request; times are those of `time.perf_counter`, in seconds. Made on the event loop."""

    done: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    first_token_s: float = 0.0
    complete_s: float = 0.0
    ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    cached_tokens: int = 0

    def first_token(self, request: Request, token_id: int) -> None:
        self.first_token_s = time.perf_counter()

    def complete(self, request: Request, token_ids: Sequence[int], finish_reason: str, cached_tokens: int) -> None:
        self.complete_s = time.perf_counter()
        self.ids, self.finish_reason, self.cached_tokens = list(token_ids), finish_reason, cached_tokens
        if not self.done.done():
            self.done.set_result(None)

    def failed(self, request: Request, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(frozen=True)
class EngineLimits:
    """The capacity of an engine with all its copies; None: no limit of its own."""

    queries: int | None = None
    step_tokens: int | None = None  # prompt and output tokens in one step


@dataclass
class EngineReport:
    """An engine's report of itself once it runs; part of the manifest."""

    name: str
    versions: dict[str, str] = field(default_factory=dict)
    # effective: each option that was given, and further facts
    configuration: dict[str, Any] = field(default_factory=dict)
    vocab_size: int | None = None
    max_model_len: int | None = None
    limits: EngineLimits = EngineLimits()

    @property
    def prefix_caching(self) -> bool:
        """True if prompts are reused across queries."""
        return self.configuration.get("enable_prefix_caching") is True


@dataclass(frozen=True)
class EngineObserved:
    """An engine's observations of itself in a run; part of the manifest."""

    # of each engine: the fields of runs.record.observed.EngineSeen, as plain data
    engines: list[dict[str, Any]] = field(default_factory=list)
    read_to_loadgen: dict[str, Any] | None = None  # a LatenessSummary of the clients of servers
    unofficial_reasons: list[str] = field(default_factory=list)  # why the run could not be submitted; sentences
    notes: list[str] = field(default_factory=list)  # sentences for the user


class Engine(Protocol):
    """Life cycle: `start` → any number of `submit` → `observed` → `stop`."""

    async def start(self) -> EngineReport:
        """Bring the engine up and compare every option asked for with the effective one.

        Raises:
            InputError: an option the engine does not know or refuses.
            SetupError: an option is not effective, or the engine does not come up.
        """

    def submit(self, request: Request) -> None:
        """Hand a request over; returns at once. The outcome arrives at `request.sink`."""

    def check_alive(self) -> None:
        """Raise ExecutionError if the engine is dead."""

    def activity(self) -> int:
        """A number that changes whenever the engine has made progress on any request."""

    def generated_tokens(self) -> int | None:
        """Output tokens made since the start, those of unfinished responses too; None where they are not counted."""

    async def observed(self) -> EngineObserved:
        """Called when all requests are answered.

        Raises:
            ExecutionError: the engine does not answer any more.
        """
        return EngineObserved()

    async def stop(self) -> None: ...
