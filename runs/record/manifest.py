"""manifest.json: what was asked of a leg, what was resolved from it, and what was observed.

Written by the parent before the leg starts, completed by the leg's process once the engine runs, and closed by the
parent when the process is gone. Never two writers at a time.
"""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from runs.benchmark import Mode, Scenario
from runs.errors import ExecutionError, InputError, names_its_file
from runs.files import write_json
from runs.reading import first_problem, read_object
from runs.record.engine_records import EngineRecord, engine_record
from runs.record.manifest_parts import (
    FinishedParts,
    Nanoseconds,
    OurExitCode,
    Pid,
    SamplingPart,
    WeightsPart,
    absent_fields,
    servers_are_whole,
)

# 1: from before seals. 2: from before every part of a finished leg had all of its fields, and no others.
SCHEMA_VERSION: Literal[3] = 3
BASELINE: dict[str, Any] = {"mechanism": "baseline", "mechanism_variant": "none"}  # of a leg that declares nothing

Status = Literal["planned", "running", "finished", "failed", "interrupted"]


class ReplicaPlace(BaseModel):
    """What one replica has to itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    devices: list[str] = []  # as the platform names them
    cores: list[int] = []  # empty: where the kernel puts it
    numa_node: int | None = None  # near which it takes its memory
    variables: dict[str, str] = {}  # that make it so; they win over the user's
    environment: dict[str, str] = {}  # of its process; the user's wins
    node: int | None = None  # of the cluster, by its place in `ClusterPlan.nodes`


class ClusterNode(BaseModel):
    """One node of a Ray cluster."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str  # Ray's
    address: str
    host: dict[str, Any]  # as Manifest.host
    accelerator: list[dict[str, Any]]  # as Manifest.accelerator
    software: dict[str, str]  # distribution → version

    @property
    def name(self) -> str:
        """For a person."""
        return f"{self.host['hostname']} ({self.address})"

    @property
    def facts(self) -> dict[str, Any]:
        """What stays the same when the cluster is started anew."""
        return {
            "processor": self.host.get("cpu"),
            "logical cores": self.host.get("cores_logical"),
            "accelerators": [row.get("name") for row in self.accelerator],
            **{f"version of {name}": version for name, version in self.software.items()},
        }


class ClusterPlan(BaseModel):
    """The nodes on which the replicas of a leg run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str  # of Ray's head
    listen_on: str  # the address of the leg's machine that the nodes reach
    nodes: list[ClusterNode]


class ReplicasPlan(BaseModel):
    """Several engines behind one LoadGen."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    places: list[ReplicaPlace]
    cluster: ClusterPlan | None = None  # None: all of them on the leg's machine

    @model_validator(mode="before")
    @classmethod
    def _without_routing(cls, values: Any) -> Any:
        """A record from when there was a choice of routing policies."""
        return {key: value for key, value in values.items() if key != "routing"} if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _on_nodes(self) -> Self:
        known: list[int | None] = [None] if self.cluster is None else [*range(len(self.cluster.nodes))]
        if strange := [place.node for place in self.places if place.node not in known]:
            raise ValueError(f"places: there is no node {strange[0]}")
        return self


class AdmissionPlan(BaseModel):
    """How queries are held back (sut/admission.py)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: Literal["fcfs", "shortest", "deadline", "priority"]
    prefill_tokens: int | None = Field(gt=0)  # None: the engine's budget a step
    queries: int | None = Field(gt=0)


class LegPlan(BaseModel):
    """Everything a leg's process needs; plain data, no defaults left to guess."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    scenario: Scenario
    loadgen_scenario: str
    mode: Mode
    loadgen_key: str
    dataset_path: str
    dataset_sha256: str
    sample_count: int = Field(ge=1)  # samples of the query sample library
    longest_prompt_tokens: int = Field(ge=1)
    audit: bool  # whether audit.config in the run directory is given to LoadGen
    trace: bool
    engine: str
    model_path: str
    engine_options: dict[str, Any]
    environment: dict[str, str]  # variables set for the leg's process
    sampling: dict[str, Any]
    admission: AdmissionPlan | None = None  # None: at once
    replicas: ReplicasPlan | None = None  # None: one engine, in the leg's process
    warmup_prompts: int = Field(ge=0)  # of the data set's lengths, at least
    compiles: bool = False  # the engine makes kernels or graphs for the shapes that it meets first
    rate_choice: None = None  # of older records
    engine_start_timeout_s: float = Field(gt=0)
    stall_timeout_s: float = Field(gt=0)

    @property
    def nodes(self) -> list[ClusterNode]:
        """Those of a cluster that compute; empty where the leg's own machine does."""
        cluster = self.replicas.cluster if self.replicas is not None else None
        return cluster.nodes if cluster is not None else []

    @property
    def engine_record(self) -> EngineRecord:
        """What the record of such an engine must hold."""
        return engine_record(self.engine)


def _asked_mechanism(known: dict[str, Any]) -> dict[str, Any]:
    """What a leg's configuration declares; also of a record from before there were declarations."""
    return dict(known.get("asked", {}).get("mechanism") or BASELINE)


class Manifest(BaseModel):
    """The record of one leg."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    schema_version: Literal[1, 2, 3] = SCHEMA_VERSION
    status: Status = "planned"
    official: bool
    unofficial_reasons: list[str]
    notes: list[str] = Field(default_factory=list)
    asked: dict[str, Any]
    mechanism: dict[str, Any] = Field(default_factory=_asked_mechanism)  # the technique that the leg declares
    resolved: LegPlan
    harness: dict[str, Any]  # version, git commit
    software: dict[str, str]  # distribution → version
    loadgen: dict[str, Any]  # version, extension path and sha256
    host: dict[str, Any]
    accelerator: list[dict[str, Any]]
    model: dict[str, Any]  # id, path, revision, file hashes
    dataset: dict[str, Any]  # path, sha256, rows
    chosen_rate: None = None  # of older records
    loadgen_settings: dict[str, Any] = Field(default_factory=dict)  # effective values, seeds included
    engine: dict[str, Any] = Field(default_factory=dict)  # asked, in force, configuration, warm-up
    replicas: list[dict[str, Any]] = Field(default_factory=list)  # each of several engines: where, what, how much
    observed: dict[str, Any] = Field(default_factory=dict)  # samples, cached tokens, contention, hashes of the logs
    parent_pid: Pid
    pid: Pid | None = None
    start_time_ns: Nanoseconds | None = None
    end_time_ns: Nanoseconds | None = None
    exit_code: OurExitCode | None = None
    error: dict[str, Any] | None = None

    @field_validator("observed", mode="before")
    @classmethod
    def _of_older_records(cls, observed: Any) -> Any:
        """They have the rejected connections of replicas under another name."""
        if isinstance(observed, dict) and "refused_connections" in observed:
            return {key.replace("refused_conn", "rejected_conn"): value for key, value in observed.items()}
        return observed

    @model_validator(mode="after")
    def _whole_when_finished(self) -> Self:
        if self.current and self.status == "finished":
            parts = FinishedParts.model_validate(self.model_dump(include=set(FinishedParts.model_fields)))
            SamplingPart.model_validate(self.resolved.sampling)
            kind = self.resolved.engine_record
            if kind.runs_model and kind.computes_here and not (parts.model.sha256 and parts.model.weights):
                raise ValueError("model: no file, or no weights, of the model that ran")
            if self.resolved.engine == "endpoint":
                servers_are_whole(parts.observed)
            if parts.model.weights is not None and not kind.computes_here:
                raise ValueError("model.weights: of an engine that computes no model here")
            kind.configuration.model_validate(parts.engine.configuration)
        return self

    @model_validator(mode="after")
    def _weights_can_be_read(self) -> Self:
        """In a record of any version and status: judges ask for them."""
        _ = self.weights
        return self

    @property
    def weights(self) -> WeightsPart | None:
        """What the headers of the model's weights say; None where that is not on record."""
        recorded = self.model.get("weights")
        return None if recorded is None else WeightsPart.model_validate(recorded)

    @property
    def current(self) -> bool:
        """Whether the record is of this version. Older ones are judged as far as they go, and are no official legs."""
        return self.schema_version == SCHEMA_VERSION

    @property
    def sealed(self) -> bool:
        """Whether the leg is of a version that seals its run directory (`runs.record.seal`)."""
        return self.schema_version >= 2


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest; one of a finished leg must be whole.

    Raises:
        ExecutionError: it is not.
    """
    content = manifest.model_dump(mode="json")
    try:
        Manifest.model_validate(content)
    except ValidationError as error:
        raise ExecutionError(
            f"{path.name} of the leg is not whole: {first_problem(error)}", "report this message"
        ) from error
    write_json(path, content)


@names_its_file
def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        InputError: missing, damaged, or of another schema.
    """
    content = read_object(
        path, "name a run directory of this harness; a damaged one must be run again", within=path.parent
    )
    fix = "the file is damaged or of another version"
    try:
        manifest = Manifest.model_validate(content, strict=True)
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}", fix) from error
    if manifest.current and (absent := list(absent_fields(manifest))):
        raise InputError(f"{path} has no {', '.join(absent)}", fix)
    return manifest
