"""One replica: an engine in its own process, `python -m sut.replicas.replica ENGINE`.

The first line of its standard input is its `ReplicaSpec`. The process ends when its standard input is closed, because
its owner has ended then. A replica of one run connects to the run at once, and its output goes to engine.log. A kept
replica (sut/replicas/kept_engine.py) waits for runs on a Unix socket: each connection brings the spec of a run in a
line, and lasts as long as the run.
"""

import asyncio
import contextlib
import ctypes
import os
import platform
import signal
import socket
import sys
import threading
import traceback
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import psutil
import zmq

from runs.errors import ExecutionError, HarnessError, error_record
from runs.files.reading import MAX_WEIGHTS_BYTES
from runs.files.writing import sha256_of
from runs.machine.environment import boot_id, software_versions
from runs.processes.age import age_s, processor_s
from runs.processes.workers import ignore_signals
from runs.record.manifest import ReplicaRecord, RunPlan
from sut.engine import Engine, Request
from sut.engines import engine_kind
from sut.event_loop import freeze_garbage_collection, new_event_loop
from sut.loadgen_sut import int32_ids
from sut.replicas.messages import (
    Failure,
    FinishedResponse,
    Heartbeat,
    Observations,
    Query,
    QueryBatch,
    Ready,
    ReplicaSpec,
    ResultBatch,
    encode_message,
    read_for_replica,
)
from sut.replicas.transport import GATHER_S, HEARTBEAT_MARK, KeyPair, Transport, replica_socket

HEARTBEAT_S = 0.5
POLL_S = 0.25
MAX_SPEC_BYTES = 16 << 20  # line with the spec of a run
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}  # system calls [linux: syscall_64.tbl, asm-generic/unistd.h]
_MPOL_PREFERRED = 1  # linux/mempolicy.h: prefer this node while it has free memory


class EngineHost:
    """The one engine of this process. It is started once."""

    def __init__(self, spec: ReplicaSpec) -> None:
        self.spec = spec
        self.plan = RunPlan.model_validate(spec.plan)
        self.engine: Engine | None = None  # None until it runs
        self.family: list[psutil.Process] = [psutil.Process()]
        self._start: asyncio.Future[Ready] | None = None

    def start(self) -> "asyncio.Future[Ready]":
        """Start the engine, once.

        Raises (when awaited):
            HarnessError: If it does not start.
        """
        if self._start is None:
            self._start = asyncio.ensure_future(self._started())
        return self._start

    async def _started(self) -> Ready:
        weights = asyncio.ensure_future(asyncio.to_thread(_weights, self.plan.model_path))
        kind = engine_kind(self.plan.engine)
        await asyncio.to_thread(kind.warm_import)
        engine = kind.make(self.plan)
        report = await engine.start()
        self.engine = engine
        self.family = [psutil.Process(), *psutil.Process().children(recursive=True)]
        freeze_garbage_collection()
        record = ReplicaRecord(
            replica=self.spec.index,
            host=platform.node(),
            pid=os.getpid(),
            devices=self.spec.devices,
            cores=self.spec.cores,
            start_s=round(age_s(psutil.Process()) or 0.0, 2),
            weights_sha256=await weights,
            environment=report.configuration.get("environment", {}),
        )
        return Ready(record.model_dump(), boot_id(), software_versions(), report)


class Session:
    """One run on the engine of this process, and the transport to it. A sink of the engine."""

    def __init__(self, host: EngineHost, spec: ReplicaSpec) -> None:
        self._host = host
        self._spec = spec
        self._keys = KeyPair(spec.public_key, spec.secret_key)
        self._name = str(spec.index).encode()
        self._stopped = asyncio.Event()
        self._over = threading.Event()  # ends the heartbeat; later output of the engine is dropped
        self._first_tokens: list[tuple[int, int, int]] = []
        self._responses: list[FinishedResponse] = []
        self._may_gather = not RunPlan.model_validate(spec.plan).reports_first_tokens
        self._engine: Engine | None = None
        # What a kept engine used and generated before this run.
        self._cpu_before_s = 0.0
        self._tokens_before = 0

    def stop(self) -> None:
        """End the session: the run is over."""
        self._stopped.set()

    async def serve(self) -> bool:
        """Serve until the run is over. Report to the run if the engine does not start, or dies.

        Returns:
            Whether the engine can serve another run.
        """
        host, spec = self._host, self._spec
        asyncio.get_running_loop().set_exception_handler(self._fail_in_callback)
        socket = replica_socket(spec.address, spec.run_key, self._keys, self._name)
        self._transport = transport = Transport(socket, self._receive)
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        try:
            ready = await asyncio.shield(host.start())
            engine = host.engine
            assert engine is not None
            if spec.kept:
                await engine.begin(RunPlan.model_validate(spec.plan))
                self._cpu_before_s = processor_s(host.family)
                self._tokens_before = engine.generated_tokens() or 0
            self._engine = engine
            transport.send(encode_message(ready))
            while not self._stopped.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), POLL_S)
                engine.check_alive()
            return True
        except Exception as error:
            traceback.print_exc()
            self._fail(error)
            return False
        finally:
            self._over.set()
            transport.close()

    # From the run -------------------------------------------------------------------------------------------------

    def _receive(self, frames: list[bytes]) -> None:
        message = read_for_replica(frames[-1])
        if isinstance(message, QueryBatch):
            self._submit(message)
        elif message == "stop":
            self._stopped.set()
        else:
            self._observing = asyncio.ensure_future(self._observe())

    async def _observe(self) -> None:
        assert self._engine is not None
        try:
            self._transport.send(encode_message(Observations(await self._engine.observed())))
        except Exception as error:
            self._fail(error)

    def _submit(self, batch: QueryBatch) -> None:
        engine = self._engine
        assert engine is not None  # the run sends queries only to a ready replica
        try:
            for query in batch.queries:
                engine.submit(self._request(query))
        except Exception as error:
            self._fail(error)

    def _request(self, query: Query) -> Request:
        prompt = array("i", query.prompt).tolist()
        request = Request(self, prompt, query.tag, query.seq, query.sample_index, query.issue_ns)
        request.priority, request.output_lengths = query.priority, query.output_lengths
        return request

    # From the engine: a sink --------------------------------------------------------------------------------------

    def first_token(self, request: Request, token_id: int) -> None:
        self._plan_flush()
        self._first_tokens.append((request.response_id, token_id, request.heard_ns))

    def complete(self, request: Request, token_ids: Sequence[int], finish_reason: str, cached_tokens: int) -> None:
        self._plan_flush()
        ids = int32_ids(token_ids).tobytes()
        gaps = None if request.token_gaps_ns is None else request.token_gaps_ns.tobytes()
        self._responses.append(
            FinishedResponse(request.response_id, ids, finish_reason, cached_tokens, request.heard_ns, gaps)
        )

    def failed(self, request: Request, error: BaseException) -> None:
        self._fail(error)

    def _plan_flush(self) -> None:
        if self._first_tokens or self._responses:
            return
        loop = asyncio.get_running_loop()
        if self._may_gather:
            loop.call_later(GATHER_S, self._flush)
        else:
            loop.call_soon(self._flush)  # after the other results of the same step

    def _flush(self) -> None:
        results = ResultBatch(self._first_tokens, self._responses)
        self._first_tokens, self._responses = [], []
        if not self._over.is_set():
            self._transport.send(encode_message(results))

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, HarnessError):
            error = ExecutionError(f"{type(error).__name__}: {error}")
        if not self._over.is_set():
            self._transport.send(encode_message(Failure(error_record(error))))

    def _fail_in_callback(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        self._fail(context.get("exception") or ExecutionError(f"event loop: {context.get('message')}"))

    # On the heartbeat's thread ---------------------------------------------------------------------------------------

    def _beat(self) -> None:
        spec, host = self._spec, self._host
        socket = replica_socket(spec.address, spec.run_key, self._keys, self._name + HEARTBEAT_MARK)
        with contextlib.suppress(zmq.ContextTerminated), socket:
            while not self._over.is_set():
                engine = self._engine
                heartbeat = Heartbeat(
                    engine.activity() if engine else 0,
                    _generated_since(self._tokens_before, engine),
                    round(max(0.0, processor_s(host.family) - self._cpu_before_s), 3),
                )
                with contextlib.suppress(zmq.Again):  # the run does not read messages at present
                    socket.send(encode_message(heartbeat), zmq.NOBLOCK)
                self._over.wait(HEARTBEAT_S)


def _generated_since(before: int, engine: Engine | None) -> int | None:
    """Return the output tokens that an engine has generated after the first `before`; None if it does not count."""
    tokens = engine.generated_tokens() if engine is not None else None
    return None if tokens is None else tokens - before


async def _serve_runs(host: EngineHost, listener: socket.socket) -> None:
    """Serve one run after another until the engine fails."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    host.start().add_done_callback(lambda started: started.exception())  # A run reports its failure.
    while True:
        connection, _ = await loop.sock_accept(listener)
        reader, writer = await asyncio.open_connection(sock=connection, limit=MAX_SPEC_BYTES)
        with contextlib.closing(writer):
            line = await reader.readline()
            if not line.endswith(b"\n"):
                continue  # the run ended before it sent its spec
            session = Session(host, msgspec.json.decode(line, type=ReplicaSpec))
            run_over = asyncio.ensure_future(reader.read())
            run_over.add_done_callback(lambda _, session=session: session.stop())  # type: ignore[misc]
            usable = await session.serve()
            run_over.cancel()
            if usable and host.engine is not None:
                await host.engine.abandon()
        if not usable:
            return


async def _serve(spec: ReplicaSpec) -> None:
    host = EngineHost(spec)
    if spec.listen_fd is not None:
        os.set_inheritable(spec.listen_fd, False)
        await _serve_runs(host, socket.socket(fileno=spec.listen_fd))
    elif await Session(host, spec).serve() and host.engine is not None:
        await host.engine.stop()


def _weights(model_path: str) -> dict[str, str]:
    """Return the SHA-256 of each weight file of a model, and of its configuration."""
    folder = Path(model_path)
    files = [*folder.glob("*.safetensors"), *folder.glob("*.gguf"), *folder.glob("*.bin"), *folder.glob("config.json")]
    return {file.name: sha256_of(file, max_bytes=MAX_WEIGHTS_BYTES) for file in sorted(files)}


def bind(cores: list[int], numa_node: int | None) -> None:
    """Keep this process and its descendants on these cores and, where the kernel allows it, take memory near them."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    if numa_node is None:
        return
    number = _SET_MEMPOLICY.get(os.uname().machine)
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    mask = (ctypes.c_ulong * (numa_node // bits + 1))()
    mask[numa_node // bits] = 1 << numa_node % bits
    libc = ctypes.CDLL(None, use_errno=True)
    if number is None or libc.syscall(number, _MPOL_PREFERRED, mask, bits * len(mask) + 1):
        print(f"memory of NUMA node {numa_node} was not granted: {os.strerror(ctypes.get_errno())}", flush=True)


def _end_with_the_owner() -> None:
    """End this process and its descendants when the standard input closes."""
    sys.stdin.buffer.read()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> NoReturn:
    """Run the replica that the standard input describes."""
    ignore_signals()
    spec = msgspec.json.decode(sys.stdin.buffer.readline(), type=ReplicaSpec)
    threading.Thread(target=_end_with_the_owner, name="owner", daemon=True).start()
    bind(spec.cores, spec.numa_node)
    print(f"replica {spec.index}: process {os.getpid()}\n", end="", flush=True)  # one write: replicas share engine.log
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(spec))
    zmq.Context.instance().term()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
