"""The interface of an engine, seen from the system under test.

An engine takes a `Request` (token IDs) and calls the request's sink with the first token and the finished output
(token IDs). It does not use LoadGen, and the system under test does not depend on the engine's kind.

All calls in both directions happen on the thread of one asyncio event loop, except `check_alive`, `activity` and
`generated_tokens`, which other threads call too. An engine with its own threads passes its results to the loop with
`loop.call_soon_threadsafe`. A method must not block the loop, because all requests and heartbeats wait for it.
"""

import asyncio
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from runs.benchmark import SamplingPolicy
from runs.errors import SetupError

if TYPE_CHECKING:
    from runs.record.manifest import RunPlan

ANSWERED = 0  # replaces a used response ID; LoadGen's IDs are pointers, so never 0


@dataclass(slots=True, eq=False, repr=False)
class Request:
    """One sample on its way through the engine. It has slots, because a run makes hundreds of thousands."""

    sink: "Sink"
    prompt_ids: list[int]
    response_id: int = 0  # LoadGen's handle, a pointer that only the SUT uses; ANSWERED after its use
    seq: int = -1  # order of issue, from 0
    sample_index: int = -1
    issue_ns: int = 0
    submit_ns: int = field(default=0, init=False)  # time when the query was sent to the engine, in a closed loop
    first_token_ns: int = field(default=0, init=False)
    heard_ns: int = field(default=0, init=False)  # time at which a server's client read the data that it passes on
    # Times between the parts of the response, if a server sends it in parts of a few tokens
    token_gaps_ns: "array[int] | None" = field(default=None, init=False)
    replica: int | None = field(default=None, init=False)  # number of the replica in a run with replicas
    priority: int = field(default=0, init=False)  # engines with priorities compute the lowest first
    # Minimum and maximum output tokens of this request; None = as in the sampling of the run
    output_lengths: tuple[int, int] | None = None

    def sampling(self, policy: SamplingPolicy) -> SamplingPolicy:
        """Return the run's policy with the output lengths of this request."""
        return policy if self.output_lengths is None else _with_lengths(policy, self.output_lengths)


@cache
def _with_lengths(policy: SamplingPolicy, lengths: tuple[int, int]) -> SamplingPolicy:
    return policy.model_copy(update={"min_tokens": lengths[0], "max_tokens": lengths[1]})


class Sink(Protocol):
    """The receiver of a request's output, on the event loop.

    For each request, an engine calls `first_token` once and then `complete` once, or `failed` once instead. It calls
    nothing for a request that `abandon` canceled.
    """

    def first_token(self, request: Request, token_id: int) -> None:
        """Receive the first output token. If the plan's `reports_first_tokens` is false, no engine needs this call."""

    def complete(self, request: Request, token_ids: Sequence[int], finish_reason: str, cached_tokens: int) -> None:
        """Receive the finished output.

        Args:
            token_ids: All output tokens, with the first token. If an end-of-sequence ID ended the output, it is the
                last ID (the audit TEST06 checks this). An array must be of int32.
            finish_reason: "stop" after an end-of-sequence ID, "length" at the maximum number of tokens.
            cached_tokens: Number of prompt tokens that the engine took from a prefix cache.
        """

    def failed(self, request: Request, error: BaseException) -> None:
        """End the run, because a request has no output."""


@dataclass
class OneResponse:
    """A sink for one request. It must be created on the event loop."""

    done: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    cached_tokens: int = 0

    def first_token(self, request: Request, token_id: int) -> None:
        """Ignore the first token, because the response contains it."""

    def complete(self, request: Request, token_ids: Sequence[int], finish_reason: str, cached_tokens: int) -> None:
        self.ids, self.finish_reason, self.cached_tokens = list(token_ids), finish_reason, cached_tokens
        if not self.done.done():
            self.done.set_result(None)

    def failed(self, request: Request, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(frozen=True)
class EngineLimits:
    """The capacity of an engine, over all its data-parallel ranks; None = unlimited."""

    queries: int | None = None
    step_tokens: int | None = None  # prompt and output tokens in one step


@dataclass
class EngineReport:
    """The facts that a running engine reports about itself; part of the manifest."""

    name: str
    versions: dict[str, str] = field(default_factory=dict)
    # effective values of the requested options, and further facts
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
    """An engine's measurements during a run; part of the manifest."""

    # for each engine, the fields of runs.record.observed.EngineSeen as plain data
    engines: list[dict[str, Any]] = field(default_factory=list)
    read_to_loadgen: dict[str, Any] | None = None  # a LatenessSummary of the clients of servers
    # Reasons why the run is not eligible for submission; sentences.
    unofficial_reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # sentences for the user


class Engine(Protocol):
    """An engine. Its life cycle: `start`, any number of `submit`, `observed`, `stop`.

    A kept engine serves multiple runs: `start`; for each run `begin`, any number of `submit`, `observed`, `abandon`;
    `stop`. The harness creates the engine on another thread; `start` is the first call on the event loop.
    """

    async def start(self) -> EngineReport:
        """Start the engine, and compare every requested option with the effective value.

        Returns:
            The report for the manifest. Its configuration must have the schema of `EngineRecord.configuration`.

        Raises:
            InputError: If the engine does not have an option or refuses it.
            SetupError: If an option does not take effect, or the engine does not start.
        """

    async def begin(self, plan: "RunPlan") -> None:
        """Prepare a kept engine for its next run; no request is open.

        Take over the sampling parameters from `plan.sampling`, and whether first tokens are needed from
        `plan.reports_first_tokens`. Reset what `observed` returns, and forget the prompts of earlier runs. `activity`
        and `generated_tokens` may continue.

        Raises:
            SetupError: If the engine can serve one run only.
        """
        raise SetupError("this engine serves one run only", "start an engine for each run")

    def submit(self, request: Request) -> None:
        """Send a request to the engine and return at once; `request.sink` receives the output.

        The output has the lengths of `request.sampling(policy)`. Requests with a negative `seq` warm the engine up. An
        engine should report an error of one request with `request.sink.failed`; a raised exception ends the run too.
        """

    def check_alive(self) -> None:
        """Raise ExecutionError if the engine is dead. It is called at least every second, and must return at once."""

    def activity(self) -> int:
        """Return a number that changes with every progress: at least when a step of the engine ends.

        If requests are open and the number does not change for `--stall-timeout-s`, the run ends as stalled. So it must
        also change between the first and the last token of a request. It must not change while the engine hangs.
        """

    def generated_tokens(self) -> int | None:
        """Return the number of output tokens since the start, including unfinished responses; None if not counted.

        Progress displays show it; no result depends on it.
        """

    async def observed(self) -> EngineObserved:
        """Return the measurements; called when all requests are complete.

        Raises:
            ExecutionError: If the engine no longer responds.
        """
        return EngineObserved()

    async def abandon(self) -> None:
        """Cancel all open requests of a kept engine, because their run is over or failed.

        Their sinks receive nothing after this call. The engine stays up for the next run.
        """
        return

    async def stop(self) -> None:
        """Free the resources of the engine. Its process ends afterwards."""
