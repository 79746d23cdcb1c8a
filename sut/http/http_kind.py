"""A server as a kind of engine: its options, and the plan of a run from them."""

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from runs.errors import InputError
from runs.files.fields import AtLeastOne, Text, options_in, strictly
from runs.mistakes import Mistakes
from runs.record.engines.engine_records import EngineRecord
from sut.engine_kind import EngineKind, EnginePlan, ModelPart, RunFacts
from sut.http.dialects import DIALECTS, MAY_OMIT, MAY_RENAME, SENT_FIELDS, fix_of_field
from sut.http.secret_options import HEADER_VARIABLE, SECRET_FIELDS, body_fields

if TYPE_CHECKING:
    from runs.record.manifest import ReplicaPlace, RunPlan
    from sut.engine import Engine
    from sut.http.address import ServerAddress
    from sut.loadgen_sut import LoadgenSut

CONNECTIONS = 1024
# Connections in SingleStream: the next query is sent while the end of an earlier response is still arriving.
SINGLE_STREAM_CONNECTIONS = 16
CLIENT = "MLPERF_ENDPOINT_CLIENT"  # environment variable: number of a client process, and number of clients
_endpoint = options_in("endpoint", "Server as the engine")


class EndpointOptions(BaseModel):
    """Options of `--engine endpoint`."""

    model_config = ConfigDict(defer_build=True)

    api_server: str | None = _endpoint(
        "Address of the server: http://HOST:PORT or https://HOST:PORT. Separate the addresses of multiple equal "
        "servers with commas.",
        "URL[,URL…]",
    )
    api_model_name: str | None = _endpoint("Name of the model on the server. Default: the server's only model.", "NAME")
    api_dialect: str | None = _endpoint(
        f"API of the server: {', '.join(DIALECTS)}. Default: detected from the server.", "NAME"
    )
    api_omit: list[str] = _endpoint(
        f"Omit this field from requests, because the server refuses it: {', '.join(MAY_OMIT)}. Repeatable. Only for "
        "servers that return text.",
        "FIELD",
        [],
    )
    api_rename: dict[str, Any] = _endpoint(
        "Send a sampling parameter under another name, such as max_tokens=max_completion_tokens. Repeatable.",
        "PARAMETER=NAME",
        {},
    )
    extra_body: str | None = _endpoint(
        "Add the fields of a JSON object to the body of each request. No file contains the values. The run is not "
        "eligible for submission.",
        "JSON",
    )
    header: list[str] = _endpoint(
        "Send an HTTP header with each request. Repeatable. No file contains the value. With NAME alone, the "
        f"environment variable {HEADER_VARIABLE}NAME contains the value. The run is not eligible for submission.",
        "NAME=VALUE",
        [],
    )
    request_timeout: float | None = _endpoint(
        "Maximum time in seconds from sending a request to the end of its response. A later response ends the run. "
        "Default: no limit.",
        "S",
        gt=0,
        allow_inf_nan=False,
    )
    insecure: bool = _endpoint(
        "Accept any certificate of an https server, for tests. The run is not eligible for submission.", default=False
    )
    api_key_env: str | None = _endpoint(
        "Name of the environment variable that contains the API key of the server. The key is never written to a file.",
        "VAR",
    )
    api_ca: Path | None = _endpoint(
        "Certificate of the authority for an https server (PEM). Default: the authorities of the operating system.",
        "FILE",
    )
    api_connections: int | None = _endpoint(
        "Connections per server, which is also the maximum number of concurrent requests. The harness opens them "
        f"before the timed run. Default: {CONNECTIONS}; {SINGLE_STREAM_CONNECTIONS} in SingleStream.",
        "N",
        ge=1,
    )
    api_declaration: Path | None = _endpoint(
        "YAML file with facts of the server that the harness cannot detect (configs/endpoint-declaration.yaml).", "FILE"
    )
    network_sut: bool = _endpoint(
        "For the network division: build the name of the system from the names that the servers report "
        "(docs/servers.md).",
        default=False,
    )
    serve: list[str] = _endpoint(
        "Start the server with this command, and stop it at the end of the run. Its output is written to server.log. "
        "Repeatable (a list in YAML): one command per server of --api-server, in the same order.",
        "COMMAND",
        [],
    )

    @field_validator(*SECRET_FIELDS, mode="before")
    @classmethod
    def _reference(cls, value: object, info: ValidationInfo) -> object:
        return value if value is None else SECRET_FIELDS[str(info.field_name)](value)

    @field_validator("serve", "api_omit", mode="before")
    @classmethod
    def _one_command_or_several(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value


def _servers(options: EndpointOptions) -> "list[ServerAddress]":
    from sut.http.address import addresses

    if options.api_server is None:
        raise InputError("--engine endpoint: the server's address is missing", "give --api-server http://HOST:PORT")
    return addresses(options.api_server)


def _check_dialect(options: EndpointOptions, servers: "Sequence[ServerAddress]", mistakes: Mistakes) -> None:
    if options.api_dialect is None:
        return
    dialect = DIALECTS.get(options.api_dialect)
    if dialect is None:
        mistakes.add(f"--api-dialect {options.api_dialect}: unknown", f"use one of {', '.join(DIALECTS)}")
        return
    for server in servers:
        if dialect not in server.dialects():
            mistakes.add(
                f"--api-server {server.text}: dialect {dialect.name} has the path {dialect.path}",
                "give the server's address without a path, or remove --api-dialect",
            )


def _check_fields(options: EndpointOptions, mistakes: Mistakes) -> dict[str, Any]:
    """Check the fields of requests that the options change; return the added fields."""
    for name in options.api_omit:
        if name not in MAY_OMIT:
            fix = f"choose from {', '.join(MAY_OMIT)}"
            if name in MAY_RENAME:
                fix += f"; --api-rename {name}=NAME sends it under another name"
            mistakes.add(f"--api-omit {name}: cannot be omitted", fix)
    for name, sent in options.api_rename.items():
        if name not in MAY_RENAME:
            mistakes.add(f"--api-rename {name}: cannot be renamed", f"choose from {', '.join(MAY_RENAME)}")
        elif not str(sent).isidentifier() or sent in SENT_FIELDS:
            mistakes.add(
                f"--api-rename {name}={sent}: must be the name of a field that the harness does not send",
                "write, for example, --api-rename max_tokens=max_completion_tokens",
            )
    extra = mistakes.attempt(body_fields, options.extra_body) or {}
    for name in extra:
        if fix := fix_of_field(name):
            mistakes.add(f"--extra-body: the harness sets the field {name}, which changes what is measured", fix)
    return extra


class ServersConfiguration(BaseModel):
    """Facts that servers report, and that their operator declares."""

    model_config = strictly("allow")

    dialect: Text
    connections: AtLeastOne
    enable_prefix_caching: bool  # value that the server reports; False if it reports none
    declared: dict[str, Any] | None
    told_by_the_server: Annotated[dict[str, Any], Field(min_length=1)]
    probes: Annotated[dict[str, Any], Field(min_length=1)]


class EndpointKind(EngineKind[EndpointOptions]):
    """The client of a server."""

    name = "endpoint"
    help = "a server that speaks HTTP"
    options = EndpointOptions
    chosen_by = "api_server"
    own_processes = True
    may_lack_model = True  # the model of a server that sends text
    record = EngineRecord(
        computes_here=False,
        prints_configuration=False,
        batch_field="connections",
        configuration=ServersConfiguration,
        named_options=(
            "api_server",
            "api_model_name",
            "api_dialect",
            "api_key_env",
            "api_connections",
            "api_omit",
            "api_rename",
            "extra_body",
            "header",
            "serve",
        ),
    )

    def reads(self, options: EndpointOptions) -> frozenset[ModelPart]:
        from sut.http.address import addresses

        dialects = [DIALECTS[options.api_dialect]] if options.api_dialect in DIALECTS else []
        if not dialects and options.api_server is not None:
            dialects = addresses(options.api_server)[0].dialects()
        return frozenset({"tokenizer"} if dialects and all(dialect.sends_text for dialect in dialects) else ())

    def places(self, options: EndpointOptions, run: RunFacts, count: int | None) -> "list[ReplicaPlace]":
        from runs.record.manifest import ReplicaPlace
        from sut.http.address import addresses

        servers = len(addresses(options.api_server)) if options.api_server else 1
        clients = count or servers
        if clients % servers:
            raise InputError(
                f"--replicas {clients}: client processes cannot be divided evenly among {servers} servers",
                f"give a multiple of {servers}",
            )
        return [ReplicaPlace(variables={CLIENT: f"{index}/{clients}"}) for index in range(clients)]

    def wants_replicas(self, options: EndpointOptions, run: RunFacts) -> str:
        return "one client process per server, so that HTTP does not delay LoadGen"

    def plan(self, endpoint_options: EndpointOptions, run: RunFacts) -> EnginePlan:
        from runs.record.engines.servers import request_reasons
        from sut.http.address import Access
        from sut.http.declaration import read_declaration
        from sut.http.probes import PROBE_TOKENS  # only a run with a server imports the client
        from sut.http.server import words

        mistakes = Mistakes()
        servers = mistakes.attempt(_servers, endpoint_options) or []
        if endpoint_options.serve and servers and len(endpoint_options.serve) != len(servers):
            mistakes.add(
                f"--serve: {len(endpoint_options.serve)} command(s), but --api-server names {len(servers)} server(s)",
                "give a command for each server, in the order of --api-server",
            )
        _check_dialect(endpoint_options, servers, mistakes)
        extra = _check_fields(endpoint_options, mistakes)
        ca_file = endpoint_options.api_ca.resolve() if endpoint_options.api_ca else None
        options = {
            "api_key_env": endpoint_options.api_key_env,
            "api_ca": str(ca_file) if ca_file else None,
            "header": endpoint_options.header,
            "extra_body": endpoint_options.extra_body,
            "extra_fields": sorted(extra),
            "insecure": endpoint_options.insecure,
        }
        with mistakes.collected():
            access = Access.of(options)
            for server in servers:
                access.tls_context(server)
            for command in endpoint_options.serve:
                words(command)
                if access.hidden(command) != command:
                    mistakes.add(
                        "--serve: the command contains a key or a header's value, and the manifest records the command",
                        f"let the server read it from {endpoint_options.api_key_env or 'an environment variable'}",
                    )
        declaration = endpoint_options.api_declaration
        declared = mistakes.attempt(read_declaration, declaration) if declaration else None
        mistakes.refuse()
        reasons = ["the server's model and precision are not declared (--api-declaration)"]
        if declared is not None:
            reasons = declared.unofficial_reasons(run.official_model)
        reasons += request_reasons(options)
        return EnginePlan(
            {
                "api_server": endpoint_options.api_server,
                "api_model_name": endpoint_options.api_model_name,
                "api_dialect": endpoint_options.api_dialect,
                "api_omit": endpoint_options.api_omit,
                "api_rename": endpoint_options.api_rename,
                **options,
                "request_timeout": endpoint_options.request_timeout,
                "api_connections": endpoint_options.api_connections
                or (SINGLE_STREAM_CONNECTIONS if run.scenario == "SingleStream" else CONNECTIONS),
                "network_sut": endpoint_options.network_sut,
                "serve": endpoint_options.serve,
                "probe_tokens": min(PROBE_TOKENS, run.longest_prompt_tokens),
                "vocab_size": run.vocab_size,
                "declared": declared.model_dump() if declared else None,
                "enable_prefix_caching": "as the server has it",
            },
            unofficial_reasons=reasons,
        )

    def longest_response_s(self, options: EndpointOptions) -> float:
        return options.request_timeout or 0.0

    def check_ready(self, options: EndpointOptions) -> None:
        """Check that each server responds, and has the model and the route. A server of --serve is not started yet."""
        import asyncio

        from sut.http.address import Access, addresses
        from sut.http.server import choose_dialect, read_card

        access = Access.of(vars(options))

        async def check() -> None:
            for address in addresses(str(options.api_server)):
                card = await read_card(address, access, options.api_model_name)
                await choose_dialect(address, access, card.owned_by, options.api_dialect)

        if not options.serve:
            asyncio.run(check())

    def lacks_generated_ids(self, plan: "RunPlan") -> str:
        """Return the dialect of a server that sends text. A server of --serve is not started yet."""
        import asyncio

        from sut.http.address import Access, addresses
        from sut.http.server import choose_dialect, read_card

        options = plan.engine_options
        if options.get("serve"):
            return ""
        dialect = DIALECTS.get(options["api_dialect"] or "")
        if dialect is None:
            address, access = addresses(options["api_server"])[0], Access.of(options)
            card = asyncio.run(read_card(address, access, options["api_model_name"]))
            dialect = asyncio.run(choose_dialect(address, access, card.owned_by, None))
        return f"server {options['api_server']} sends text ({dialect.name})" if dialect.sends_text else ""

    def make(self, plan: "RunPlan") -> "Engine":
        from sut.http.address import Access, addresses
        from sut.http.http_engine import EndpointEngine

        options = plan.engine_options
        servers = addresses(options["api_server"])
        index, clients = map(int, os.environ.get(CLIENT, "0/1").split("/"))
        which = index % len(servers)
        return EndpointEngine(
            servers[which].text,
            plan.sampling,
            network_sut=options["network_sut"],
            streaming=plan.reports_first_tokens,
            place=index // len(servers),
            clients=clients // len(servers),
            dialect=options["api_dialect"],
            model_name=options["api_model_name"],
            omitted=tuple(options["api_omit"]),
            renamed=options["api_rename"],
            access=Access.of(options),
            extra_fields=body_fields(options["extra_body"]),
            request_timeout_s=options["request_timeout"],
            connections=options["api_connections"],
            probe_tokens=options["probe_tokens"],
            vocab_size=options["vocab_size"],
            model_path=plan.model_path,
            declared=options["declared"],
            silence_s=plan.stall_timeout_s,
            times_count=plan.mode == "performance",
            serve=options["serve"][which] if options["serve"] else None,
            server_log=Path("server.log" if len(servers) == 1 else f"server-{which}.log"),
        )

    def sut_class(self, plan: "RunPlan") -> "Callable[..., LoadgenSut]":
        options = plan.engine_options
        if not options["network_sut"]:
            return super().sut_class(plan)
        from sut.http.address import Access, addresses
        from sut.http.network_sut import NetworkSut

        return functools.partial(
            NetworkSut,
            servers=addresses(options["api_server"]),
            access=Access.of(options),
            model_name=options["api_model_name"],
        )
