"""One HTTP/1.1 connection, read at the socket: the time of a read is taken before anything of it is looked at.

A parser of its own kind (httptools, the one in uvicorn) turns bytes into heads and bodies; nothing is buffered here,
nothing is decompressed, redirected or sent a second time.
"""

import asyncio
import time
from typing import Any, Protocol

import httptools

from sut.endpoint.address import ServerAddress
from sut.endpoint.dialects.dialect import BadResponse

USER_AGENT = "mlperf-llama-vllm"
MOST_HEAD_BYTES = 64 << 10  # of a response, before its body moves on


class Receiver(Protocol):
    """Who is told about one exchange; each call comes on the event loop."""

    def sent(self, sent_ns: int) -> None:
        """The request's last byte was given to the kernel."""

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Status and headers are there, names in lower case."""

    def body(self, data: bytes, read_ns: int) -> None:
        """A part of the body, and when its bytes were read."""

    def end(self, read_ns: int) -> None:
        """The response is complete; the connection is free again."""

    def broken(self, reason: str) -> None:
        """The connection or the response was cut; nothing more comes."""


class Owner(Protocol):
    """Who a connection belongs to."""

    def released(self, connection: "HttpConnection") -> None:
        """A response is complete and the connection can be used again."""

    def lost(self, connection: "HttpConnection") -> None:
        """The connection is closed, by whichever side."""

    def unasked(self, status: int) -> None:
        """A response came that nobody asked for."""


class HttpConnection(asyncio.Protocol):
    """See the module. One exchange at a time."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: Any = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self.receiver: Receiver | None = None  # who the open exchange belongs to
        self._headers: dict[bytes, bytes] = {}
        self._read_ns = 0
        self._head_bytes = 0  # read since a head was complete, or a part of a body came
        self._sending = False
        self._reusable = False
        self.used = False  # whether it has carried an exchange
        self.idle_since_s = 0.0  # on the loop's clock; kept by the owner

    # To the server ------------------------------------------------------------------------------------------

    def exchange(self, head: bytes, body: bytes, receiver: Receiver) -> None:
        """Send a request; the receiver is told the rest.

        Args:
            head: the request's head up to and with `content-length: `.
        """
        self.receiver = receiver
        self.used = True
        self._sending = True
        self._transport.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        if self._sending and not self._transport.get_write_buffer_size():
            self._all_sent()

    def _all_sent(self) -> None:
        self._sending = False
        if self.receiver is not None:
            self.receiver.sent(time.time_ns())

    def resume_writing(self) -> None:
        if self._sending:
            self._all_sent()

    def close(self) -> None:
        """Close without waiting; an open exchange is told that it is broken."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    # asyncio ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=0)  # so that `resume_writing` means: all is sent

    def data_received(self, data: bytes) -> None:
        self._read_ns = time.time_ns()
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._break(f"a response's head of more than {MOST_HEAD_BYTES >> 10} KiB")
        except httptools.HttpParserCallbackError as error:  # what a receiver raised
            cause = error.__context__
            self._break(str(cause) if isinstance(cause, BadResponse) else f"{type(cause).__name__}: {cause}")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(f"what came back is no HTTP response ({error})")

    def connection_lost(self, error: BaseException | None) -> None:
        self._break("the connection was reset" if error else "the server closed the connection")
        self._owner.lost(self)
        self._parser = None  # it points back here, and nobody collects such circles while the clock runs

    def _break(self, reason: str) -> None:
        receiver, self.receiver = self.receiver, None
        self._transport.abort()
        if receiver is not None:
            receiver.broken(reason)

    # httptools ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        self._reusable = self._parser.should_keep_alive()
        if self.receiver is None:
            self._owner.unasked(self._parser.get_status_code())
            raise BadResponse("a response without a request")
        self.receiver.head(self._parser.get_status_code(), self._headers)

    def on_body(self, data: bytes) -> None:
        self._head_bytes = 0
        if self.receiver is not None:
            self.receiver.body(data, self._read_ns)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        receiver, self.receiver = self.receiver, None
        if receiver is None:
            return
        if self._reusable:
            self._owner.released(self)
        else:
            self._transport.close()
        receiver.end(self._read_ns)


def request_head(address: ServerAddress, path: str, key: str | None) -> bytes:
    """A POST's head up to the length of its body, which `HttpConnection.exchange` fills in."""
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
