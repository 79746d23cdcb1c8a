"""The process of a server that a run starts with --serve, and requests for the facts, models and counters of any
server.
"""

import asyncio
import contextlib
import dataclasses
import os
import shlex
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from runs.errors import ExecutionError, HarnessError, InputError, SetupError
from runs.record.engines.engine_stages import end_of
from sut.http.address import Access, ServerAddress
from sut.http.dialects import DIALECTS, Dialect
from sut.http.events import Name
from sut.http.refusals import is_success, response_problem

RESPONSE_TIMEOUT_S = 10.0
MAX_RESPONSE_BYTES = 4 << 20
POLL_S = 0.5
STOP_TIMEOUT_S = 10.0
LAST_LINES = 3
LAST_BYTES = 64 * 1024  # size of the log's end that is searched for errors

# Names of the counters of prompt tokens taken from a cache, and of generated tokens. [each server's /metrics]
_CACHE_HITS = ("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total", "llamacpp:prompt_tokens_cached_total")
_GENERATED = ("vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total")
_CACHE_SETTINGS = ("block_size", "cache_dtype", "enable_prefix_caching", "kv_offloading_size", "sliding_window")
_INFO_PATHS = {"sglang": "/get_server_info", "llamacpp": "/props"}  # by owner; other servers have /version


@dataclass(frozen=True)
class Reply:
    """A complete HTTP response."""

    status: int
    content: bytes
    location: bytes = b""  # target of a redirect


async def ask(
    address: ServerAddress, access: Access, path: str, body: bytes = b"", timeout_s: float | None = None
) -> Reply:
    """GET one path, or POST a body to it, without redirects and without the environment's proxies.

    Args:
        timeout_s: Default: RESPONSE_TIMEOUT_S.

    Raises:
        InputError: If the address has an invalid host.
        SetupError: If no connection is possible, or the response is incomplete, too long or late.
    """
    import httpx  # importing it takes 0.1 s, and every command imports this module

    fix = "check that it is an HTTP server"
    verify = access.tls_context(address) or False  # False: not https, so there is no certificate
    url = address.url.removesuffix(address.path) + address.target(path)
    content, limit_s = b"", timeout_s or RESPONSE_TIMEOUT_S
    try:
        async with (
            asyncio.timeout(limit_s),
            httpx.AsyncClient(verify=verify, trust_env=False, timeout=None) as client,
            client.stream("POST" if body else "GET", url, content=body, headers=access.headers()) as response,
        ):
            async for part in response.aiter_raw():
                content += part
                if len(content) > MAX_RESPONSE_BYTES:
                    raise SetupError(
                        f"server {address.url}, {path}: the response is larger than {MAX_RESPONSE_BYTES >> 20} MiB", fix
                    )
    except TimeoutError as error:
        raise SetupError(
            f"server {address.url} did not respond to {path} within {limit_s:.0f} s",
            "start the server, or correct --api-server",
        ) from error
    except (httpx.InvalidURL, UnicodeError) as error:  # raised for an invalid host name
        raise InputError(f"--api-server {address.url}: {error}", "correct the address") from error
    except httpx.ConnectError as error:
        raise address.no_connection(error) from error
    except httpx.TransportError as error:
        raise SetupError(f"server {address.url}, {path}: the response is not a complete HTTP response", fix) from error
    return Reply(response.status_code, content, response.headers.get("location", "").encode())


Positive = Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]


class ModelCard(msgspec.Struct):
    """A server's entry for a model. [vLLM, SGLang, TensorRT-LLM: ModelCard; llama.cpp: /v1/models]"""

    id: Name
    owned_by: Name | None = None
    root: Name | None = None
    max_model_len: Positive | None = None


class _ModelList(msgspec.Struct):
    data: list[ModelCard]


class _ServerInfo(msgspec.Struct):
    version: Name | None = None
    build_info: Name | None = None  # llama.cpp's version
    total_slots: Positive | None = None  # llama.cpp: number of requests at a time
    disable_radix_cache: bool | None = None  # SGLang's prefix caching


_Form = TypeVar("_Form")


def _decoded(reply: Reply, form: type[_Form]) -> _Form | None:
    """Decode JSON of a form; return None if the content has another form."""
    try:
        return msgspec.json.decode(reply.content, type=form)
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class Counters:
    """A server's counters since its start, summed over labels; None for a missing counter."""

    cache_hits: float | None = None
    generated: float | None = None
    cache_configuration: dict[str, str] = field(default_factory=dict)  # vLLM's


@dataclass(frozen=True)
class ServerFacts:
    """The facts that a server reports about itself; None or empty for missing parts."""

    owner: str | None
    version: str | None
    model: str
    model_root: str | None
    max_model_len: int | None
    prefix_caching: bool | None
    slots: int | None  # llama.cpp: number of requests at a time
    cache_configuration: dict[str, str]
    counters: Counters

    def lasting(self) -> dict[str, Any]:
        """The facts that do not change while a server runs; identical servers have equal facts."""
        facts = dataclasses.asdict(self)
        del facts["counters"]
        return facts


async def learn(address: ServerAddress, access: Access, model_name: str | None) -> ServerFacts:
    """Request all facts that a server reports.

    Raises:
        SetupError, InputError: If `read_card` raises them.
    """
    card = await read_card(address, access, model_name)
    path = _INFO_PATHS.get(card.owned_by or "", "/version")
    info = _decoded(await ask(address, access, path), _ServerInfo) or _ServerInfo()
    counters = await read_counters(address, access)
    caching: bool | None = None
    if (enabled := counters.cache_configuration.get("enable_prefix_caching")) is not None:
        caching = enabled == "True"
    elif info.disable_radix_cache is not None:
        caching = not info.disable_radix_cache
    return ServerFacts(
        owner=card.owned_by,
        version=info.version or info.build_info,
        model=card.id,
        model_root=card.root,
        max_model_len=card.max_model_len,
        prefix_caching=caching,
        slots=info.total_slots,
        cache_configuration=counters.cache_configuration,
        counters=counters,
    )


async def read_card(address: ServerAddress, access: Access, model_name: str | None) -> ModelCard:
    """Return the server's entry for the model of this name, or for its only model.

    Raises:
        SetupError: If the server does not respond, refuses, or lists no models.
        InputError: If the server has no model of this name, or has multiple models and no name is given.
    """
    path = address.models_path
    reply = await ask(address, access, path)
    own_address = "give the server's own address, http://HOST:PORT"
    is_listed = is_success(reply.status)
    if not is_listed and reply.status not in (401, 403) and model_name is not None:
        return ModelCard(model_name)  # a server that cannot list its models
    if not is_listed:
        reason = response_problem(reply.status, reply.content.strip().split(b"\n")[0], reply.location)
        fix = f"{own_address}, or --api-model-name MODEL"
        if reply.location:
            fix = address.fix_of_redirect(path, reply.location)
        elif reply.status in (401, 403):
            fix = access.key_fix
        raise SetupError(f"server {address.url}, GET {path}: {access.hidden(reason)}", fix)
    listed = _decoded(reply, _ModelList)
    if listed is None or not listed.data:
        raise SetupError(f"server {address.url} lists no models at {path}", own_address)
    names = [card.id for card in listed.data]
    if model_name is None and len(names) > 1:
        raise InputError(
            f"server {address.url} serves multiple models: {', '.join(names[:5])}", "choose one with --api-model-name"
        )
    if model_name is not None and model_name not in names:
        raise InputError(
            f"--api-model-name {model_name}: server {address.url} serves {', '.join(names[:5])}", "give one of these"
        )
    return listed.data[0 if model_name is None else names.index(model_name)]


async def choose_dialect(address: ServerAddress, access: Access, owner: str | None, name: str | None) -> Dialect:
    """Return the dialect of all requests, with the route of the URL.

    The name decides, then the route of the URL, then the owner of the server. Without these, it is the first dialect of
    text whose route the server has. A route is requested only if the user named it, or if the user named none.

    Raises:
        SetupError: If the server lacks the route.
    """
    owner_dialect = next((dialect for dialect in DIALECTS.values() if dialect.owner and dialect.owner == owner), None)
    possible = [DIALECTS[name]] if name is not None else address.dialects()
    is_named = name is not None or bool(address.route)
    if owner_dialect in possible:
        # vLLM's other route generates no text. If it exists, it rejects an empty body with this status; otherwise the
        # status is 403 or 404.
        by_tokens = DIALECTS["vllm-tokens"]
        has_other_route = owner == by_tokens.owner and not is_named
        if has_other_route and (await ask(address, access, by_tokens.path, b"{}")).status in (400, 422):
            return by_tokens
        possible = [owner_dialect]
    elif not is_named or any(dialect.sends_text for dialect in possible):
        possible = [dialect for dialect in possible if dialect.sends_text]
    for dialect in possible:
        chosen = dataclasses.replace(dialect, path=address.route or dialect.path)
        if not chosen.sends_text:
            return chosen
        if await _has_route(address, access, chosen.path):
            # These are the same in every dialect of the server.
            habits = owner_dialect or chosen
            return dataclasses.replace(
                chosen,
                renew_unused=habits.renew_unused,
                closes_after_a_stream=habits.closes_after_a_stream,
                counts_each_chunk=habits.counts_each_chunk,
            )
    if not is_named:
        raise SetupError(f"server {address.url} has no route of a supported dialect", "correct the address")
    raise SetupError(
        f"server {address.url} has no {address.route or possible[0].path} (dialect {possible[0].name})",
        f"give --api-server {address.url}{address.query} without a route" if address.route else "remove --api-dialect",
    )


async def _has_route(address: ServerAddress, access: Access, path: str) -> bool:
    """Return whether a server has a POST route, by its status for a body that is not JSON."""
    return (await ask(address, access, path, b"{")).status not in (404, 405)


async def read_counters(address: ServerAddress, access: Access) -> Counters:
    """Read the counters in the server's metrics.

    Raises:
        SetupError: If the server does not respond.
    """
    reply = await ask(address, access, "/metrics")
    if not is_success(reply.status):
        return Counters()
    sums: defaultdict[str, float] = defaultdict(float)
    configuration: dict[str, str] = {}
    try:
        for family in text_string_to_metric_families(reply.content.decode("utf-8", "replace")):
            for sample in family.samples:
                sums[sample.name] += sample.value
                if sample.name == "vllm:cache_config_info":
                    configuration = {name: sample.labels[name] for name in _CACHE_SETTINGS if name in sample.labels}
    except (ValueError, IndexError):  # TensorRT-LLM's metrics are JSON
        return Counters()
    counts = {name: value for name, value in sums.items() if 0 <= value < 1 << 63}  # drops NaN and impossible counts
    hits, generated = (next((counts[n] for n in names if n in counts), None) for names in (_CACHE_HITS, _GENERATED))
    return Counters(hits, generated, configuration)


def words(command: str) -> list[str]:
    """Split a `--serve` command into the program and its arguments.

    Raises:
        InputError: If the command is empty or has an open quotation mark.
    """
    try:
        parsed = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--serve {command!r}: {error}", "use the quoting rules of a shell") from error
    if not parsed:
        raise InputError("--serve: the command is empty", 'write, for example, --serve "vllm serve MODEL"')
    return parsed


@dataclass(eq=False)
class ServedServer:
    """The process of a `--serve` command, in the run's process group, so that it ends with the run."""

    command: str  # split into words; no shell runs it
    log: Path  # receives the output
    address: ServerAddress  # the server's address
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    async def start(self, access: Access, *, owner: bool) -> None:
        """Start the server and wait until it responds; the run's time limit bounds the wait.

        Args:
            owner: whether this client starts the server; the server's other clients only wait.

        Raises:
            SetupError: If another server uses the address, or the process ends.
        """
        if owner:
            if await self._responses(access):
                raise SetupError(
                    f"--serve: another server already uses {self.address.url}",
                    "stop that server, or remove --serve to use it",
                )
            self._launch()
        while not await self._responses(access):
            try:
                self.check()
            except ExecutionError as error:
                raise SetupError(error.message, error.fix) from error
            await asyncio.sleep(POLL_S)

    def _launch(self) -> None:
        command = words(self.command)
        # Programs of this Python environment take precedence.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        try:
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "PATH": path},
                )
        except OSError as error:
            raise SetupError(f"--serve {command[0]}: {error.strerror}", "give an existing program") from error

    async def _responses(self, access: Access) -> bool:
        try:
            return is_success((await ask(self.address, access, self.address.models_path)).status)
        except HarnessError:
            return False

    def check(self) -> None:
        """Check that the process runs."""
        code = self._process.poll() if self._process is not None else None
        if code is None:
            return
        last = ["no output"]
        with contextlib.suppress(OSError):
            lines = end_of(self.log, LAST_BYTES).split("\n")
            last = [line.strip() for line in lines if line.strip()][-LAST_LINES:]
        raise ExecutionError(
            f"the server ended with status {code}: {' / '.join(last)}", f"read the error in {self.log.name}"
        )

    async def stop(self) -> None:
        """End the process: SIGTERM, then SIGKILL."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
