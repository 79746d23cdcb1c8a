"""HTTP/1.1 connections on the socket, and a bounded set of them to one server.

The time of a read is taken before its bytes are parsed. httptools (uvicorn's parser) splits the bytes into heads and
bodies. The connection never buffers, decompresses, redirects or repeats anything.
"""

import asyncio
import ssl
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httptools

from runs.errors import ExecutionError, SetupError
from sut.event_loop import allow_open_files
from sut.http.address import Access, ServerAddress
from sut.http.events import BadResponse

if TYPE_CHECKING:
    from sut.http.exchange import Exchange

MAX_HEAD_BYTES = 64 << 10  # maximum size of a response's head
CONNECT_TIMEOUT_S = 10.0
OPENED_AT_A_TIME = 64
RENEW_AFTER_IDLE_S = 2.0  # uvicorn and llama.cpp's server close after 5
POLL_S = 0.05
RENEW_STEP_S = 0.001  # takes up to 2 ms, so all are renewed within 2 s
RENEW_STEPS = 1_000
# Delay before an unused connection that the server closed soon is replaced; doubled each time.
FIRST_DELAY_S, MAX_DELAY_S = 0.01, 1.0
SOON_S = 1.0
IDLE_TOO_LONG = 408  # some proxies send it before they close an unused connection


class HttpConnection(asyncio.Protocol):
    """A connection that carries one exchange at a time, on the event loop."""

    def __init__(self, pool: "ConnectionPool", delay_s: float = 0.0) -> None:
        self._pool = pool
        self._transport: Any = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self.exchange: Exchange | None = None  # the open exchange
        self._headers: dict[bytes, bytes] = {}
        self._read_ns = 0
        self._head_bytes = 0  # bytes read since the last complete head or part of a body
        self._sending = False
        self._reusable = False
        self.used = False  # True if the connection has carried an exchange
        self.delay_s = delay_s  # delay before the connection was opened
        self.opened_s = 0.0  # on the loop's clock
        self.idle_since_s = 0.0  # on the loop's clock; set by the pool

    # To the server ------------------------------------------------------------------------------------------

    def send(self, exchange: "Exchange") -> None:
        """Send the request of an exchange. The exchange receives the response in parts."""
        self.exchange = exchange
        self.used = True
        head, body = exchange.request()
        self._sending = True
        self._transport.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        if self._sending and not self._transport.get_write_buffer_size():
            self._all_sent()

    def _all_sent(self) -> None:
        self._sending = False
        if self.exchange is not None:
            self.exchange.sent(time.time_ns())

    def resume_writing(self) -> None:
        if self._sending:
            self._all_sent()

    def close(self) -> None:
        """Close without waiting; this breaks an open exchange."""
        self._transport.abort()

    @property
    def is_closing(self) -> bool:
        return bool(self._transport.is_closing())

    # asyncio ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.opened_s = asyncio.get_running_loop().time()
        self._transport.set_write_buffer_limits(high=0)  # so `resume_writing` is called when all bytes are sent

    def data_received(self, data: bytes) -> None:
        self._read_ns = time.time_ns()
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._break(f"the response's head is larger than {MAX_HEAD_BYTES >> 10} KiB")
            elif self.exchange is not None:
                self.exchange.read_over(self._read_ns)
        except httptools.HttpParserCallbackError as error:  # an error of the exchange
            cause = error.__context__
            self._break(str(cause) if isinstance(cause, BadResponse) else f"{type(cause).__name__}: {cause}")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"the reply is not an HTTP response ({error})")

    def connection_lost(self, error: BaseException | None) -> None:
        self._break("the connection was reset" if error else "the server closed the connection")
        self._pool.lost(self)
        self._parser = None  # breaks a reference cycle: garbage collection is off during the timed run

    def _break(self, reason: str) -> None:
        exchange, self.exchange = self.exchange, None
        self._transport.abort()
        if exchange is not None:
            exchange.cut_off(reason)

    # httptools ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        self._reusable = self._parser.should_keep_alive()
        if self.exchange is None:
            self._pool.unasked(self._parser.get_status_code())
            raise BadResponse("a response without a request")
        self.exchange.head(self._parser.get_status_code(), self._headers)

    def on_body(self, data: bytes) -> None:
        self._head_bytes = 0
        if self.exchange is not None:
            self.exchange.body(data, self._read_ns)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        if self._reusable:
            self._pool.released(self)
        else:
            self._transport.close()
        exchange.end(self._read_ns)


def request_head(address: ServerAddress, path: str, access: Access) -> bytes:
    """Return the head of a POST up to the value of content-length. `HttpConnection.send` adds the value."""
    headers = {"host": address.authority} | access.headers()
    lines = [f"POST {address.target(path)} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\ncontent-length: ").encode("ascii")


Resting = OrderedDict[HttpConnection, None]  # connections without an exchange, longest idle first


@dataclass(eq=False)
class ConnectionPool:
    """Connections to one server, all opened before the timed run.

    The pool prefers the connection that was used last. Servers close idle connections after some seconds (uvicorn: 5),
    and a request sent at that moment would be lost. The pool therefore renews idle connections earlier, a few at a
    time, because queries wait meanwhile. If no connection is free, requests wait in order.
    """

    address: ServerAddress
    tls: ssl.SSLContext | None
    size: int  # number of connections
    on_error: Callable[[BaseException], None]  # called when a lost connection cannot be opened again
    renew_unused: bool = False  # True if unused connections are renewed, too, because the server closes them
    single_use: bool = False  # True if a connection carries one exchange, because the server closes it without notice

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: Resting = OrderedDict()
        self._unused: Resting = OrderedDict()  # connections that carried no exchange yet; used last
        self._open: set[HttpConnection] = set()
        self._waiting: deque[Exchange] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.renewed = 0

    async def open(self) -> None:
        """Open every connection.

        Raises:
            SetupError: If the system allows fewer connections, or the server does not respond.
        """
        allow_open_files(self.size, f"{self.size} connections to {self.address.url}", "lower --api-connections")
        for opened in range(0, self.size, OPENED_AT_A_TIME):
            await asyncio.gather(*(self._connect() for _ in range(min(OPENED_AT_A_TIME, self.size - opened))))
        self._sweep()

    async def _connect(self, delay_s: float = 0.0) -> None:
        """Open one connection, ignoring the proxies in the environment.

        Raises:
            SetupError: If the server accepts no connection within the time limit, or its certificate is invalid.
        """
        address = self.address
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await self._loop.create_connection(
                    lambda: HttpConnection(self, delay_s), address.host, address.port, ssl=self.tls
                )
        except TimeoutError as error:
            raise SetupError(
                f"server {address.url} accepted no connection within {CONNECT_TIMEOUT_S:.0f} s",
                "start the server, or correct the address",
            ) from error
        except OSError as error:
            raise address.no_connection(error) from error
        if self._closed:
            connection.close()
            return
        if connection.is_closing:
            return
        self._open.add(connection)
        self.released(connection)

    def submit(self, exchange: "Exchange") -> None:
        """Send a request at once, or when a connection is free."""
        while self._idle or self._unused:
            connection, _ = (self._idle or self._unused).popitem()
            if not connection.is_closing:
                connection.send(exchange)
                return
        self._waiting.append(exchange)

    def busy(self) -> list["Exchange"]:
        """Exchanges without a complete response."""
        return [connection.exchange for connection in self._open if connection.exchange is not None]

    def close(self) -> None:
        self._closed = True
        for connection in [*self._open]:
            connection.close()

    # Events of connections ------------------------------------------------------------------------------------------

    def released(self, connection: HttpConnection) -> None:
        if self.single_use and connection.used:
            connection.close()
        elif self._waiting:
            # In the loop's next turn, so that the response that freed the connection is reported first.
            self._loop.call_soon(self._serve, connection)
        else:
            self._rest(connection)

    def _serve(self, connection: HttpConnection) -> None:
        if connection.is_closing:
            return  # `lost` opens a connection for the waiting requests
        if self._waiting:
            connection.send(self._waiting.popleft())
        else:
            self._rest(connection)

    def _rest(self, connection: HttpConnection) -> None:
        connection.idle_since_s = self._loop.time()
        (self._idle if connection.used else self._unused)[connection] = None

    def lost(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)
        self._unused.pop(connection, None)
        if not self._closed:
            self.renewed += 1
            refused = not connection.used and self._loop.time() - connection.opened_s < SOON_S
            delay_s = min(max(2 * connection.delay_s, FIRST_DELAY_S), MAX_DELAY_S) if refused else 0.0
            task = self._loop.create_task(self._reopen(delay_s))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def unasked(self, status: int) -> None:
        if status != IDLE_TOO_LONG:
            self.on_error(
                ExecutionError(
                    f"server {self.address.url}: a response without a request (status {status})",
                    "check for a proxy that sends responses twice",
                )
            )

    async def _reopen(self, delay_s: float) -> None:
        try:
            if delay_s:
                await asyncio.sleep(delay_s)
            await self._connect(delay_s)
        except Exception as error:
            self.on_error(error)

    def _sweep(self) -> None:
        """Close a few connections that were idle for long; `lost` opens new connections."""
        if self._closed:
            return
        wait_s, oldest_s = POLL_S, self._loop.time() - RENEW_AFTER_IDLE_S
        for resting in (self._idle, self._unused) if self.renew_unused else (self._idle,):
            for _ in range(-(-self.size // RENEW_STEPS)):
                if resting and next(iter(resting)).idle_since_s < oldest_s:
                    resting.popitem(last=False)[0].close()
                    wait_s = RENEW_STEP_S
        self._loop.call_later(wait_s, self._sweep)
