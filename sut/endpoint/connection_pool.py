"""A bounded set of connections to one server, all opened before the clock starts.

The connection that was used last is used first, so the others keep still. Servers close a connection that has been
idle for some seconds (uvicorn: 5), and a request sent in that moment would be lost, so an idle one is renewed before.
A burst leaves many idle at once; they are renewed a few at a time, because queries wait behind that work. What finds no
free connection waits in order.
"""

import asyncio
import ssl
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runs.errors import ExecutionError, SetupError
from sut.endpoint.address import ServerAddress
from sut.endpoint.connection import HttpConnection, Receiver
from sut.open_files import allow_open_files

CONNECT_TIMEOUT_S = 10.0
OPENED_AT_A_TIME = 64
RENEW_AFTER_IDLE_S = 2.0  # uvicorn and llama.cpp's server close after 5
LOOK_S = 0.05
RENEW_STEP_S = 0.001  # up to 2 ms on an event loop, so all are renewed within 2 s
RENEW_STEPS = 1_000
IDLE_TOO_LONG = 408  # what some proxies send before they close a connection that nothing came on
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

Resting = OrderedDict[HttpConnection, None]  # connections without an exchange; the first has been so for longest


class Job(Receiver, Protocol):
    """A request that is to be sent, and the receiver of its response."""

    def request(self) -> tuple[bytes, bytes]:
        """Head and body; asked for when there is a connection, so that waiting jobs hold no bodies."""


@dataclass(eq=False)
class ConnectionPool:
    address: ServerAddress
    tls: ssl.SSLContext | None
    size: int  # connections, from first to last
    on_error: Callable[[BaseException], None]  # told when a connection that was lost cannot be opened again
    renew_unused: bool = False  # also what has carried nothing yet, for servers that count from the opening
    single_use: bool = False  # no connection carries a second exchange, for servers that close it without a word

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: Resting = OrderedDict()
        self._unused: Resting = OrderedDict()  # have carried nothing yet; used when no other is idle
        self._open: set[HttpConnection] = set()
        self._waiting: deque[Job] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.renewed = 0
        self.most_waiting = 0  # requests at a time, for a free connection

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
                f"server {address.url} took no connection within {CONNECT_TIMEOUT_S:.0f} s",
                "start it, or mend the address",
            ) from error
        except OSError as error:
            raise no_connection(address, error) from error
        if self._closed:
            connection.close()
            return
        self._open.add(connection)
        self.released(connection)

    def submit(self, job: Job) -> None:
        """Send a job at once, or when a connection is free."""
        while self._idle or self._unused:
            connection, _ = (self._idle or self._unused).popitem()
            if not connection.is_closing:
                connection.exchange(*job.request(), job)
                return
        self._waiting.append(job)
        self.most_waiting = max(self.most_waiting, len(self._waiting))

    def busy(self) -> list[Receiver]:
        """Who waits for a response right now."""
        return [connection.receiver for connection in self._open if connection.receiver is not None]

    def close(self) -> None:
        self._closed = True
        for connection in [*self._open]:
            connection.close()

    # Of connections ------------------------------------------------------------------------------------------

    def released(self, connection: HttpConnection) -> None:
        if self.single_use and connection.used:
            connection.close()
        elif self._waiting:
            # In a turn of its own: the answer that freed the connection is told first.
            self._loop.call_soon(self._serve, connection)
        else:
            self._rest(connection)

    def _serve(self, connection: HttpConnection) -> None:
        if connection.is_closing:
            return  # `lost` opens another one, which serves who waits
        if self._waiting:
            job = self._waiting.popleft()
            connection.exchange(*job.request(), job)
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
                    f"server {self.address.url}: a response came that nobody asked for (status {status})",
                    "something on the way answers twice",
                )
            )

    async def _reopen(self) -> None:
        try:
            await self._connect()
        except Exception as error:
            self.on_error(error)

    def _sweep(self) -> None:
        """Renew a few of those that have been idle for long; `lost` opens a new one in each one's place."""
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
    """What is said of a connection that could not be opened, for whatever reason stands behind the error."""
    reasons = [error]
    while (reason := reasons[-1].__cause__ or reasons[-1].__context__) is not None:
        reasons.append(reason.exceptions[0] if isinstance(reason, BaseExceptionGroup) else reason)
    for reason in reasons:
        if isinstance(reason, ssl.SSLCertVerificationError):
            return SetupError(
                f"server {address.url}: its certificate does not hold: {reason.verify_message}",
                "name the certificate authority's file with --api-ca",
            )
    texts = [reason.strerror for reason in reasons if isinstance(reason, OSError) and reason.strerror]
    return SetupError(
        f"server {address.url} takes no connection: {texts[0] if texts else error}", "start it, or mend the address"
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
