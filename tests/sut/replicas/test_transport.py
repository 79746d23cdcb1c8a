"""What a leg and its replicas exchange: who may connect, and that nothing is lost."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import pytest
import zmq

from sut.replicas.transport import MOST_MESSAGES, KeyPair, LegSocket, Transport, replica_socket
from tests.support.patience import patiently


async def until(condition: Callable[[], bool]) -> None:
    async def look() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await patiently(look(), "messages")


async def test_messages_there_and_back() -> None:
    keys = KeyPair.new()
    leg = LegSocket("127.0.0.1", {keys.public})
    at_leg: list[list[bytes]] = []
    at_replica: list[list[bytes]] = []
    leg_end = Transport(leg.socket, at_leg.append)
    replica_end = Transport(replica_socket(leg.address, leg.keys.public, keys, b"7"), at_replica.append)
    replica_end.send(b"ready")
    await until(lambda: bool(at_leg))
    assert at_leg == [[b"7", b"ready"]]
    for number in range(3 * MOST_MESSAGES):
        leg_end.send(b"7", b"%d" % number)
    await until(lambda: len(at_replica) == 3 * MOST_MESSAGES)
    assert at_replica == [[b"%d" % number] for number in range(3 * MOST_MESSAGES)]
    replica_end.close()
    leg_end.close()
    leg.stop()


async def test_a_transport_looks_no_sooner_again_than_it_may() -> None:
    keys = KeyPair.new()
    leg = LegSocket("127.0.0.1", {keys.public})
    at_leg: list[bytes] = []
    leg_end = Transport(leg.socket, lambda frames: at_leg.append(frames[-1]), poll_s=1e9)
    replica_end = Transport(replica_socket(leg.address, leg.keys.public, keys, b"7"), lambda _: None)
    replica_end.send(b"first")
    await until(lambda: bool(at_leg))
    for word in (b"second", b"third"):
        replica_end.send(word)
    await until(leg_end._has_message)
    for _ in range(100):
        await asyncio.sleep(0)
    assert at_leg == [b"first"]
    leg_end._look()
    assert at_leg[:2] == [b"first", b"second"]
    await until(lambda: len(at_leg) == 3 or leg_end._has_message())
    while leg_end._has_message():
        leg_end._look()
    leg_end._look()  # nothing has come meanwhile: what comes now is heard at once
    replica_end.send(b"fourth")
    await until(lambda: at_leg == [b"first", b"second", b"third", b"fourth"])
    replica_end.close()
    leg_end.close()
    leg.stop()


async def test_a_full_queue_keeps_the_order_and_blocks_nobody() -> None:
    large = b"x" * 200_000  # more than the kernel's buffers take
    keys = KeyPair.new()
    leg = LegSocket("127.0.0.1", {keys.public}, queue=2)
    at_leg: list[list[bytes]] = []
    leg_end = Transport(leg.socket, at_leg.append)
    socket = replica_socket(leg.address, leg.keys.public, keys, b"0", queue=2)
    socket.send(b"ready")
    await until(lambda: bool(at_leg))
    for number in range(100):
        leg_end.send(b"0", b"%d" % number + large)
    assert leg_end._unsent  # the replica reads nothing yet
    found: list[list[bytes]] = []
    replica_end = Transport(socket, found.append)
    await until(lambda: len(found) == 100)
    assert [frames[0].removesuffix(large) for frames in found] == [b"%d" % number for number in range(100)]
    replica_end.close()
    leg_end.close()
    leg.stop()


@pytest.mark.parametrize("knows", ["another protocol", "nothing", "the address and its own keys", "the leg's key"])
def test_a_connection_without_a_key_is_rejected_and_counted(knows: str) -> None:
    async def run() -> None:
        leg = LegSocket("127.0.0.1", {KeyPair.new().public})
        at_leg: list[list[bytes]] = []
        leg_end = Transport(leg.socket, at_leg.append)
        if knows == "another protocol":
            host, _, port = leg.address.removeprefix("tcp://").rpartition(":")
            stack.enter_context(socket.create_connection((host, int(port)))).sendall(b"GET / HTTP/1.0\r\n\r\n")
        else:
            other = stack.enter_context(without_a_key(leg, knows))
            with contextlib.suppress(zmq.Again):  # it was rejected already
                other.send(b"let me in", zmq.NOBLOCK)
        await until(lambda: leg.count_rejected() > 0)
        assert at_leg == []
        leg_end.close()
        leg.stop()

    with contextlib.ExitStack() as stack:
        asyncio.run(run())


def without_a_key(leg: LegSocket, knows: str) -> "zmq.Socket[bytes]":
    if knows == "nothing":
        other: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        other.connect(leg.address)
    else:
        key = leg.keys.public if knows == "the leg's key" else KeyPair.new().public
        other = replica_socket(leg.address, key, KeyPair.new(), b"0")
    other.linger = 0
    return other


def test_replicas_that_come_and_go_are_not_rejected() -> None:
    keys = KeyPair.new()
    leg = LegSocket("127.0.0.1", {keys.public})
    for number in range(3):
        with replica_socket(leg.address, leg.keys.public, keys, b"%d" % number) as replica:
            replica.send(b"ready")
            assert leg.socket.recv_multipart() == [b"%d" % number, b"ready"]
    assert leg.count_rejected() == 0
    leg.stop()
