"""The client of one server: its dialect, its pool of connections, and its measurements."""

import asyncio
import uuid
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from time import time_ns

from runs.benchmark import SamplingPolicy
from runs.errors import ExecutionError
from runs.record.observed import LatenessSummary, LoopLag, ServerClient, TextResponses
from sut.engine import Request
from sut.event_loop import LagMeter
from sut.http.address import Access, ServerAddress
from sut.http.connection import ConnectionPool, request_head
from sut.http.dialects import BodyTemplate, Dialect
from sut.http.events import READERS, EventForm
from sut.http.exchange import GAP_FACTOR, Exchange
from sut.http.text import TextExchange, Texts, TokenCounts
from sut.request_writer import Lateness

CHECK_INTERVAL_S = 1.0
END_POLL_S = 0.005


@dataclass
class ClientDelays:
    """The distributions of a client's delays over its timed queries; see the fields of `ServerClient`."""

    issue_to_wire: Lateness = field(default_factory=Lateness)
    read_to_loadgen: Lateness = field(default_factory=Lateness)
    last_token_to_loadgen: Lateness = field(default_factory=Lateness)
    last_token_to_end: Lateness = field(default_factory=Lateness)
    issue_to_text: Lateness = field(default_factory=Lateness)


@dataclass(eq=False)
class Client:
    address: ServerAddress
    access: Access
    dialect: Dialect
    _: KW_ONLY
    model: str  # name of the model at the server
    sampling: SamplingPolicy  # all parameters are sent
    streaming: bool  # True if the server streams IDs, False if it sends all IDs at the end
    connections: int
    # Shortest allowed pause in a stream. It applies after the first complete response: before, the
    # time per token is unknown.
    silence_s: float
    times_count: bool  # True if LoadGen measures times; then responses without a TPOT end the run
    texts: Texts | None = None  # for a dialect of text
    omitted: Collection[str] = ()  # fields that are not sent
    request_timeout_s: float | None = None  # maximum time from sending a request to the end of its response
    server_log: str = ""  # file with the output of the server, if the run starts it
    vocab_size: int | None  # IDs are below it; None if unknown
    on_error: Callable[[BaseException], None]  # called when a lost connection cannot be opened again

    def __post_init__(self) -> None:
        text = TextResponses(is_tokenized=self.texts.counts) if self.texts else None
        self.record = ServerClient(server=self.address.url, text=text)
        self.lateness = ClientDelays()
        self.token_counts = TokenCounts(self.texts is not None and self.texts.counts)  # of all responses of text
        self.reasons_come_early = False  # True if text follows a finish reason, so that the reason is not the end
        self._lag = LagMeter(asyncio.get_running_loop())  # lag of the event loop
        self.moved = 0  # events so far
        self.generated = 0  # number of received IDs; for text, number of chunks until the response is complete
        self.slowest_token_ns = 0  # time per ID in the slowest chunk, except first chunks
        self.latest_answered_ns = 0  # send time of the latest request that has a response
        self.longest_answer_ns = 0
        self.read, self.event_form = READERS[self.dialect.format], EventForm()
        self.head = request_head(self.address, self.dialect.path, self.access)
        self._template = cache(self.template)  # one body for each sampling policy
        self._exchange: type[Exchange] = TextExchange if self.texts else Exchange
        self._closed = False
        # Prefix of request IDs, unique over all clients, so that no cache contains the IDs.
        self.name = uuid.uuid4().hex
        self.asked = 0  # requests so far
        self.open_responses = 0  # requests whose response has not ended
        self.late_failure: ExecutionError | None = None  # failure of a response after its last token
        self.ids_come_back = False  # True if the server has returned the ID of a request
        self.pool = ConnectionPool(
            self.address,
            self.access.tls_context(self.address),
            self.connections,
            self.on_error,
            renew_unused=self.dialect.renew_unused,
            single_use=self.streaming and self.dialect.closes_after_a_stream,
        )

    async def open(self) -> None:
        """Open all connections.

        Raises:
            SetupError: If `ConnectionPool.open` raises it.
        """
        await self.pool.open()
        self._lag.start()
        self._check_overdue()

    def submit(self, request: Request, template: BodyTemplate | None = None) -> None:
        """Send a request with the run's sampling, or with the given template; its sink receives the response."""
        if self.texts and request.seq < 0:
            request.prompt_ids = self.texts.fitting(request.prompt_ids)
        self.pool.submit(self._exchange(self, request, template or self._template(request.sampling(self.sampling))))

    def template(self, sampling: SamplingPolicy, stop_ids: tuple[int, ...] = ()) -> BodyTemplate:
        """Return the part of the body that all requests with this sampling share."""
        return self.dialect.template(
            self.model,
            sampling,
            streaming=self.streaming,
            stop_ids=stop_ids,
            omitted=self.omitted,
            text_of=self.texts.text_of if self.texts else None,
        )

    def loop_lag(self) -> LoopLag | None:
        """Return the lag of the client's event loop so far."""
        self._lag.catch_up()
        return self._lag.so_far()

    def observed(self) -> ServerClient:
        """Return the measurements so far."""
        record, text = self.record, self.record.text
        summaries = {name: LatenessSummary(**lateness.facts()) for name, lateness in vars(self.lateness).items()}
        issue_to_text = summaries.pop("issue_to_text")
        return record.model_copy(
            update={
                **summaries,
                "tokens_that_came": self.generated,
                "text": text and text.model_copy(update={"issue_to_text": issue_to_text}),
                "loop_lag": self.loop_lag(),
                "connections_renewed": self.pool.renewed,
            }
        )

    async def all_ended(self) -> None:
        """Wait for the ends of all responses, and check them. `_check_overdue` bounds the wait.

        Raises:
            ExecutionError: If the end of a response was missing or wrong.
        """
        while self.open_responses:
            await asyncio.sleep(END_POLL_S)
        if self.late_failure is not None:
            raise self.late_failure

    def fail(self, request: Request, reason: str, fix: str) -> ExecutionError:
        """End the run with a message that names the server, the query and the problem."""
        timed = request.seq >= 0
        which = f"query {request.seq}, sample {request.sample_index}" if timed else "a request before the timed run"
        error = ExecutionError(f"server {self.address.url}, {which}: {self.access.hidden(reason)}", fix)
        request.sink.failed(request, error)
        return error

    def _check_overdue(self) -> None:
        """End the run if a response is overdue; called once a second."""
        if self._closed:
            return
        now_ns = time_ns()
        slowest_s = self.slowest_token_ns * self.sampling.max_tokens / 1e9
        silence_s = max(self.silence_s, GAP_FACTOR * slowest_s) if slowest_s else float("inf")
        for exchange in self.pool.busy():
            if reason := exchange.overdue(now_ns, silence_s):
                exchange.cut_off(reason)
        asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._check_overdue)

    def close(self) -> None:
        self._closed = True
        self._lag.stop()
        self.pool.close()
