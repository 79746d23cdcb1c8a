"""The line between a leg and its replicas: who may use it, and that nothing is lost on it."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import pytest
import zmq

from sut.replicas import line as line_module
from sut.replicas.line import KeyPair, LegSocket, Line, replica_socket
from tests.conftest import PATIENCE_S


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_messages_there_and_back() -> None:
    async def run() -> None:
        keys = KeyPair.new()
        leg = LegSocket("127.0.0.1", {keys.public})
        at_leg: list[list[bytes]] = []
        at_replica: list[list[bytes]] = []
        leg_line = Line(leg.socket, at_leg.append)
        line = Line(replica_socket(leg.address, leg.keys.public, keys, b"7"), at_replica.append)
        line.send(b"ready")
        await until(lambda: bool(at_leg))
        assert at_leg == [[b"7", b"ready"]]
        for number in range(3 * line_module.MOST_MESSAGES):
            leg_line.send(b"7", b"%d" % number)
        await until(lambda: len(at_replica) == 3 * line_module.MOST_MESSAGES)
        assert at_replica == [[b"%d" % number] for number in range(3 * line_module.MOST_MESSAGES)]
        line.close()
        leg_line.close()
        leg.stop()

    asyncio.run(run())


def test_a_line_looks_no_sooner_again_than_it_may() -> None:
    async def run() -> None:
        keys = KeyPair.new()
        leg = LegSocket("127.0.0.1", {keys.public})
        at_leg: list[bytes] = []
        leg_line = Line(leg.socket, lambda frames: at_leg.append(frames[-1]), look_s=1e9)
        line = Line(replica_socket(leg.address, leg.keys.public, keys, b"7"), lambda _: None)
        line.send(b"first")
        await until(lambda: bool(at_leg))
        for word in (b"second", b"third"):
            line.send(word)
        await until(leg_line._has_message)
        for _ in range(100):
            await asyncio.sleep(0)
        assert at_leg == [b"first"]
        leg_line._look()
        assert at_leg[:2] == [b"first", b"second"]
        await until(lambda: len(at_leg) == 3 or leg_line._has_message())
        while leg_line._has_message():
            leg_line._look()
        leg_line._look()  # nothing has come meanwhile: what comes now is heard at once
        line.send(b"fourth")
        await until(lambda: at_leg == [b"first", b"second", b"third", b"fourth"])
        line.close()
        leg_line.close()
        leg.stop()

    asyncio.run(run())


def test_a_full_queue_keeps_the_order_and_blocks_nobody() -> None:
    large = b"x" * 200_000  # more than the kernel's buffers take

    async def run() -> None:
        keys = KeyPair.new()
        leg = LegSocket("127.0.0.1", {keys.public}, queue=2)
        at_leg: list[list[bytes]] = []
        leg_line = Line(leg.socket, at_leg.append)
        socket = replica_socket(leg.address, leg.keys.public, keys, b"0", queue=2)
        socket.send(b"ready")
        await until(lambda: bool(at_leg))
        for number in range(100):
            leg_line.send(b"0", b"%d" % number + large)
        assert leg_line._unsent  # the replica reads nothing yet
        found: list[list[bytes]] = []
        line = Line(socket, found.append)
        await until(lambda: len(found) == 100)
        assert [frames[0].removesuffix(large) for frames in found] == [b"%d" % number for number in range(100)]
        line.close()
        leg_line.close()
        leg.stop()

    asyncio.run(run())


@pytest.mark.parametrize("knows", ["another protocol", "nothing", "the address and its own keys", "the leg's key"])
def test_a_stranger_is_refused_and_counted(knows: str) -> None:
    async def run() -> None:
        leg = LegSocket("127.0.0.1", {KeyPair.new().public}, shown_within_s=0.5)
        at_leg: list[list[bytes]] = []
        leg_line = Line(leg.socket, at_leg.append)
        if knows == "another protocol":
            host, _, port = leg.address.removeprefix("tcp://").rpartition(":")
            stranger = stack.enter_context(socket.create_connection((host, int(port))))
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
        else:
            stack.enter_context(zmq_stranger(leg, knows)).send(b"let me in")
        async with asyncio.timeout(PATIENCE_S):
            while not leg.count_strangers():
                await asyncio.sleep(0.05)
        assert leg.strangers
        assert at_leg == []
        leg_line.close()
        leg.stop()

    with contextlib.ExitStack() as stack:
        asyncio.run(run())


def zmq_stranger(leg: LegSocket, knows: str) -> "zmq.Socket[bytes]":
    if knows == "nothing":
        stranger: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        stranger.connect(leg.address)
    else:
        key = leg.keys.public if knows == "the leg's key" else KeyPair.new().public
        stranger = replica_socket(leg.address, key, KeyPair.new(), b"0")
    stranger.linger = 0
    return stranger


def test_replicas_that_come_and_go_are_no_strangers() -> None:
    """Also where one goes while the next one comes."""
    keys = KeyPair.new()
    leg = LegSocket("127.0.0.1", {keys.public}, shown_within_s=0.0)
    for number in range(3):
        with replica_socket(leg.address, leg.keys.public, keys, b"%d" % number) as replica:
            replica.send(b"ready")
            assert leg.socket.recv_multipart() == [b"%d" % number, b"ready"]
    while leg._monitor.poll(500):
        leg.count_strangers()
    assert leg.strangers == 0
    leg.stop()
