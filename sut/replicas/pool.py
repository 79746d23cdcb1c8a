"""The replicas of a run as one engine that routes queries, receives responses and supervises the replicas."""

import asyncio
import dataclasses
import operator
import time
from array import array
from typing import Any

from runs.ab.twins import system_of
from runs.errors import ExecutionError, SetupError, error_of
from runs.machine.environment import boot_id
from runs.record.fingerprint import Facts, describe_differences, differences
from runs.record.manifest import ReplicaRecord, ReplicasPlan, RunPlan
from sut.engine import Engine, EngineLimits, EngineObserved, EngineReport, Request
from sut.event_loop import allow_open_files
from sut.loadgen_sut import int32_ids
from sut.replicas.cluster import ClusterProcesses
from sut.replicas.kept_engine import KeptProcesses
from sut.replicas.messages import (
    Heartbeat,
    Observations,
    Query,
    QueryBatch,
    Ready,
    ResultBatch,
    encode_message,
    read_for_run,
)
from sut.replicas.processes import LocalProcesses, Processes, spec_of
from sut.replicas.transport import GATHERED_POLL_S, HEARTBEAT_MARK, KeyPair, RunSocket, Transport
from sut.request_writer import Lateness
from sut.watchdog import WORKING_FACTOR, WORKING_SHARE, Watchdog

FILES_A_REPLICA = 4  # open files of the run's process: two connections, a pipe, one temporary file
POLL_S = 0.2
STOP_TIMEOUT_S = 10.0
CONNECTIONS_POLL_S = 1.0
SILENT_S = 12.0  # limit without a heartbeat; a replica sends two per second
PREFILL_WEIGHT = 8  # AMD's harness for MLPerf Inference v6.1 uses 8
# Parts of an engine's configuration that may differ between replicas: their share of the machine, their probes.
_MAY_DIFFER = ("environment", "probes")


class ReplicaHandle:
    """One replica, as its run sees it: its facts, its open queries and its state.

    Args:
        index: number of the replica, from 0.
        stall_timeout_s: limit for a time with open queries and without progress.
    """

    def __init__(self, index: int, processes: Processes, stall_timeout_s: float) -> None:
        self.index = index
        self._processes = processes
        self.name = str(index).encode()
        self.ready: Ready | None = None
        self.observed: EngineObserved | None = None
        self.open: dict[int, Request] = {}  # tag → open query
        self._prefilling: set[int] = set()  # tags of open queries without a first token
        self.weight = 0  # load: 1 per open query, and PREFILL_WEIGHT more until its first token
        self.last_tag = -1  # tag of its latest query
        self.outbox: list[Query] = []  # queries of this turn of the loop
        self.messages = 0
        self.queries = 0
        self.heartbeat = Heartbeat(0, None, 0.0)
        self._heartbeats = 0
        self._limit_s = stall_timeout_s
        self._silence = Watchdog(SILENT_S, 0)
        self._stall = Watchdog(stall_timeout_s, 0)

    @property
    def where(self) -> str:
        return f"replica {self.index} ({self._processes.where(self.index)})"

    def ended(self) -> str | None:
        return self._processes.ended(self.index)

    def take(self, tag: int, request: Request) -> None:
        """Record a query that is sent to the replica."""
        self.open[tag] = request
        self._prefilling.add(tag)
        self.weight += 1 + PREFILL_WEIGHT
        self.last_tag = tag

    def first_token(self, tag: int) -> Request:
        """Return the query that showed its first token.

        Raises:
            ExecutionError: If the query is not open.
        """
        if tag in self._prefilling:
            self._prefilling.remove(tag)
            self.weight -= PREFILL_WEIGHT
        request = self.open.get(tag)
        if request is None:
            text = f"{self.where} returned two responses to one query, or a response to a query that it did not receive"
            raise ExecutionError(text, "read engine.log in the run directory")
        return request

    def answered(self, tag: int) -> Request:
        """Close the query of a response, and return it.

        Raises:
            ExecutionError: If the query is not open.
        """
        request = self.first_token(tag)
        self.weight -= 1
        del self.open[tag]
        return request

    def beat(self, heartbeat: Heartbeat) -> None:
        self.heartbeat = heartbeat
        self._heartbeats += 1

    def poll(self) -> None:
        """Check that the replica makes progress; call it at least every second, from one thread.

        Raises:
            ExecutionError: If its heartbeat is missing, or it has stalled.
        """
        silent_s = self._silence.stalled_for(True, self._heartbeats)
        if silent_s is not None:
            raise ExecutionError(
                f"{self.where} sent no heartbeat for {silent_s:.0f} s",
                "check whether the replica was stopped or its host is unreachable; read engine.log in the run "
                "directory",
            )
        if not self._stall.waited_s:
            self._cpu_before_s = self.heartbeat.cpu_s
        stalled_s = self._stall.stalled_for(bool(self.open), self.messages, self.heartbeat.activity)
        # Before the timed run, the engine may compile kernels.
        limit_s = self._limit_s if self.queries else WORKING_FACTOR * self._limit_s
        if stalled_s is not None and stalled_s > limit_s and not self._computes(stalled_s):
            raise ExecutionError(
                f"{self.where} stalled: no progress for {stalled_s:.0f} s, {len(self.open)} queries open",
                "read engine.log; if the engine is slow but working, raise --stall-timeout-s",
            )

    def _computes(self, stalled_s: float) -> bool:
        """Return whether the replica may be in one long step; a longer wait counts as an endless loop."""
        on_cpu = self.ready is not None and self.ready.report.configuration.get("device") == "cpu"
        share = (self.heartbeat.cpu_s - self._cpu_before_s) / stalled_s
        return on_cpu and share > WORKING_SHARE and stalled_s < WORKING_FACTOR * self._limit_s

    def record(self) -> ReplicaRecord:
        """Return the facts of the replica for the manifest."""
        assert self.ready is not None
        return ReplicaRecord.model_validate({**self.ready.record, "cpu_s": self.heartbeat.cpu_s})


_LOAD = operator.attrgetter("weight", "last_tag")


def lightest(handles: list[ReplicaHandle]) -> ReplicaHandle:
    """Return the replica with the lowest weight for the next query; among equals, the replica whose latest query is
    oldest.

    Waiting prompts weigh more, because they delay all later queries. In Offline, without first tokens, a query keeps
    its full weight until the response.
    """
    return min(handles, key=_LOAD)


class ReplicaPool(Engine):
    """An `Engine` that consists of multiple replicas.

    Args:
        plan: plan of a run with replicas.
    """

    def __init__(self, plan: RunPlan) -> None:
        assert plan.replicas is not None
        self._plan = plan
        self._places, self._kept, self._twins = plan.replicas.places, plan.replicas.kept, plan.replicas.twins
        self._processes = _processes(plan.replicas)
        self._prompts: dict[int, bytes] = {}  # sample → prompt as int32 bytes
        self._sending: list[ReplicaHandle] = []  # replicas with queries in their outbox
        self._next_tag = 0
        self._failure: BaseException | None = None
        self._lateness = Lateness()  # from the read of a replica's server to the call of LoadGen
        self.handles: list[ReplicaHandle] = []

    async def start(self) -> EngineReport:
        """Start all replicas.

        Raises:
            HarnessError: If a replica reports an error.
            SetupError: If a replica ended, differs from the first, or the system allows too few open files.
        """
        plan, count = self._plan, len(self._places)
        allow_open_files(FILES_A_REPLICA * count, f"{count} replicas", "lower --replicas")
        keys = [KeyPair.new() for _ in self._places]
        self._socket = RunSocket(self._processes.listen_on, {pair.public for pair in keys})
        poll_s = 0.0 if plan.reports_first_tokens else GATHERED_POLL_S
        self._transport = Transport(self._socket.socket, self._receive, poll_s=poll_s)
        self._count_connections()
        self._processes.start([
            spec_of(
                plan, index, place, kept=self._kept is not None, address=self._socket.address,
                run_key=self._socket.keys.public, public_key=pair.public, secret_key=pair.secret,
            )
            for index, (place, pair) in enumerate(zip(self._places, keys, strict=True))
        ])  # fmt: skip
        self.handles = [ReplicaHandle(index, self._processes, plan.stall_timeout_s) for index in range(count)]
        while not all(handle.ready for handle in self.handles):
            self._processes.copy_log()
            if self._failure is not None:
                raise self._failure
            for handle in self.handles:
                how = handle.ended()
                if how is not None:
                    await asyncio.sleep(POLL_S)  # time for its last message to arrive
                    text = f"{handle.where} ended before it was ready, {how}"
                    raise self._failure or SetupError(text, "read engine.log in the run directory")
            await asyncio.sleep(POLL_S)
        self._processes.copy_log()
        return self._report()

    def _report(self) -> EngineReport:
        ready = [handle.ready for handle in self.handles if handle.ready is not None]
        first = ready[0]
        for handle, facts in zip(self.handles, ready, strict=True):
            places = f"in {self.handles[0].where}", f"in {handle.where}"
            if self._twins is not None:  # the replicas are compared, so they may differ
                break
            if unequal := describe_differences(differences(_identity(first), _identity(facts)), *places):
                raise SetupError(
                    f"the replicas differ: {unequal[0]}", "give all replicas the same model, versions and options"
                )
        limits = first.report.limits
        total = EngineLimits(
            queries=limits.queries and limits.queries * len(ready),
            step_tokens=limits.step_tokens and limits.step_tokens * len(ready),
        )
        return dataclasses.replace(first.report, limits=total)

    # Queries ---------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        tag, self._next_tag = self._next_tag, self._next_tag + 1
        handle = self._choose(request)
        request.replica = handle.index
        handle.take(tag, request)
        handle.queries += request.seq >= 0
        if not handle.outbox:
            if not self._sending:
                asyncio.get_running_loop().call_soon(self._send)  # behind the other queries of this turn
            self._sending.append(handle)
        index = request.sample_index
        prompt = self._prompt(index, request.prompt_ids)
        row = index if index < 0 else self._plan.row_of(index)  # A kept engine knows a sample by its row in all runs.
        handle.outbox.append(
            Query(tag, request.seq, row, request.priority, request.issue_ns, prompt, request.output_lengths)
        )

    def _choose(self, request: Request) -> ReplicaHandle:
        if self._twins is None or request.seq < 0:
            return lightest(self.handles)
        return self.handles[system_of(self._twins, len(self.handles), request.seq)]

    def _prompt(self, index: int, ids: list[int]) -> bytes:
        """Return a prompt as bytes. They are cached by sample, because LoadGen issues samples repeatedly."""
        prompt = self._prompts.get(index)
        if prompt is None:
            prompt = int32_ids(ids).tobytes()
            if index >= 0:
                self._prompts[index] = prompt
        return prompt

    def _send(self) -> None:
        sending, self._sending = self._sending, []
        for handle in sending:
            queries, handle.outbox = handle.outbox, []
            self._transport.send(handle.name, encode_message(QueryBatch(queries)))

    def _receive(self, frames: list[bytes]) -> None:
        handle = self.handles[int(frames[0].removesuffix(HEARTBEAT_MARK))]
        message = read_for_run(frames[-1])
        if isinstance(message, ResultBatch):
            try:
                self._take_results(handle, message)
            except ExecutionError as error:
                self._failure = self._failure or error
        elif isinstance(message, Heartbeat):
            handle.beat(message)
        elif isinstance(message, Ready):
            handle.ready = message
        elif isinstance(message, Observations):
            handle.observed = message.observed
        else:
            self._failure = self._failure or error_of(message.error, handle.where)

    def _take_results(self, handle: ReplicaHandle, results: ResultBatch) -> None:
        handle.messages += 1
        for tag, token_id, heard_ns in results.first_tokens:
            request = handle.first_token(tag)
            request.sink.first_token(request, token_id)
            self._add_lateness(request, heard_ns)
        for response in results.responses:
            request = handle.answered(response.tag)
            if response.token_gaps_ns is not None:
                request.token_gaps_ns = array("q", response.token_gaps_ns)
            request.sink.complete(request, array("i", response.ids), response.finish_reason, response.cached_tokens)
            self._add_lateness(request, response.heard_ns)

    def _add_lateness(self, request: Request, heard_ns: int) -> None:
        if heard_ns and request.seq >= 0:
            self._lateness.add(time.time_ns() - heard_ns)

    # Supervision -----------------------------------------------------------------------------------------------------

    def check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure
        ended = {handle.where: how for handle in self.handles if (how := handle.ended()) is not None}
        if ended:
            raise ExecutionError(
                f"{', '.join(ended)} ended, {next(iter(ended.values()))}", "read engine.log in the run directory"
            )
        for handle in self.handles:
            handle.poll()

    def activity(self) -> int:
        return sum(handle.messages + handle.heartbeat.activity for handle in self.handles)

    def generated_tokens(self) -> int | None:
        counts = [handle.heartbeat.generated_tokens for handle in self.handles]
        return None if None in counts else sum(count or 0 for count in counts)

    async def observed(self) -> EngineObserved:
        for handle in self.handles:
            self._transport.send(handle.name, encode_message("observe"))
        seen: list[EngineObserved] = []
        for handle in self.handles:
            while handle.observed is None:
                self.check_alive()
                await asyncio.sleep(POLL_S)
            seen.append(handle.observed)
        late = self._lateness.facts()
        return EngineObserved(
            engines=[engine for observed in seen for engine in observed.engines],
            read_to_loadgen=late if late["count"] else None,
            unofficial_reasons=list(
                dict.fromkeys(reason for observed in seen for reason in observed.unofficial_reasons)
            ),
            notes=list(dict.fromkeys(note for observed in seen for note in observed.notes)),
        )

    def record(self) -> list[ReplicaRecord]:
        """Return the facts of each replica for the manifest."""
        return [handle.record() for handle in self.handles]

    def pids_here(self) -> list[int]:
        """Return the processes of replicas on this machine, whether the run or Ray started them."""
        ready = [handle.ready for handle in self.handles if handle.ready is not None]
        return [message.record["pid"] for message in ready if message.boot_id == boot_id()]

    def _count_connections(self) -> None:
        self.rejected_connections = self._socket.count_rejected()
        loop = asyncio.get_running_loop()
        self._connections_timer = loop.call_later(CONNECTIONS_POLL_S, self._count_connections)

    async def stop(self) -> None:
        for handle in self.handles:
            self._transport.send(handle.name, encode_message("stop"))
        end_s = asyncio.get_running_loop().time() + STOP_TIMEOUT_S
        while asyncio.get_running_loop().time() < end_s:
            if all(handle.ended() is not None for handle in self.handles):
                break
            await asyncio.sleep(0.05)
        self._processes.end()
        self._connections_timer.cancel()
        self._transport.close()
        self._socket.stop()


def _processes(plan: ReplicasPlan) -> Processes:
    if plan.cluster is not None:
        return ClusterProcesses(plan.cluster, plan.places)
    return LocalProcesses() if plan.kept is None else KeptProcesses(plan.kept)


def _identity(ready: Ready) -> Facts:
    """Return the facts that must be equal in all replicas."""
    report = ready.report
    parts: dict[str, dict[str, Any]] = {
        "weights": ready.record["weights_sha256"],
        "software": ready.software,
        "engine": {"name": report.name, "vocabulary": report.vocab_size, "longest sequence": report.max_model_len},
        "versions": report.versions,
        "configuration": {key: value for key, value in report.configuration.items() if key not in _MAY_DIFFER},
    }
    return {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
