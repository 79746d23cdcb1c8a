"""Messages between a run and its replicas: permitted connections, and no losses."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import pytest
import zmq

from sut.replicas.transport import MAX_MESSAGES, KeyPair, RunSocket, Transport, replica_socket
from tests.support.processes.patience import patiently


async def until(condition: Callable[[], bool]) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await patiently(poll(), "messages")


async def test_messages_arrive_in_both_directions() -> None:
    keys = KeyPair.new()
    run = RunSocket("127.0.0.1", {keys.public})
    at_run: list[list[bytes]] = []
    at_replica: list[list[bytes]] = []
    run_end = Transport(run.socket, at_run.append)
    replica_end = Transport(replica_socket(run.address, run.keys.public, keys, b"7"), at_replica.append)
    replica_end.send(b"ready")
    await until(lambda: bool(at_run))
    assert at_run == [[b"7", b"ready"]]
    for number in range(3 * MAX_MESSAGES):
        run_end.send(b"7", b"%d" % number)
    await until(lambda: len(at_replica) == 3 * MAX_MESSAGES)
    assert at_replica == [[b"%d" % number] for number in range(3 * MAX_MESSAGES)]
    replica_end.close()
    run_end.close()
    run.stop()


async def test_a_transport_waits_for_its_poll_interval() -> None:
    keys = KeyPair.new()
    run = RunSocket("127.0.0.1", {keys.public})
    at_run: list[bytes] = []
    run_end = Transport(run.socket, lambda frames: at_run.append(frames[-1]), poll_s=1e9)
    replica_end = Transport(replica_socket(run.address, run.keys.public, keys, b"7"), lambda _: None)
    replica_end.send(b"first")
    await until(lambda: bool(at_run))
    for word in (b"second", b"third"):
        replica_end.send(word)
    await until(run_end._has_message)
    for _ in range(100):
        await asyncio.sleep(0)
    assert at_run == [b"first"]
    run_end._poll()
    assert at_run[:2] == [b"first", b"second"]
    await until(lambda: len(at_run) == 3 or run_end._has_message())
    while run_end._has_message():
        run_end._poll()
    run_end._poll()  # nothing has arrived meanwhile, so a new message is received at once
    replica_end.send(b"fourth")
    await until(lambda: at_run == [b"first", b"second", b"third", b"fourth"])
    replica_end.close()
    run_end.close()
    run.stop()


async def test_a_full_queue_keeps_the_order_without_blocking() -> None:
    large = b"x" * 200_000  # more than the buffers of the kernel
    keys = KeyPair.new()
    run = RunSocket("127.0.0.1", {keys.public}, queue=2)
    at_run: list[list[bytes]] = []
    run_end = Transport(run.socket, at_run.append)
    socket = replica_socket(run.address, run.keys.public, keys, b"0", queue=2)
    socket.send(b"ready")
    await until(lambda: bool(at_run))
    for number in range(100):
        run_end.send(b"0", b"%d" % number + large)
    assert run_end._unsent  # the replica reads nothing yet
    received: list[list[bytes]] = []
    replica_end = Transport(socket, received.append)
    await until(lambda: len(received) == 100)
    assert [frames[0].removesuffix(large) for frames in received] == [b"%d" % number for number in range(100)]
    replica_end.close()
    run_end.close()
    run.stop()


@pytest.mark.parametrize("knows", ["another protocol", "nothing", "the address and its own keys", "the run's key"])
def test_a_connection_without_a_key_is_rejected_and_counted(knows: str) -> None:
    async def run() -> None:
        run_socket = RunSocket("127.0.0.1", {KeyPair.new().public})
        at_run: list[list[bytes]] = []
        run_end = Transport(run_socket.socket, at_run.append)
        if knows == "another protocol":
            host, _, port = run_socket.address.removeprefix("tcp://").rpartition(":")
            stack.enter_context(socket.create_connection((host, int(port)))).sendall(b"GET / HTTP/1.0\r\n\r\n")
        else:
            intruder = stack.enter_context(without_a_key(run_socket, knows))
            with contextlib.suppress(zmq.Again):  # it was rejected already
                intruder.send(b"let me in", zmq.NOBLOCK)
        await until(lambda: run_socket.count_rejected() > 0)
        assert at_run == []
        run_end.close()
        run_socket.stop()

    with contextlib.ExitStack() as stack:
        asyncio.run(run())


def without_a_key(run: RunSocket, knows: str) -> "zmq.Socket[bytes]":
    if knows == "nothing":
        intruder: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        intruder.connect(run.address)
    else:
        key = run.keys.public if knows == "the run's key" else KeyPair.new().public
        intruder = replica_socket(run.address, key, KeyPair.new(), b"0")
    intruder.linger = 0
    return intruder


def test_replicas_that_reconnect_are_not_rejected() -> None:
    keys = KeyPair.new()
    run = RunSocket("127.0.0.1", {keys.public})
    for number in range(3):
        with replica_socket(run.address, run.keys.public, keys, b"%d" % number) as replica:
            replica.send(b"ready")
            assert run.socket.recv_multipart() == [b"%d" % number, b"ready"]
    assert run.count_rejected() == 0
    run.stop()
