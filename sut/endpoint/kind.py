"""A server as a kind of engine: its options, and what a leg makes of them."""

import os
from pathlib import Path

from pydantic import BaseModel

from runs.benchmark import SamplingPolicy
from runs.errors import InputError
from runs.option_field import option_field
from runs.record.manifest import LegPlan, ReplicaPlace
from sut.endpoint.address import Access, addresses
from sut.endpoint.declaration import read_declaration
from sut.endpoint.engine import EndpointEngine, Share
from sut.endpoint.probes import PROBE_TOKENS
from sut.endpoint.questions import DIALECTS
from sut.endpoint.served import words
from sut.engine_kind import EngineKind, EnginePlan, LegFacts, TextFacts

CONNECTIONS = 1024
CLIENT = "MLPERF_ENDPOINT_CLIENT"  # of a client process: which one it is, of how many
SERVER_LOG = "server.log"  # of `--serve`, in the run directory
AS_SERVED = "as the server has it"  # of an option that is the server's: asked of it and observed, never set


class EndpointOptions(BaseModel):
    """What a user may ask of the client of a server."""

    api_server: str | None = option_field(
        None,
        "Address of the server, http://HOST:PORT or https://HOST:PORT; of several that are alike, with commas.",
        "endpoint",
        "URL[,URL…]",
    )
    api_model_name: str | None = option_field(
        None, "Model's name at the server. Default: the one that it serves.", "endpoint", "NAME"
    )
    api_dialect: str | None = option_field(
        None, f"Language of the server: {', '.join(DIALECTS)}. Default: the server is asked.", "endpoint", "NAME"
    )
    api_key_env: str | None = option_field(
        None, "Environment variable that holds the server's key; the key itself is written nowhere.", "endpoint", "VAR"
    )
    api_ca: Path | None = option_field(
        None, "Certificate authority of an https server (PEM). Default: the system's.", "endpoint", "FILE"
    )
    api_connections: int | None = option_field(
        None,
        "Connections to each server, all opened before the clock starts; so many requests at a time. "
        f"Default: {CONNECTIONS}, SingleStream 1.",
        "endpoint",
        "N",
        ge=1,
    )
    api_declaration: Path | None = option_field(
        None, "What nobody can see of the server (configs/endpoint-declaration.yaml).", "endpoint", "FILE"
    )
    serve: str | None = option_field(
        None, "Start the server with this command and end it with the leg; it writes server.log.", "endpoint", "COMMAND"
    )


class EndpointKind(EngineKind[EndpointOptions]):
    """The client of a server."""

    name = "endpoint"
    help = "a server that speaks HTTP"
    options = EndpointOptions
    beside = True

    def places(self, asked: EndpointOptions, leg: LegFacts, count: int | None) -> list[ReplicaPlace]:
        servers = len(addresses(asked.api_server)) if asked.api_server else 1
        clients = count or servers
        if clients % servers:
            raise InputError(
                f"--replicas {clients}: so many client processes cannot serve {servers} servers evenly",
                f"ask for a multiple of {servers}",
            )
        return [ReplicaPlace(variables={CLIENT: f"{index}/{clients}"}) for index in range(clients)]

    def wants_replicas(self, asked: EndpointOptions, leg: LegFacts) -> str:
        return "a client process beside the leg's for each server: nothing of HTTP is on LoadGen's loop"

    def plan(self, asked: EndpointOptions, leg: LegFacts) -> EnginePlan:
        if asked.api_server is None:
            raise InputError("--engine endpoint needs a server", "give --api-server http://HOST:PORT")
        servers = addresses(asked.api_server)
        if asked.serve is not None and len(servers) > 1:
            raise InputError(f"--serve starts one server, and --api-server names {len(servers)}", "name that one")
        if asked.api_dialect is not None and asked.api_dialect not in DIALECTS:
            raise InputError(f"--api-dialect {asked.api_dialect}: unknown", f"choose from {', '.join(DIALECTS)}")
        ca_file = asked.api_ca.resolve() if asked.api_ca else None
        access = Access.from_environment(asked.api_key_env, ca_file)
        for server in servers:
            access.tls_context(server)
        if asked.serve is not None:
            words(asked.serve)
        declared = read_declaration(asked.api_declaration) if asked.api_declaration else None
        reasons = ["nobody declares what the server computes with (--api-declaration)"]
        if declared is not None:
            reasons = declared.unofficial_reasons(leg.official_model)
        return EnginePlan(
            {
                "api_server": asked.api_server,
                "api_model_name": asked.api_model_name,
                "api_dialect": asked.api_dialect,
                "api_key_env": asked.api_key_env,
                "api_ca": str(ca_file) if ca_file else None,
                "api_connections": asked.api_connections or (1 if leg.scenario == "SingleStream" else CONNECTIONS),
                "serve": asked.serve,
                "probe_tokens": min(PROBE_TOKENS, leg.longest_prompt_tokens),
                "declared": declared.model_dump() if declared else None,
                "enable_prefix_caching": AS_SERVED,
            },
            unofficial_reasons=reasons,
        )

    def make(self, plan: LegPlan, text: TextFacts | None = None) -> EndpointEngine:
        options = plan.engine_options
        servers = addresses(options["api_server"])
        index, clients = map(int, os.environ.get(CLIENT, "0/1").split("/"))
        return EndpointEngine(
            servers[index % len(servers)].url,
            SamplingPolicy(**plan.sampling),
            streaming=plan.loadgen_scenario != "Offline",
            share=Share(index // len(servers), clients // len(servers)),
            dialect=options["api_dialect"],
            model_name=options["api_model_name"],
            key_variable=options["api_key_env"],
            ca_file=options["api_ca"],
            connections=options["api_connections"],
            probe_tokens=options["probe_tokens"],
            declared=options["declared"],
            silence_s=plan.stall_timeout_s,
            times_count=plan.mode == "performance",
            serve=options["serve"],
            server_log=Path(SERVER_LOG),
        )
