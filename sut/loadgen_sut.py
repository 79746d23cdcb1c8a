"""The side of the system under test that LoadGen calls; the only module that completes LoadGen's samples.

LoadGen calls `issue_queries` on its own thread. An exception there would leave LoadGen half open (it segfaults at
exit), so no exception is raised into it: failures go to `on_failure`, whose owner ends the process.
LoadGen's response IDs are raw pointers: each is used at most once, and never after a failure.
"""

import asyncio
import contextlib
import functools
import struct
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from runs.errors import ExecutionError
from sut.engine import ANSWERED, Engine, Request
from sut.feed import AdmissionControl
from sut.request_writer import FinishedRequest, RequestLogWriter

TOKEN_BYTES = 4  # LoadGen receives int32 IDs, as from the reference implementation
MAX_RESPONSES = 256  # maximum number of responses in one call of LoadGen
# Limits of queries sent to the engine in one turn of the loop. The loop must also pass on responses and first tokens.
MAX_QUERIES = 32  # for an engine that processes them in the next turn: vLLM's front end takes 0.3 ms each
LONGEST_SLICE_S = 0.01  # for an engine that processes them at once


@dataclass(eq=False)
class LoadgenSut:
    """Connects LoadGen's callbacks to an engine."""

    loadgen: Any  # the `mlperf_loadgen` module
    loop: asyncio.AbstractEventLoop  # loop on which the engine runs
    engine: Engine
    prompt_of: Callable[[int], list[int]]  # sample index → prompt token IDs
    request_log: RequestLogWriter
    _: KW_ONLY
    report_first_token: bool  # True if LoadGen needs first tokens (all scenarios except Offline)
    on_failure: Callable[[BaseException], None]  # called with the first failure; must not raise
    admission: AdmissionControl  # order and time in which queries are sent to the engine
    output_lengths: Sequence[tuple[int, int]] | None = None  # for each sample, if they differ
    clock_ns: Callable[[], int] = time.time_ns  # clock of all time stamps; LoadGen uses the same clock

    def __post_init__(self) -> None:
        self._submit = self.engine.submit
        self._response = self.loadgen.QuerySampleResponse
        self._samples_complete = self.loadgen.QuerySamplesComplete
        self._first_token_complete = self.loadgen.FirstTokenComplete
        # For each call of LoadGen: time, and samples in reverse order.
        self._arrived: deque[tuple[int, list[Any]]] = deque()
        self._awake = False  # True if the loop was woken to read `_arrived`, and has not started to read
        self._slice_planned = False  # True if a slice is planned for the next turn of the loop
        self._slice_began_s: float | None = None  # start of the previous slice, on the loop's clock
        self._first_id = array("i", (0,))  # shared by all first tokens: LoadGen copies the data during the call
        self._first_address, _ = self._first_id.buffer_info()
        self._responses: list[Any] = []  # responses in the form of LoadGen that LoadGen has not received yet
        self._outcomes: list[FinishedRequest] = []  # outcomes of the same samples
        self._failed = False
        self._next_seq = 0
        self.issued = 0
        self.completed = 0
        self.cached_tokens = 0
        # Time that the loop spent on sending queries to the engine, including the time in the engine.
        self.handing_over_s = 0.0

    @property
    def outstanding(self) -> int:
        return self.issued - self.completed

    # On LoadGen's thread ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def handle(self) -> Iterator[int]:
        """Construct the SUT in LoadGen, yield its handle, and destroy it afterwards."""
        handle = self.loadgen.ConstructSUT(self.issue_queries, self.flush_queries)
        yield handle
        self.loadgen.DestroySUT(handle)

    def issue_queries(self, samples: list[Any]) -> None:
        """Take a query from LoadGen (Offline: all samples at once). The samples are copies made for this call.

        Waking the loop costs more than the rest of this function, so the loop is woken only if it is not awake. No
        query is lost: it is appended before `_awake` is read here, and `_accept` clears `_awake` before it reads
        `_arrived`. If this thread reads True, `_accept` still reads the query; if it reads False, it wakes the loop
        again.
        """
        issue_ns = self.clock_ns()
        try:
            self.issued += len(samples)  # counted on LoadGen's thread, so that a blocked loop counts as a stall
            samples.reverse()  # samples are taken from the list's end, so that each is freed on its own
            self._arrived.append((issue_ns, samples))
            if not self._awake:
                self._awake = True
                self.loop.call_soon_threadsafe(self._accept)
        except BaseException as error:
            self.fail(error)

    def flush_queries(self) -> None:
        """Do nothing after the last query: admission control still admits the waiting queries."""

    # On the event loop --------------------------------------------------------------------------------------

    def _accept(self) -> None:
        self._awake = False  # Clear the flag before reading _arrived; see issue_queries.
        if not self._slice_planned:
            self._hand_to_engine()

    def _plan_slice(self) -> None:
        if not self._slice_planned:
            self._slice_planned = True
            self.loop.call_soon(self._hand_to_engine)

    def _hand_to_engine(self) -> None:
        """Send a slice of the arrived queries to the engine, if admission control admits them. The rest waits for the
        next turn of the loop, after the engine's work on this slice.
        """
        self._slice_planned = False
        began_s = time.monotonic()
        if self._slice_began_s is not None:
            self.handing_over_s += began_s - self._slice_began_s
            self._slice_began_s = None
        try:
            for _ in range(MAX_QUERIES):
                if self._failed:
                    return
                offered = bool(self._arrived) and self.admission.wants()
                if offered:
                    self.admission.offer(self._next_request())
                request = self.admission.take()
                if request is not None:
                    self._submit(request)
                elif not offered:
                    self.handing_over_s += time.monotonic() - began_s
                    return
                if time.monotonic() - began_s > LONGEST_SLICE_S:
                    break
            self._slice_began_s = began_s
            self._plan_slice()
        except BaseException as error:
            self.fail(error)

    def _next_request(self) -> Request:
        issue_ns, samples = self._arrived[0]
        sample = samples.pop()
        if not samples:
            self._arrived.popleft()
        index = sample.index
        request = Request(self, self.prompt_of(index), sample.id, self._next_seq, index, issue_ns)
        if self.output_lengths is not None:
            request.output_lengths = self.output_lengths[index]
        self._next_seq += 1
        return request

    def _issue_admitted(self) -> None:
        """Send the queries to the engine that admission control admits now."""
        if self._arrived or self.admission.waiting:
            self._plan_slice()

    def first_token(self, request: Request, token_id: int) -> None:
        if self._failed:
            return
        try:
            if request.response_id == ANSWERED or request.first_token_ns:
                raise _misbehaved(f"the first token of {_name(request)} was reported twice, or after the response")
            request.first_token_ns = self.clock_ns()
            if self.report_first_token:
                self._first_id[0] = token_id
                self._first_token_complete([self._response(request.response_id, self._first_address, TOKEN_BYTES, 1)])
            self.admission.prefilled(request)
            self._issue_admitted()
        except BaseException as error:
            self.fail(error)

    def complete(self, request: Request, token_ids: Sequence[int], finish_reason: str, cached_tokens: int) -> None:
        if self._failed:
            return
        try:
            if request.response_id == ANSWERED:
                raise _misbehaved(f"the engine returned two responses to {_name(request)}")
            if not token_ids:
                raise ExecutionError(
                    f"the engine returned no tokens for {_name(request)}",
                    "read engine.log, and check the stop tokens: a response needs at least one token",
                    cause="empty-response",
                )
            ids = int32_ids(token_ids)
            address, count = ids.buffer_info()
            self._responses.append(self._response(request.response_id, address, count * TOKEN_BYTES, count))
            self._outcomes.append((request, ids, finish_reason))
            request.response_id = ANSWERED
            self.cached_tokens += cached_tokens
            ready = len(self._responses)
            if ready == MAX_RESPONSES or ready == self.issued - self.completed:
                self._hand_over()  # at once: the call is large enough, or no open query could join it
            elif ready == 1:
                self.loop.call_soon(self._hand_over)  # after the other responses that are due in this turn
        except BaseException as error:
            self.fail(error)

    def _hand_over(self) -> None:
        """Pass the collected responses to LoadGen in one call."""
        if self._failed or not self._responses:
            return
        responses, self._responses = self._responses, []
        outcomes, self._outcomes = self._outcomes, []
        try:
            # Record and count first: after the last response LoadGen may end before this thread continues.
            self.request_log.append(self.clock_ns(), outcomes)
            self.completed += len(outcomes)
            # A query is open until its response is logged, so that the log never shows more than admission allows.
            for request, _, _ in outcomes:
                self.admission.completed(request)
            self._issue_admitted()
            self._samples_complete(responses)
        except BaseException as error:
            self.fail(error)

    def failed(self, request: Request, error: BaseException) -> None:
        self.fail(error)

    # On any thread --------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Stop completing samples, and report the failure. Only the first failure is reported."""
        if not self._failed:
            self._failed = True
            self.on_failure(error)


def int32_ids(token_ids: Sequence[int]) -> "array[int]":
    """Return token IDs as an int32 array. The detour through bytes is twice as fast as `array` with a list."""
    if isinstance(token_ids, array):
        return token_ids
    return array("i", _packer(len(token_ids))(*token_ids))


@functools.cache  # one entry for each output length, so 128 for the benchmark
def _packer(count: int) -> Callable[..., bytes]:
    return struct.Struct(f"{count}i").pack


def _name(request: Request) -> str:
    return f"sample {request.sample_index} (query {request.seq})"


def _misbehaved(text: str) -> ExecutionError:
    return ExecutionError(text, "read engine.log, and correct the engine or its server", cause="engine-order")
