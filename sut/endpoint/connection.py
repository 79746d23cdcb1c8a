"""One HTTP/1.1 connection on the socket: the time of a read is taken before its bytes are parsed.

httptools (uvicorn's parser) splits the bytes into heads and bodies. Nothing is buffered, decompressed, redirected or
sent twice.
"""

import asyncio
import time
from typing import TYPE_CHECKING, Any

import httptools

from sut.endpoint.address import ServerAddress
from sut.endpoint.dialects.dialect import BadResponse

if TYPE_CHECKING:
    from sut.endpoint.connection_pool import ConnectionPool
    from sut.endpoint.exchange import Exchange

USER_AGENT = "mlperf-llama-vllm"
MOST_HEAD_BYTES = 64 << 10  # of a response, before its body moves on


class HttpConnection(asyncio.Protocol):
    """Carries one exchange at a time, on the event loop."""

    def __init__(self, pool: "ConnectionPool") -> None:
        self._pool = pool
        self._transport: Any = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self.exchange: Exchange | None = None  # the one that is open
        self._headers: dict[bytes, bytes] = {}
        self._read_ns = 0
        self._head_bytes = 0  # read since a head was complete, or a part of a body came
        self._sending = False
        self._reusable = False
        self.used = False  # whether it has carried an exchange
        self.idle_since_s = 0.0  # on the loop's clock; kept by the pool

    # To the server ------------------------------------------------------------------------------------------

    def send(self, exchange: "Exchange") -> None:
        """Send an exchange's request; the response is handed to it in parts."""
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
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    # asyncio ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=0)  # so `resume_writing` means that all is sent

    def data_received(self, data: bytes) -> None:
        self._read_ns = time.time_ns()
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._break(f"a response's head of more than {MOST_HEAD_BYTES >> 10} KiB")
        except httptools.HttpParserCallbackError as error:  # what an exchange raised
            cause = error.__context__
            self._break(str(cause) if isinstance(cause, BadResponse) else f"{type(cause).__name__}: {cause}")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"what came back is no HTTP response ({error})")

    def connection_lost(self, error: BaseException | None) -> None:
        self._break("the connection was reset" if error else "the server closed the connection")
        self._pool.lost(self)
        self._parser = None  # a reference cycle, and garbage collection is off while the clock runs

    def _break(self, reason: str) -> None:
        exchange, self.exchange = self.exchange, None
        self._transport.abort()
        if exchange is not None:
            exchange.broken(reason)

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


def request_head(address: ServerAddress, path: str, key: str | None) -> bytes:
    """A POST's head up to the length of its body, which `HttpConnection.send` fills in."""
    lines = [
        f"POST {address.path}{path} HTTP/1.1",
        f"host: {address.authority}",
        f"user-agent: {USER_AGENT}",
        "accept-encoding: identity",
        "content-type: application/json",
    ]
    if key is not None:
        lines.append(f"authorization: Bearer {key}")
    return ("\r\n".join(lines) + "\r\ncontent-length: ").encode("ascii")
