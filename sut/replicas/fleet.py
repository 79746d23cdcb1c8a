"""The replicas of a leg as one engine: routes queries to them, and takes their answers."""

import asyncio
import dataclasses
import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from runs.environment import boot_id
from runs.errors import ExecutionError, SetupError, error_of
from sut.engine import EngineLimits, EngineReport, Observed, Request
from sut.loadgen_sut import int32_ids
from sut.open_files import allow_open_files
from sut.recorder import Lateness
from sut.replicas.line import KeyPair, LegSocket, Line
from sut.replicas.member import Host, Member
from sut.replicas.replica import PULSE_MARK
from sut.replicas.replica_messages import (
    Answer,
    Observe,
    Outcomes,
    Pulse,
    Query,
    Ready,
    ReplicaSpec,
    Seen,
    Stop,
    Work,
    encode,
    read_for_leg,
)
from sut.replicas.routing import Routing

FILES_A_REPLICA = 4  # of the leg's process: two connections, a pipe, and one in passing
START_LOOK_S = 0.2
STOP_TIMEOUT_S = 10.0
STRANGER_LOOK_S = 1.0
STRANGERS = "refused_connections"  # in `observed` of the manifest
# What may differ from process to process: the share of the machine that each was given, what only one was shown.
_OF_ITS_OWN = ("environment", "probes")


@dataclass(frozen=True)
class Start:
    """How replicas are brought up."""

    specs: list[ReplicaSpec]  # one a replica, without address and keys
    launch: Callable[[list[ReplicaSpec]], list[Host]]  # starts the replicas' processes; called once, on the loop
    listen_on: str = "127.0.0.1"  # the leg's address that the replicas can reach


class Fleet:
    """An `Engine` of several.

    Args:
        start: how they are brought up.
        stall_timeout_s: how long an open query may wait at a replica with nothing moving.
        look_s: see `Line`.
    """

    def __init__(self, start: Start, stall_timeout_s: float, look_s: float = 0.0) -> None:
        self._start = start
        self._look_s = look_s
        self._routing = Routing(len(start.specs))
        self._stall_timeout_s = stall_timeout_s
        self._prompts: dict[int, bytes] = {}  # by sample: int32 ids as they travel
        self._sending: list[Member] = []  # those with queries in their outbox
        self._next_tag = 0
        self._failure: BaseException | None = None
        self._told_late = Lateness()  # from what a replica heard on a wire to LoadGen
        self.members: list[Member] = []

    async def start(self) -> EngineReport:
        """Raises:
        HarnessError: a replica's own, naming it.
        SetupError: a replica ended without a word, is another engine than the first, or there are too many.
        """
        count = len(self._start.specs)
        allow_open_files(FILES_A_REPLICA * count, f"{count} replicas", "ask for fewer --replicas")
        keys = [KeyPair.new() for _ in self._start.specs]
        self._socket = LegSocket(self._start.listen_on, {pair.public for pair in keys})
        self._line = Line(self._socket.socket, self._receive, look_s=self._look_s)
        self._watch_strangers()
        for spec, pair in zip(self._start.specs, keys, strict=True):
            spec.address, spec.leg_key = self._socket.address, self._socket.keys.public
            spec.public_key, spec.secret_key = pair.public, pair.secret
        hosts = self._start.launch(self._start.specs)
        self.members = [Member(index, host, self._stall_timeout_s) for index, host in enumerate(hosts)]
        while not all(member.ready for member in self.members):
            if self._failure is not None:
                raise self._failure
            for member in self.members:
                how = member.host.ended()
                if how is not None:
                    await asyncio.sleep(START_LOOK_S)  # its last words may be on the way
                    raise self._failure or SetupError(
                        f"{member.where} ended before it was ready, {how}", "see engine.log"
                    )
            await asyncio.sleep(START_LOOK_S)
        return self._report()

    def _report(self) -> EngineReport:
        ready = [member.ready for member in self.members if member.ready is not None]
        first = ready[0]
        for member, other in zip(self.members, ready, strict=True):
            difference = disagreement(first, other)
            if difference:
                raise SetupError(
                    f"{member.where} is not what {self.members[0].where} is: {difference}",
                    "give all replicas the same model, versions and options",
                )
        limits = first.report.limits
        return dataclasses.replace(
            first.report,
            limits=EngineLimits(
                queries=limits.queries and limits.queries * len(ready),
                step_tokens=limits.step_tokens and limits.step_tokens * len(ready),
            ),
        )

    # The way of a query ---------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        tag, self._next_tag = self._next_tag, self._next_tag + 1
        member = self.members[self._routing.choose(tag)]
        request.replica = member.index
        member.open[tag] = request
        member.queries += request.seq >= 0
        if not member.outbox:
            if not self._sending:
                asyncio.get_running_loop().call_soon(self._send)  # behind the other queries of this turn
            self._sending.append(member)
        index = request.sample_index
        prompt = self._prompt(index, request.prompt_ids)
        member.outbox.append(Query(tag, request.seq, index, request.priority, request.issue_ns, prompt))

    def _prompt(self, index: int, ids: list[int]) -> bytes:
        """The ids as they travel; kept for a sample of the library, which is issued again."""
        prompt = self._prompts.get(index)
        if prompt is None:
            prompt = int32_ids(ids).tobytes()
            if index >= 0:
                self._prompts[index] = prompt
        return prompt

    def _send(self) -> None:
        sending, self._sending = self._sending, []
        for member in sending:
            queries, member.outbox = member.outbox, []
            self._line.send(member.name, encode(Work(queries)))

    def _receive(self, frames: list[bytes]) -> None:
        member = self.members[int(frames[0].removesuffix(PULSE_MARK))]
        message = read_for_leg(frames[-1])
        if isinstance(message, Outcomes):
            self._outcomes(member, message)
        elif isinstance(message, Pulse):
            member.beat(message)
        elif isinstance(message, Ready):
            member.ready = message
        elif isinstance(message, Seen):
            member.observed = message.observed
        else:
            self._failure = self._failure or error_of(message.error, member.where)

    def _outcomes(self, member: Member, outcomes: Outcomes) -> None:
        member.messages += 1
        for tag, token_id, heard_ns in outcomes.first_tokens:
            request = member.open.get(tag)
            if request is None:
                return self._unknown(member)
            self._routing.first_token(member.index, tag)
            request.sink.first_token(request, token_id)
            self._told(request, heard_ns)
        for answer in outcomes.answers:
            request = member.open.pop(answer.tag, None)
            if request is None:
                return self._unknown(member)
            self._answered(member, request, answer)
        return None

    def _answered(self, member: Member, request: Request, answer: Answer) -> None:
        self._routing.answered(member.index, answer.tag)
        member.cached_tokens += answer.cached_tokens
        request.sink.complete(request, array("i", answer.ids), answer.finish_reason, answer.cached_tokens)
        self._told(request, answer.heard_ns)

    def _told(self, request: Request, heard_ns: int) -> None:
        if heard_ns and request.seq >= 0:
            self._told_late.add(time.time_ns() - heard_ns)

    def _unknown(self, member: Member) -> None:
        self._failure = ExecutionError(
            f"{member.where} answered a query that is not open there, or answered it twice", "see engine.log"
        )

    # Its life -----------------------------------------------------------------------------------------------------

    def check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure
        ended = {member.where: how for member in self.members if (how := member.host.ended()) is not None}
        if ended:
            raise ExecutionError(f"{', '.join(ended)} ended, {next(iter(ended.values()))}", "see engine.log")
        for member in self.members:
            member.look()

    def activity(self) -> int:
        return sum(member.messages + member.pulse.activity for member in self.members)

    def generated_tokens(self) -> int | None:
        counts = [member.pulse.generated_tokens for member in self.members]
        return None if None in counts else sum(count or 0 for count in counts)

    async def observed(self) -> Observed:
        for member in self.members:
            self._line.send(member.name, encode(Observe()))
        seen = [await self._observed(member) for member in self.members]
        return Observed(
            facts=self._facts([one.facts for one in seen]),
            unofficial_reasons=_once(reason for one in seen for reason in one.unofficial_reasons),
            notes=_once(note for one in seen for note in one.notes),
        )

    def _facts(self, seen: list[dict[str, Any]]) -> dict[str, Any]:
        if not any(seen):
            return {}
        late = self._told_late.facts()
        return {"replicas": seen} | ({"read_to_loadgen": late} if late["count"] else {})

    async def _observed(self, member: Member) -> Observed:
        while member.observed is None:
            self.check_alive()
            await asyncio.sleep(START_LOOK_S)
        return member.observed

    def record(self) -> list[dict[str, Any]]:
        """What each replica is and did, for the manifest."""
        return [member.record() for member in self.members]

    def pids_here(self) -> list[int]:
        """Processes of replicas on this machine, whoever started them."""
        abouts = [member.ready.about for member in self.members if member.ready is not None]
        return [about.pid for about in abouts if about.boot_id == boot_id()]

    @property
    def strangers(self) -> int:
        """Connections that were refused."""
        return self._socket.strangers

    def _watch_strangers(self) -> None:
        found = self._socket.count_strangers()
        if found and self._socket.strangers == found:  # the first; it may have tried several times by now
            print(f"a stranger tried to connect to {self._socket.address} and was refused", flush=True)
        self._stranger_look = asyncio.get_running_loop().call_later(STRANGER_LOOK_S, self._watch_strangers)

    async def stop(self) -> None:
        for member in self.members:
            self._line.send(member.name, encode(Stop()))
        end_s = asyncio.get_running_loop().time() + STOP_TIMEOUT_S
        while asyncio.get_running_loop().time() < end_s:
            if all(member.host.ended() is not None for member in self.members):
                break
            await asyncio.sleep(0.05)
        for member in self.members:
            member.host.end()
        self._stranger_look.cancel()
        self._line.close()
        self._socket.stop()


def _once(sentences: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(sentences))


def disagreement(first: Ready, other: Ready) -> str | None:
    """The first thing in which two replicas differ, in words; None for two of a kind."""
    for what, one, another in _compared(first, other):
        if one != another:
            if not (isinstance(one, dict) and isinstance(another, dict)):
                return f"{what}: {another!r} instead of {one!r}"
            name = next(key for key in {**one, **another} if one.get(key) != another.get(key))
            return f"{what}: {name} is {another.get(name)!r} instead of {one.get(name)!r}"
    return None


def _compared(first: Ready, other: Ready) -> list[tuple[str, Any, Any]]:
    return [
        ("weights", first.about.weights_sha256, other.about.weights_sha256),
        ("software", first.about.software, other.about.software),
        ("engine", first.report.name, other.report.name),
        ("versions", first.report.versions, other.report.versions),
        ("options in force", first.report.in_force, other.report.in_force),
        ("vocabulary", first.report.vocab_size, other.report.vocab_size),
        ("longest sequence", first.report.max_model_len, other.report.max_model_len),
        ("configuration", _shared(first.report.configuration), _shared(other.report.configuration)),
    ]


def _shared(configuration: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in configuration.items() if name not in _OF_ITS_OWN}
