"""The client of one server: a dialect, a pool of connections, and the checks of every answer."""

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from statistics import mean
from typing import Any

from runs.errors import ExecutionError
from runs.record.observed import LoopLag
from sut.endpoint.address import Access, ServerAddress
from sut.endpoint.connection import request_head
from sut.endpoint.connection_pool import ConnectionPool
from sut.endpoint.dialects.dialect import BadResponse, BodyTemplate, Completion, Dialect
from sut.endpoint.exchange import FINISH_REASONS, GAP_FACTOR, Exchange, same_prompt
from sut.engine import Request
from sut.event_loop import LagMeter
from sut.recorder import Lateness

CHECK_INTERVAL_S = 1.0
UNLOADED_ANSWERS = 10  # the first ones, probes among them, come before a client can be late
LATE_SHARE = 0.5  # a loop that is late by this share of the time in which an answer's tokens come may read all at once


@dataclass(eq=False)
class Client:
    address: ServerAddress
    access: Access
    dialect: Dialect
    _: KW_ONLY
    connections: int
    # Shortest time that a stream which has begun may stand still. Applied once a first one has ended: before that the
    # time of a token is not known.
    silence_s: float
    end_limit_s: float  # from the last id to the end of the response; from a bad status to the end of its body
    times_count: bool  # whether anything is judged by times, so that answers without a TPOT end the leg
    vocab_size: int | None  # ids lie below it; None where it is not known
    on_error: Callable[[BaseException], None]  # called when a lost connection cannot be opened again

    def __post_init__(self) -> None:
        self.record = ClientRecord()
        self.moved = 0  # chunks with ids so far
        self.generated = 0  # ids so far
        self.slowest_token_ns = 0  # of any chunk but an answer's first: its time by its number of ids
        self.latest_answered_ns = 0  # of all answered requests: when the last one was sent
        self.longest_answer_ns = 0
        self._apart_ns: list[int] = []  # from the first ids to the last, of the first answers in several reads
        self.head = request_head(self.address, self.dialect.path, self.access.key)
        self._template = self.dialect.template()
        self._closed = False
        self._name = uuid.uuid4().hex
        self._asked = 0
        self._ids_come_back = False
        self.pool = ConnectionPool(
            self.address,
            self.access.tls_context(self.address),
            self.connections,
            self.on_error,
            renew_unused=self.dialect.renew_unused,
            single_use=self.dialect.streaming and self.dialect.closes_after_a_stream,
        )

    async def open(self) -> None:
        """Open all connections.

        Raises:
            SetupError: see `ConnectionPool.open`.
        """
        await self.pool.open()
        loop = asyncio.get_running_loop()
        self.record.watch_loop(loop)
        self._check_overdue()

    def submit(self, request: Request, template: BodyTemplate | None = None) -> None:
        """Send a request with the leg's sampling, or with another template; its sink gets the outcome."""
        self.pool.submit(Exchange(self, request, template or self._template))

    def next_request_id(self) -> str:
        """Unique over all clients, so that no cached answer can have it."""
        self._asked += 1
        return f"{self._name}-{self._asked}"

    def check_id(self, request_id: str, returned: str | None) -> None:
        """Check that an answer is this request's, once the server has returned a request's own id.

        Raises:
            BadResponse: it has another id.
        """
        if returned is not None and returned.endswith(request_id):
            self._ids_come_back = True
        elif self._ids_come_back:
            raise BadResponse(f"the answer carries the id {returned}, and the request had {request_id}")

    def check(self, request: Request, answer: Completion) -> None:
        """Check an answer before it counts.

        Raises:
            BadResponse: something is wrong with it.
        """
        ids, least, most = len(answer.ids), self.dialect.sampling.min_tokens, self.dialect.sampling.max_tokens
        if answer.finish_reason is None:
            raise BadResponse(f"the response ends after {ids} ids without a finish reason")
        if not ids:
            raise BadResponse("the answer has no token ids: the server gives text only, or nothing")
        if answer.finish_reason not in FINISH_REASONS:
            raise BadResponse(f"finish reason {answer.finish_reason!r}, not one of {', '.join(FINISH_REASONS)}")
        if answer.completion_tokens is None or answer.prompt_tokens is None:
            raise BadResponse("the server counts no tokens (no usage), so the number of ids cannot be checked")
        if answer.completion_tokens != ids:
            raise BadResponse(f"{ids} ids came, and the server counts {answer.completion_tokens}")
        if answer.prompt_tokens != len(request.prompt_ids):
            raise BadResponse(
                f"{len(request.prompt_ids)} prompt ids were sent, and the server counts {answer.prompt_tokens}"
            )
        if answer.prompt_ids is not None and not same_prompt(request.prompt_ids, answer.prompt_ids):
            raise BadResponse("the prompt's ids came back changed")
        if self.vocab_size is not None and max(answer.ids) >= self.vocab_size:
            raise BadResponse(f"id {max(answer.ids)} came, and the model's vocabulary has {self.vocab_size}")
        if not least <= ids <= most:
            raise BadResponse(f"{ids} ids came; from {least} to {most} were asked for")

    def answered(self, sent_ns: int, read_ns: int) -> None:
        self.latest_answered_ns = max(self.latest_answered_ns, sent_ns)
        self.longest_answer_ns = max(self.longest_answer_ns, read_ns - sent_ns)

    def streamed(self, apart_ns: int) -> None:
        """An answer came in several reads, its last ids so long after the first."""
        if len(self._apart_ns) < UNLOADED_ANSWERS:
            self._apart_ns.append(apart_ns)

    def why_at_once(self) -> str:
        """Why answers had all their tokens in one read: because of the client's own loop, where that was late by as
        long as the tokens of the first answers took to come."""
        lag = self.record.loop_lag()
        if not self._apart_ns or lag is None or lag.p99_ms < LATE_SHARE * (apart_ms := mean(self._apart_ns) / 1e6):
            return "the server, or what is before it, does not stream"
        return (
            f"the client's own event loop was {lag.p99_ms:.0f} ms late (p99), and the tokens of the first answers came "
            f"within {apart_ms:.0f} ms: use more client processes (--replicas N), or give the client more cores"
        )

    def fail(self, request: Request, reason: str) -> None:
        """The leg's end: server, query, and what was wrong."""
        timed = request.seq >= 0
        which = f"query {request.seq}, sample {request.sample_index}" if timed else "a request before the clock"
        text = f"server {self.address.url}, {which}: {self.access.hidden(reason)}"
        request.sink.failed(request, ExecutionError(text, "see the server's log; nothing is sent twice"))

    def _check_overdue(self) -> None:
        """Give up overdue responses; once a second."""
        if self._closed:
            return
        now_ns = time.time_ns()
        slowest_s = self.slowest_token_ns * self.dialect.sampling.max_tokens / 1e9
        silence_s = max(self.silence_s, GAP_FACTOR * slowest_s) if slowest_s else float("inf")
        for exchange in self.pool.busy():
            if reason := exchange.overdue(now_ns, silence_s):
                exchange.broken(reason)
        asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._check_overdue)

    def close(self) -> None:
        self._closed = True
        self.record.close()
        self.pool.close()


class ClientRecord:
    """What a client observed of itself and of the answers, over its timed queries.

    LoadGen takes a time when it is called, so its times hold the client's own delay. That delay is measured here: from
    issue to the request's last byte on the wire, and from the read of an answer to the call of LoadGen.
    """

    def __init__(self) -> None:
        self.answers = 0
        self.tokens = 0
        self.chunks = 0  # events that brought ids
        self.most_tokens_in_a_chunk = 0
        self.answers_read_at_once = 0  # of those with more than one id, streaming: TPOT 0
        self.answers_in_one_chunk = 0  # of these
        self.first_tokens_with_others = 0  # first chunks with more than one id
        self.answers_with_cached_count = 0  # the server counted the prompt tokens that it took from a cache
        self.answers_with_their_prompt = 0  # that returned the prompt's ids
        self.answers_with_their_id = 0  # that returned the request's id
        self.cached_tokens = 0  # prompt tokens that the server took from a cache
        self.issue_to_wire = Lateness()
        self.read_to_loadgen = Lateness()
        self._lag: LagMeter | None = None

    def watch_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure from now on how late the loop turns to what is due."""
        self._lag = LagMeter(loop)
        self._lag.start()

    def close(self) -> None:
        if self._lag is not None:
            self._lag.stop()

    def loop_lag(self) -> LoopLag | None:
        """Up to now."""
        if self._lag is None:
            return None
        self._lag.catch_up()
        return self._lag.so_far()

    def facts(self) -> dict[str, Any]:
        lag = self.loop_lag()
        told = {name: value for name, value in vars(self).items() if name != "_lag"}
        told |= {name: late.facts() for name, late in told.items() if isinstance(late, Lateness)}
        return {**told, "loop_lag": lag.model_dump() if lag else None}
