"""The exchange of messages between a run and its replicas, on an event loop: ZeroMQ.

CurveZMQ encrypts and authenticates. The run generates the keys and passes them to a replica by a pipe. The library
refuses connections without these keys.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import parse_monitor_message

MAX_MESSAGES = 64  # maximum number of messages read in one turn of the loop
# Intervals in runs without first tokens, whose latencies do not count. Handling messages in batches is cheaper: after
# each pause in which other processes use the caches, Python takes three times as long. The run polls slightly less
# often than a replica sends, so each poll finds a message. Both intervals are far shorter than the work that waits in
# an engine (sut/feed.py).
GATHER_S = 0.045
GATHERED_POLL_S = 0.05
# Limit of the library's queue on each side of a connection; further messages wait in this process.
QUEUE_MESSAGES = 4096
RETRY_S = 0.001
HEARTBEAT_MARK = b"*"  # suffix of the replica's number in the name of its heartbeat socket

_POLLIN = int(zmq.POLLIN)  # as int, because the library's enumeration is slow


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
    """A socket on an event loop. It passes on messages as they arrive, and sending never blocks."""

    socket: "zmq.Socket[bytes]"  # bound or connected
    on_message: Callable[[list[bytes]], None]  # called on the loop with the frames of each message
    _: KW_ONLY
    poll_s: float = 0.0  # minimum time between two polls; 0 = pass on each message at once

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[list[bytes]] = deque()
        self._poll_planned = False
        self._listening = False  # the loop watches the library's file descriptor
        self._plan_poll()

    def send(self, *frames: bytes) -> None:
        """Send a message, or keep it until the other side's queue has room."""
        self._unsent.append(list(frames))
        if len(self._unsent) == 1:
            self._send_unsent()

    def close(self) -> None:
        self._loop.remove_reader(self.socket.fileno())
        self.socket.close(linger=500)

    def _send_unsent(self) -> None:
        while self._unsent and not self.socket.closed:
            try:
                self.socket.send_multipart(self._unsent[0], zmq.NOBLOCK)
            except zmq.Again:
                self._loop.call_later(RETRY_S, self._send_unsent)
                break
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                # The replica ended, which the pool reports. Its queries stay open.
            self._unsent.popleft()
        # The library's file descriptor signals a message once, and sending may have consumed the signal.
        if not self.socket.closed and self._has_message():
            self._plan_poll()

    def _has_message(self) -> bool:
        return bool(int(self.socket.get(zmq.EVENTS)) & _POLLIN)

    def _plan_poll(self, in_s: float = 0.0) -> None:
        if not self._poll_planned:
            self._poll_planned = True
            if in_s:
                self._loop.call_later(in_s, self._poll)
            else:
                self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        self._poll_planned = False
        if self.socket.closed:
            return
        received = 0
        while received < MAX_MESSAGES:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self.on_message(frames)
            received += 1
        if received == MAX_MESSAGES:
            self._plan_poll()
        elif received and self.poll_s:
            self._listen(False)
            self._plan_poll(self.poll_s)
        else:
            self._listen(True)

    def _listen(self, wanted: bool) -> None:
        if wanted and not self._listening:
            self._loop.add_reader(self.socket.fileno(), self._poll)
        elif self._listening and not wanted:
            self._loop.remove_reader(self.socket.fileno())
        self._listening = wanted


class RunSocket:
    """The run's socket, to which its replicas connect.

    Args:
        host: address to listen on.
        replica_keys: public keys of the replicas that may connect.
        queue: maximum number of messages that the library keeps for each side.
    """

    def __init__(self, host: str, replica_keys: set[str], queue: int = QUEUE_MESSAGES) -> None:
        self.keys = KeyPair.new()
        self._allowed = {key.encode() for key in replica_keys}
        self._rejected = 0
        self._context = context = zmq.Context()
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(credentials_provider=self)
        self.socket = context.socket(zmq.ROUTER)
        self.socket.router_mandatory = True  # A message without a receiver is an error, not lost.
        self.socket.sndhwm = self.socket.rcvhwm = queue
        self.socket.curve_server = True
        self.socket.curve_publickey = self.keys.public.encode()
        self.socket.curve_secretkey = self.keys.secret.encode()
        self._monitor = self.socket.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        port = self.socket.bind_to_random_port(f"tcp://{host}")
        self.address = f"tcp://{host}:{port}"

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether the holder of a public key may connect. The library calls this."""
        return key in self._allowed

    def count_rejected(self) -> int:
        """Return the number of connections so far without a key of this run. Call it regularly, because the library
        stores the events until then.
        """
        while self._monitor.poll(0):
            event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))["event"]
            self._rejected += 1 if event == zmq.EVENT_ACCEPTED else -1
        return self._rejected

    def stop(self) -> None:
        """Close the socket, after the transport is closed."""
        self.socket.close(linger=500)
        self._monitor.close(linger=0)
        self._authenticator.stop()
        self._context.term()


def replica_socket(
    address: str, run_key: str, keys: KeyPair, name: bytes, queue: int = QUEUE_MESSAGES
) -> "zmq.Socket[bytes]":
    """Return a replica's socket, which connects to its run.

    Args:
        name: name by which the run addresses the replica; unique in the run.
        queue: maximum number of messages that the library keeps for each side.
    """
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.routing_id = name
    socket.linger = 500
    socket.sndhwm = socket.rcvhwm = queue
    socket.curve_serverkey = run_key.encode()
    socket.curve_publickey = keys.public.encode()
    socket.curve_secretkey = keys.secret.encode()
    socket.connect(address)
    return socket
