"""How a leg and its replicas exchange messages, on an event loop: ZeroMQ.

CurveZMQ encrypts and authenticates: the keys are made for the leg and reach a replica by a pipe, so whoever connects
without them is refused by the library before a byte of ours is read.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import parse_monitor_message

MOST_MESSAGES = 64  # read in one turn of the loop
# Where no latency is judged, and what comes together costs a fraction of what each costs alone: the same work of
# Python's takes three times as long after every pause, as others had the caches meanwhile. The leg looks a little less
# often than a replica sends, so that it never looks in vain. Together they are well below what the queries that wait
# ahead in an engine (sut/feed.py) keep it busy.
GATHER_S = 0.045
GATHERED_POLL_S = 0.05
QUEUE_MESSAGES = 4096  # on each side of each connection; what is beyond waits here, as bounded as the queries ahead
RETRY_S = 0.001
HEARTBEAT_MARK = b"*"  # behind the replica's number in the name of its heartbeat's socket

_POLLIN = int(zmq.POLLIN)  # the library's own kind of number is slow
_LIFE = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
SHOWN_WITHIN_S = 5.0  # who connects says who it is; milliseconds, where a core is free


def may_gather(loadgen_scenario: str) -> bool:
    """Whether answers may wait for others to travel with: LoadGen's clock stops when it is told."""
    return loadgen_scenario == "Offline"


@dataclass(frozen=True)
class KeyPair:
    """A Curve25519 key pair in Z85."""

    public: str
    secret: str

    @classmethod
    def new(cls) -> "KeyPair":
        public, secret = zmq.curve_keypair()
        return cls(public.decode(), secret.decode())


@dataclass(eq=False)
class Transport:
    """A socket whose messages are passed on as they arrive, and which never blocks whoever sends."""

    socket: "zmq.Socket[bytes]"  # bound or connected
    on_message: Callable[[list[bytes]], None]  # told the frames of each message, on the loop
    _: KW_ONLY
    poll_s: float = 0.0  # the least time between two looks at what has come; 0 = each message is passed on at once

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[list[bytes]] = deque()
        self._look_planned = False
        self._listening = False  # the loop looks at the library's file descriptor
        self._plan_look()

    def send(self, *frames: bytes) -> None:
        """Send a message, or keep it until the other side's queue has room."""
        self._unsent.append(list(frames))
        if len(self._unsent) == 1:
            self._send_unsent()

    def close(self) -> None:
        self._loop.remove_reader(self.socket.fileno())
        self.socket.close(linger=500)

    def _send_unsent(self) -> None:
        while self._unsent:
            try:
                self.socket.send_multipart(self._unsent[0], zmq.NOBLOCK)
            except zmq.Again:
                self._loop.call_later(RETRY_S, self._send_unsent)
                break
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                # The replica is gone. Who watches it says so, and why; its queries stay open.
            self._unsent.popleft()
        if self._has_message():  # of which the library's file descriptor told once, and sending may have used that up
            self._plan_look()

    def _has_message(self) -> bool:
        return bool(int(self.socket.get(zmq.EVENTS)) & _POLLIN)

    def _plan_look(self, in_s: float = 0.0) -> None:
        if not self._look_planned:
            self._look_planned = True
            if in_s:
                self._loop.call_later(in_s, self._look)
            else:
                self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._look_planned = False
        if self.socket.closed:
            return
        heard = 0
        while heard < MOST_MESSAGES:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self.on_message(frames)
            heard += 1
        if heard == MOST_MESSAGES:
            self._plan_look()
        elif heard and self.poll_s:
            self._listen(False)
            self._plan_look(self.poll_s)
        else:
            self._listen(True)

    def _listen(self, wanted: bool) -> None:
        if wanted and not self._listening:
            self._loop.add_reader(self.socket.fileno(), self._look)
        elif self._listening and not wanted:
            self._loop.remove_reader(self.socket.fileno())
        self._listening = wanted


class LegSocket:
    """The leg's socket, to which its replicas connect.

    Args:
        host: address to listen on.
        replica_keys: public keys of those who may connect.
        shown_within_s: a connection that has not shown a key by then counts as rejected.
    """

    def __init__(
        self,
        host: str,
        replica_keys: set[str],
        queue: int = QUEUE_MESSAGES,
        *,
        shown_within_s: float = SHOWN_WITHIN_S,
    ) -> None:
        self.keys = KeyPair.new()
        self._allowed = {key.encode() for key in replica_keys}
        self.rejected = 0
        self._shown_within_s = shown_within_s
        self._unknown: deque[float] = deque()  # when they came, of connections that have not shown who they are
        self._context = context = zmq.Context()
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(credentials_provider=self)
        self.socket = context.socket(zmq.ROUTER)
        self.socket.router_mandatory = True  # a message to nobody is an error, not lost
        self.socket.sndhwm = self.socket.rcvhwm = queue
        self.socket.curve_server = True
        self.socket.curve_publickey = self.keys.public.encode()
        self.socket.curve_secretkey = self.keys.secret.encode()
        self._monitor = self.socket.get_monitor_socket(_LIFE)
        port = self.socket.bind_to_random_port(f"tcp://{host}")
        self.address = f"tcp://{host}:{port}"

    def callback(self, domain: str, key: bytes) -> bool:
        """The library's question whether the holder of a public key may connect."""
        return key in self._allowed

    def count_rejected(self) -> int:
        """Connections, not counted before, that have not shown in time who they are. The library tells of a refusal
        only where it was spoken to in its own protocol, and never whose connection it was that ended."""
        before, now = self.rejected, time.monotonic()
        while self._monitor.poll(0):
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))["event"]
            if event == zmq.EVENT_ACCEPTED:
                self._unknown.append(now)
            elif self._unknown:
                self._unknown.popleft()
            else:
                self.rejected -= 1  # one that took longer
        while self._unknown and now - self._unknown[0] >= self._shown_within_s:
            self._unknown.popleft()
            self.rejected += 1
        return max(0, self.rejected - before)

    def stop(self) -> None:
        """After the transport is closed."""
        self.socket.close(linger=500)
        self._monitor.close(linger=0)
        self._authenticator.stop()
        self._context.term()


def replica_socket(
    address: str, leg_key: str, keys: KeyPair, name: bytes, queue: int = QUEUE_MESSAGES
) -> "zmq.Socket[bytes]":
    """A replica's socket, connecting to its leg.

    Args:
        name: how the leg addresses it; unique in the leg.
        queue: messages that the library may keep for each side.
    """
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.routing_id = name
    socket.linger = 500
    socket.sndhwm = socket.rcvhwm = queue
    socket.curve_serverkey = leg_key.encode()
    socket.curve_publickey = keys.public.encode()
    socket.curve_secretkey = keys.secret.encode()
    socket.connect(address)
    return socket
