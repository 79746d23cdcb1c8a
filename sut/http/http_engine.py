"""A server as the system under test, over HTTP: token IDs in, token IDs out; or text.

One engine is the client of one server, on one event loop. Multiple servers have multiple engines, each in its own
process; so does one server if one core is too slow for its client.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from runs.benchmark import SamplingPolicy
from runs.errors import ExecutionError, HarnessError, InputError, SetupError
from runs.wording import printable
from sut.engine import Engine, EngineLimits, EngineObserved, EngineReport, Request
from sut.http.address import Access, ServerAddress
from sut.http.client import Client
from sut.http.dialects import Dialect
from sut.http.exchange import FEW_RESPONSES, LEFT_OUT_SHARE
from sut.http.probes import NOT_CHECKED, PROBE_TOKENS, probe
from sut.http.server import ServedServer, ServerFacts, choose_dialect, learn, read_counters
from sut.http.text import Texts, notes_on_texts
from sut.http.tokenizer import BYTES, load_text_tokenizer

QUIET_S = 5.0  # after so long without progress, the client reads the server's counters
QUIET_POLL_S = 2.0


@dataclass(eq=False)
class EndpointEngine(Engine):
    url: str  # URL of the server
    sampling: SamplingPolicy  # all parameters are sent
    _: KW_ONLY
    streaming: bool  # True if LoadGen needs first tokens
    place: int = 0  # number among the server's clients; client 0 starts the server with --serve, and probes it
    clients: int = 1  # number of clients of this server
    dialect: str | None = None  # name of the server's API; None = detect it
    model_name: str | None = None  # name at the server; None if the server has one model
    access: Access = field(default_factory=Access)
    renamed: Mapping[str, str] = field(default_factory=dict)  # sampling parameter → its name at the server
    extra_fields: Mapping[str, Any] = field(default_factory=dict)  # fields that the user added to requests
    request_timeout_s: float | None = None  # maximum time of a request
    connections: int = 1024  # number of connections, and maximum number of concurrent requests
    probe_tokens: int = PROBE_TOKENS  # length of the prompts that are sent before the clock starts
    vocab_size: int | None = None  # IDs are below it; None if unknown
    model_path: str = ""  # tokenizer of the prompts
    omitted: tuple[str, ...] = ()  # fields that are not sent
    declared: dict[str, Any] | None = None  # declared facts that no request shows, for the manifest
    silence_s: float = 20.0  # shortest allowed pause in a stream
    times_count: bool = True  # True if LoadGen measures times; False in an accuracy run
    network_sut: bool = False  # True if the run is for the network division
    serve: str | None = None  # command that starts the server; None if the server runs already
    server_log: Path = Path("server.log")  # output of that command

    def __post_init__(self) -> None:
        self._address = ServerAddress.parse(self.url)
        self._served = ServedServer(self.serve, self.server_log, self._address) if self.serve else None
        self._is_here = False
        self._learned: ServerFacts | None = None
        self._client: Client | None = None
        self._lost: BaseException | None = None
        self._watching: asyncio.Task[None] | None = None
        self._generated = 0.0  # the server's count of generated tokens; 0 without a counter

    async def start(self) -> EngineReport:
        address, access = self._address, self.access
        self._is_here = await asyncio.to_thread(address.is_here)
        if self._served is not None:
            await self._served.start(access, owner=self.place == 0)
        learned = self._learned = await learn(address, access, self.model_name)
        dialect = await choose_dialect(address, access, learned.owner, self.dialect)
        dialect = replace(
            dialect,
            renamed={**dialect.renamed, **self.renamed},
            own_fields={**dialect.own_fields, **self.extra_fields},
        )
        texts = await self._texts(dialect)
        allowed = min(self.connections, learned.slots or self.connections)
        connections = -(-allowed // self.clients)
        self._client = client = Client(
            address,
            access,
            dialect,
            model=learned.model,
            sampling=self.sampling,
            streaming=self.streaming,
            connections=connections,
            silence_s=self.silence_s,
            times_count=self.times_count,
            texts=texts,
            omitted=self.omitted,
            request_timeout_s=self.request_timeout_s,
            server_log=self.server_log.name if self.serve else "",
            vocab_size=self.vocab_size,
            on_error=self._server_lost,
        )
        await client.open()
        # Only one client probes, because the responses of a server are reproducible only without concurrent requests.
        probed = await probe(client, self.probe_tokens) if self.place == 0 else None
        self._watching = asyncio.get_running_loop().create_task(self._watch())
        return self._report(learned, probed, dialect, connections)

    async def _texts(self, dialect: Dialect) -> Texts | None:
        """Return the tokenizer of the prompts, for a dialect of text.

        Raises:
            InputError: If an option contradicts the dialect, or the tokenizer is unusable.
        """
        counts = self.model_path != BYTES
        if not dialect.sends_text:
            if self.omitted:
                raise InputError(
                    f"--api-omit {self.omitted[0]}: dialect {dialect.name} sends every field", "remove --api-omit"
                )
            if not counts:
                raise InputError(
                    f"--model-path {BYTES}: server {self.url} takes token IDs (dialect {dialect.name})",
                    "give the server's model with --model-path",
                )
            return None
        if not counts and not self.times_count:
            raise InputError(
                f"--accuracy: the tokenizer of {self.url} is unknown, and responses are scored by their token IDs",
                "give the server's model with --model-path",
            )
        return Texts(await asyncio.to_thread(load_text_tokenizer, self.model_path), counts)

    def _report(
        self, learned: ServerFacts, probed: dict[str, Any] | None, dialect: Dialect, connections: int
    ) -> EngineReport:
        return EngineReport(
            name="endpoint",
            versions={learned.owner or "server": learned.version} if learned.version else {},
            configuration={
                "dialect": dialect.name,
                "connections": connections,
                "declared": self.declared,
                "told_by_the_server": learned.lasting(),
                "probes": probed,
                "not_asked_for": dialect.not_asked(self.sampling, self.omitted),
                "enable_prefix_caching": bool(learned.prefix_caching),
            },
            vocab_size=self.vocab_size,
            max_model_len=learned.max_model_len,
            limits=EngineLimits(queries=connections),
        )

    def submit(self, request: Request) -> None:
        assert self._client is not None, "submit before start"
        self._client.submit(request)

    def check_alive(self) -> None:
        if self._served is not None:
            self._served.check()
        if self._lost is not None:
            reason = self._lost.message if isinstance(self._lost, HarnessError) else str(self._lost)
            fix = f"read the error in {self.server_log.name}" if self.serve else "check that the server still runs"
            raise ExecutionError(f"lost the server: {reason}", fix)

    def activity(self) -> int:
        return (self._client.moved if self._client else 0) + int(self._generated)

    def _server_lost(self, error: BaseException) -> None:
        self._lost = self._lost or error

    async def _watch(self) -> None:
        """Read the server's counters while no IDs arrive; a busy server gets no such requests."""
        moved, moved_s = -1, 0.0
        while self._client is not None:
            if self._client.moved != moved:
                moved, moved_s = self._client.moved, time.monotonic()
            elif time.monotonic() - moved_s > QUIET_S:
                with contextlib.suppress(SetupError):  # the watchdog notices the missing progress
                    self._generated = (await read_counters(self._address, self.access)).generated or 0.0
            await asyncio.sleep(QUIET_POLL_S)

    def generated_tokens(self) -> int | None:
        return None if self._client is None else self._client.generated

    async def observed(self) -> EngineObserved:
        client, learned = self._client, self._learned
        assert client is not None, "observed before start, or after stop"
        assert learned is not None
        await client.all_ended()
        try:
            now = await read_counters(self._address, self.access)
        except SetupError as error:
            raise ExecutionError(error.message, error.fix) from error
        generated = _risen(learned.counters.generated, now.generated)
        reused = _risen(learned.counters.cache_hits, now.cache_hits)
        url, record = self._address.url, client.observed()
        record.on_this_machine = self._is_here
        record.counts_reuse = reused is not None or record.each_response_counts_reuse
        record.cached_tokens_by_metrics, record.tokens_by_metrics = reused, generated
        # Most servers reuse prompts across queries by default.
        reasons = []
        if learned.prefix_caching:
            reasons.append(f"server {url} reports that prefix caching is on")
        elif reused or record.cached_tokens:
            reasons.append(f"server {url} read {max(reused or 0, record.cached_tokens):,} prompt tokens from a cache")
        if client.texts is not None:
            reasons.append(f"server {url} sends text (dialect {client.dialect.name}); a submission needs token IDs")
        if self.network_sut and self._is_here:
            reasons.append(f"server {url} is on LoadGen's machine; the Network division requires two machines")
        notes = []
        if record.text is not None:
            notes.append(f"server {url} sends text: {', '.join(NOT_CHECKED)} are not checked")
            texts = notes_on_texts(record.text, record.answers, record.chunks, self.sampling)
            notes += [f"server {url}: {text}" for text in texts]
        elif max(record.answers_with_their_prompt, record.answers_with_their_id) < record.answers:
            notes.append(
                f"server {url} returns neither a request's ID nor its prompt: responses that a proxy exchanged would "
                "not be noticed"
            )
        if client.reasons_come_early:
            notes.append(
                f"server {url} sends a finish reason before the last text: a response ends at its requested number of "
                "tokens, or at [DONE]"
            )
        if record.first_tokens_with_others > max(FEW_RESPONSES, LEFT_OUT_SHARE * record.answers):
            notes.append(
                f"server {url}: {record.first_tokens_with_others} of {record.answers} first tokens arrived with "
                "later tokens: the server or a proxy held them back"
            )
        if not record.counts_reuse:
            notes.append(
                f"server {url} does not report how many prompt tokens it reads from a cache: only the audit "
                "output_caching can detect such a cache"
            )
        names = [name for name in (learned.model, learned.model_root) if name]
        if self.model_path != BYTES and not any(PurePath(name).name in self.model_path for name in names):
            notes.append(
                f"server {url} serves model {printable(', '.join(names))}, and the prompts were tokenized for "
                f"{self.model_path}: check that both are the same model"
            )
        if self.clients == 1 and client.texts is None and generated not in (None, client.generated):
            notes.append(
                f"server {url} reports {generated:,} generated tokens, but the client received {client.generated:,}; "
                "another client uses the server, or a proxy changes responses"
            )
        facts = record.model_dump()
        return EngineObserved([{"client": facts}], facts["read_to_loadgen"], reasons, notes)

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        client, self._client = self._client, None
        if client is not None:
            client.close()
        if self._served is not None:
            await self._served.stop()


def _risen(before: float | None, after: float | None) -> int | None:
    """Return the increase of a server's counter; None without a counter, or after a reset."""
    return None if after is None or after < (before or 0.0) else int(after - (before or 0.0))
