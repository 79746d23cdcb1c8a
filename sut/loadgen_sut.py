"""LoadGen's side of the system under test; the only file that completes LoadGen samples.

LoadGen calls `issue_queries` on its own thread. An exception there would leave LoadGen half open (it segfaults at
exit), so nothing is ever raised into it: failures go to `on_failure`, and the process is ended by its owner.
LoadGen's response ids are raw pointers: each is used at most once, and never after a failure.
"""

import asyncio
import time
from array import array
from collections.abc import Callable
from typing import Any

from runs.errors import ExecutionError
from sut.admission import Admission
from sut.engine import Engine, Request
from sut.recorder import Recorder

TOKEN_BYTES = 4  # LoadGen is given int32 ids, as by the reference implementation


class LoadgenSut:
    """Connects LoadGen's callbacks to an engine.

    Args:
        loadgen: the `mlperf_loadgen` module.
        loop: the event loop on which the engine runs.
        engine: a started engine.
        prompt_of: sample index → prompt token ids.
        recorder: takes one outcome a sample.
        report_first_token: whether LoadGen wants first tokens (all scenarios but Offline).
        on_failure: told of the first failure; must not raise.
        admission: when queries are handed to the engine; without it, at once.
    """

    def __init__(
        self,
        loadgen: Any,
        loop: asyncio.AbstractEventLoop,
        engine: Engine,
        prompt_of: Callable[[int], list[int]],
        recorder: Recorder,
        *,
        report_first_token: bool,
        on_failure: Callable[[BaseException], None],
        admission: Admission | None = None,
    ) -> None:
        self._loop = loop
        self._submit = engine.submit if admission is None else admission.offer
        self._prefilled = None if admission is None else admission.prefilled
        self._prompt_of = prompt_of
        self._recorder = recorder
        self._report_first_token = report_first_token
        self._on_failure = on_failure
        self._response = loadgen.QuerySampleResponse
        self._samples_complete = loadgen.QuerySamplesComplete
        self._first_token_complete = loadgen.FirstTokenComplete
        self._open: set[int] = set()
        self._failed = False
        self._next_seq = 0
        self.issued = 0
        self.completed = 0
        self.cached_tokens = 0

    @property
    def outstanding(self) -> int:
        return self.issued - self.completed

    # On LoadGen's thread ------------------------------------------------------------------------------------

    def issue_queries(self, samples: list[Any]) -> None:
        """LoadGen's callback: one call a query (Offline: one call for everything)."""
        issue_ns = time.time_ns()
        try:
            # The samples are copied out here: one hop to the loop a call, however many samples it carries.
            batch = [(sample.id, sample.index) for sample in samples]
            self.issued += len(batch)  # counted on this side, so that a loop that hangs is seen as a stall
            self._loop.call_soon_threadsafe(self._accept, batch, issue_ns)
        except BaseException as error:
            self.fail(error)

    def flush_queries(self) -> None:
        """LoadGen's callback after the last query was issued. What admission holds comes in by itself."""

    # On the event loop --------------------------------------------------------------------------------------

    def _accept(self, batch: list[tuple[int, int]], issue_ns: int) -> None:
        if self._failed:
            return
        try:
            for response_id, sample_index in batch:
                prompt_ids = self._prompt_of(sample_index)
                request = Request(self, prompt_ids, response_id, self._next_seq, sample_index, issue_ns)
                self._next_seq += 1
                self._open.add(response_id)
                self._submit(request)
        except BaseException as error:
            self.fail(error)

    def first_token(self, request: Request, token_id: int) -> None:
        if self._failed:
            return
        try:
            request.first_token_ns = time.time_ns()
            if self._report_first_token:
                # LoadGen copies the bytes inside the call, so the buffer may go out of use after it.
                token = array("i", (token_id,))
                address, _ = token.buffer_info()
                self._first_token_complete([self._response(request.response_id, address, TOKEN_BYTES, 1)])
            if self._prefilled:
                self._prefilled(request)
        except BaseException as error:
            self.fail(error)

    def complete(self, request: Request, token_ids: list[int], finish_reason: str, cached_tokens: int) -> None:
        if self._failed:
            return
        try:
            if request.response_id not in self._open:
                raise ExecutionError(f"the engine answered sample {request.sample_index} (query {request.seq}) twice")
            if not token_ids:
                raise ExecutionError(f"the engine returned no tokens for sample {request.sample_index}")
            self._open.remove(request.response_id)
            ids = array("i", token_ids)
            address, count = ids.buffer_info()
            response = self._response(request.response_id, address, count * TOKEN_BYTES, count)
            complete_ns = time.time_ns()
            self._samples_complete([response])
            self.completed += 1
            self.cached_tokens += cached_tokens
            self._recorder.append(
                (
                    request.seq,
                    request.sample_index,
                    len(request.prompt_ids),
                    ids,
                    request.issue_ns,
                    request.first_token_ns,
                    complete_ns,
                    finish_reason,
                )
            )
            if self._prefilled:  # of an output of one piece, which showed no first token
                self._prefilled(request)
        except BaseException as error:
            self.fail(error)

    def failed(self, request: Request, error: BaseException) -> None:
        self.fail(error)

    # Either side --------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Stop answering LoadGen and tell the owner why. Only the first failure is reported."""
        if not self._failed:
            self._failed = True
            self._on_failure(error)
