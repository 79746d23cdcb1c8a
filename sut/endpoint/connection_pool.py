"""A bounded set of connections to one server, all opened before the clock starts.

The connection used last is used first. Servers close a connection that was idle for some seconds (uvicorn: 5), and a
request sent at that moment would be lost, so idle ones are renewed before; a few at a time, because queries wait
meanwhile. A request that finds no free connection waits in order.
"""

import asyncio
import ssl
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runs.errors import ExecutionError, SetupError
from sut.endpoint.address import ServerAddress
from sut.endpoint.connection import HttpConnection
from sut.event_loop import allow_open_files

if TYPE_CHECKING:
    from sut.endpoint.exchange import Exchange

CONNECT_TIMEOUT_S = 10.0
OPENED_AT_A_TIME = 64
RENEW_AFTER_IDLE_S = 2.0  # uvicorn and llama.cpp's server close after 5
LOOK_S = 0.05
RENEW_STEP_S = 0.001  # takes up to 2 ms, so all are renewed within 2 s
RENEW_STEPS = 1_000
IDLE_TOO_LONG = 408  # some proxies send it before they close an unused connection
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

Resting = OrderedDict[HttpConnection, None]  # connections without an exchange, longest idle first


@dataclass(eq=False)
class ConnectionPool:
    address: ServerAddress
    tls: ssl.SSLContext | None
    size: int  # number of connections
    on_error: Callable[[BaseException], None]  # called when a lost connection cannot be opened again
    renew_unused: bool = False  # renew unused connections, too: the server counts from the opening
    single_use: bool = False  # one exchange a connection: the server closes it without notice

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: Resting = OrderedDict()
        self._unused: Resting = OrderedDict()  # carried nothing yet; used when no other is idle
        self._open: set[HttpConnection] = set()
        self._waiting: deque[Exchange] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.renewed = 0
        self.most_waiting = 0  # requests that waited for a connection at one time

    async def open(self) -> None:
        """Open every connection.

        Raises:
            SetupError: the system allows fewer, or the server does not answer.
        """
        check_limits(self.address, self.size)
        gate = asyncio.Semaphore(OPENED_AT_A_TIME)

        async def one() -> None:
            async with gate:
                await self._connect()

        await asyncio.gather(*(one() for _ in range(self.size)))
        self._sweep()

    async def _connect(self) -> None:
        """Open one connection; the environment's proxies are not looked at.

        Raises:
            SetupError: no connection within the time limit, or a certificate that does not hold.
        """
        address = self.address
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await self._loop.create_connection(
                    lambda: HttpConnection(self), address.host, address.port, ssl=self.tls
                )
        except TimeoutError as error:
            raise SetupError(
                f"server {address.url} accepted no connection within {CONNECT_TIMEOUT_S:.0f} s",
                "start it, or correct the address",
            ) from error
        except OSError as error:
            raise no_connection(address, error) from error
        if self._closed:
            connection.close()
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
        self.most_waiting = max(self.most_waiting, len(self._waiting))

    def busy(self) -> list["Exchange"]:
        """Exchanges that wait for a response."""
        return [connection.exchange for connection in self._open if connection.exchange is not None]

    def close(self) -> None:
        self._closed = True
        for connection in [*self._open]:
            connection.close()

    # Of connections ------------------------------------------------------------------------------------------

    def released(self, connection: HttpConnection) -> None:
        if self.single_use and connection.used:
            connection.close()
        elif self._waiting:
            # In the next turn: the answer that freed the connection is reported first.
            self._loop.call_soon(self._serve, connection)
        else:
            self._rest(connection)

    def _serve(self, connection: HttpConnection) -> None:
        if connection.is_closing:
            return  # `lost` opens another one for those that wait
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
            task = self._loop.create_task(self._reopen())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def unasked(self, status: int) -> None:
        if status != IDLE_TOO_LONG:
            self.on_error(
                ExecutionError(
                    f"server {self.address.url}: a response without a request (status {status})",
                    "a proxy before the server answers twice",
                )
            )

    async def _reopen(self) -> None:
        try:
            await self._connect()
        except Exception as error:
            self.on_error(error)

    def _sweep(self) -> None:
        """Close a few of those that were idle for long; `lost` opens new ones."""
        if self._closed:
            return
        wait_s, oldest_s = LOOK_S, self._loop.time() - RENEW_AFTER_IDLE_S
        for resting in (self._idle, self._unused) if self.renew_unused else (self._idle,):
            for _ in range(-(-self.size // RENEW_STEPS)):
                if resting and next(iter(resting)).idle_since_s < oldest_s:
                    resting.popitem(last=False)[0].close()
                    wait_s = RENEW_STEP_S
        self._loop.call_later(wait_s, self._sweep)


def no_connection(address: ServerAddress, error: BaseException) -> SetupError:
    """Why a connection could not be opened, from an exception or those that caused it."""
    reasons = [error]
    while (reason := reasons[-1].__cause__ or reasons[-1].__context__) is not None:
        reasons.append(reason.exceptions[0] if isinstance(reason, BaseExceptionGroup) else reason)
    for reason in reasons:
        if isinstance(reason, ssl.SSLCertVerificationError):
            return SetupError(
                f"server {address.url}: its certificate is not valid: {reason.verify_message}",
                "name the certificate authority's file with --api-ca",
            )
    texts = [reason.strerror for reason in reasons if isinstance(reason, OSError) and reason.strerror]
    return SetupError(
        f"server {address.url} accepts no connection: {texts[0] if texts else error}",
        "start it, or correct the address",
    )


def check_limits(address: ServerAddress, size: int) -> None:
    """Whether the system lets a process have so many connections to one server.

    Raises:
        SetupError: too few open files, or too few local ports.
    """
    allow_open_files(size, f"{size} connections to {address.url}", "lower --api-connections")
    try:
        low, high = map(int, PORT_RANGE.read_text().split())
    except (OSError, ValueError):
        return  # another kind of system
    if size > (high - low) // 2:  # half: a closed connection keeps its port for a minute
        raise SetupError(
            f"{size} connections to {address.url}, and the system has {high - low + 1} local ports",
            "lower --api-connections, or widen net.ipv4.ip_local_port_range",
        )
