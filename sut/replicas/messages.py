"""The messages between a run and its replicas, as MessagePack.

The run sends a query with its prompt. The replica returns its first token and its response. Messages contain batches.
Token IDs are int32 bytes, which LoadGen receives unchanged.
"""

from typing import Any, Literal

import msgspec

from sut.engine import EngineObserved, EngineReport

# To a replica ---------------------------------------------------------------------------------------------------------


class Query(msgspec.Struct, array_like=True, gc=False):
    """One request. `tag` is the run's number for it, which the response repeats."""

    tag: int
    seq: int
    sample_index: int
    priority: int
    issue_ns: int
    prompt: bytes
    output_lengths: tuple[int, int] | None


class QueryBatch(msgspec.Struct, array_like=True):
    """Queries that were sent together."""

    queries: list[Query]


# observe: all queries are complete, and the run requests `Observations`; stop: the run is over.
ToReplica = QueryBatch | Literal["observe", "stop"]

# To the run -----------------------------------------------------------------------------------------------------------


class Ready(msgspec.Struct, array_like=True, tag=11):
    """The message that the engine is ready."""

    record: dict[str, Any]  # fields of runs.record.manifest.ReplicaRecord, without processor time
    boot_id: str | None  # boot ID of runs.machine.environment.host_facts
    software: dict[str, str]  # distribution → version
    report: EngineReport


class FinishedResponse(msgspec.Struct, array_like=True, gc=False):
    """One finished request."""

    tag: int
    ids: bytes
    finish_reason: str
    cached_tokens: int
    heard_ns: int  # see sut.engine.Request
    token_gaps_ns: bytes | None = None  # see sut.engine.Request; 8 bytes per gap


class ResultBatch(msgspec.Struct, array_like=True, tag=12):
    """First tokens (tag, ID, heard_ns) and responses that came together."""

    first_tokens: list[tuple[int, int, int]]
    responses: list[FinishedResponse]


class Heartbeat(msgspec.Struct, array_like=True, tag=13):
    """The sign that the process runs. A separate thread sends it, also during a long step.

    `cpu_s` is the processor time that the replica's processes have used.
    """

    activity: int
    generated_tokens: int | None
    cpu_s: float


class Failure(msgspec.Struct, array_like=True, tag=14):
    """The error that ends the replica."""

    error: dict[str, Any]  # runs.errors.error_record


class Observations(msgspec.Struct, array_like=True, tag=15):
    """The engine's measurements."""

    observed: EngineObserved


ToRun = Ready | ResultBatch | Heartbeat | Failure | Observations

encode_message = msgspec.msgpack.Encoder(enc_hook=str).encode  # values of a report that are not plain data become text
read_for_replica = msgspec.msgpack.Decoder(ToReplica).decode
read_for_run = msgspec.msgpack.Decoder(ToRun).decode


class ReplicaSpec(msgspec.Struct):
    """The first line that a replica's process reads on its standard input, as JSON. A kept replica gets one for each
    run; its first spec has no address and no keys."""

    index: int
    address: str
    run_key: str
    public_key: str
    secret_key: str
    plan: dict[str, Any]  # plan of the run, with this replica's environment
    cores: list[int]  # empty = the kernel chooses
    devices: list[str]
    numa_node: int | None
    variables: dict[str, str]  # environment variables that select the devices
    kept: bool = False  # the engine is kept for several runs
    listen_fd: int | None = None  # socket on which a kept replica waits for runs
