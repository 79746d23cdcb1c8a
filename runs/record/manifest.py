"""manifest.json, the manifest of one run. Each fact is stated once:

asked: the requested options.
plan: the plan of the run's process; the file omits values that equal those in `asked`.
engine: the report of the running engine.
observed: facts of the machine, and measurements of the run (runs/record/observed.py).
replicas: facts of each replica.

LoadGen's logs have LoadGen's settings and numbers, requests.jsonl the numbers of each request, and seal.json the hashes
of files. The parent process writes the manifest before the run starts. The run's process completes it when the engine
runs, and the parent process closes it when the run's process has ended.
"""

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from runs.benchmark import Mode, SamplingPolicy, Scenario
from runs.errors import ExecutionError, InputError, names_its_file
from runs.extensions import ENGINE_GROUP, find_extensions
from runs.files.fields import (
    Amount,
    AtLeastOne,
    Count,
    Nanoseconds,
    OurExitCode,
    Pid,
    Sha256,
    StrictModel,
    Text,
    Versions,
    strictly,
)
from runs.files.reading import first_problem, read_object
from runs.files.writing import write_json
from runs.record.engines.engine_records import EngineRecord, engine_record
from runs.record.observed import Model, Observed
from runs.record.technique import NO_TECHNIQUE

RECORD_VERSION: Literal[4] = 4

_OF_A_FINISHED_RUN = (
    *("pid", "end_time_ns", "exit_code", "engine.warm_up", "observed.cached_prompt_tokens"),
    *("observed.contention", "observed.loop_lag", "observed.start_stages"),
)

# Fields that are missing in manifests of earlier versions. If they are missing, every rule must be as strict.
_CLIENT = "observed.engines.client"
_LATER = frozenset({
    "observed.engine_package",
    *("trial", "plan.trial", "plan.replicas.kept", "plan.concurrency", "plan.rows", f"{_CLIENT}.text"),
    *("plan.replicas.twins", "plan.schedule_rng_seed"),
    *(f"{_CLIENT}.last_token_to_loadgen", f"{_CLIENT}.last_token_to_end", f"{_CLIENT}.text.tokens_for_loadgen"),
    *(f"{_CLIENT}.{name}" for name in ("chunks", "loop_lag", "connections_renewed")),
    *(f"{_CLIENT}.text.{name}" for name in ("prompt_tokens_by_usage", "prompt_tokens_sent", "long", "padded")),
    *("observed.loadgen.build", f"{_CLIENT}.text.with_finish_reason", f"{_CLIENT}.text.without_finish_reason"),
})  # fmt: skip

ManifestStatus = Literal["planned", "running", "finished", "failed", "interrupted"]


class ReplicaPlace(BaseModel):
    """The resources of one replica."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    devices: list[str] = []  # device names of the platform
    cores: list[int] = []  # empty = all
    numa_node: int | None = None  # NUMA node of its memory
    variables: dict[str, str] = {}  # variables that select devices and cores; they override the user's
    environment: dict[str, str] = {}  # environment of its process; the user's variables override it
    node: int | None = None  # index in `ClusterPlan.nodes`


class ClusterNode(BaseModel):
    """One node of a Ray cluster."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    id: str  # ID in Ray
    address: str
    host: dict[str, Any]  # fields of `observed.host`
    accelerator: list[dict[str, Any]]  # fields of `observed.accelerators`
    software: dict[str, str]  # distribution → version

    @property
    def name(self) -> str:
        """Host name and address of the node."""
        return f"{self.host['hostname']} ({self.address})"

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that do not change when the cluster is restarted."""
        return {
            "processor": self.host.get("cpu"),
            "logical cores": self.host.get("cores_logical"),
            "accelerators": [row.get("name") for row in self.accelerator],
            **{f"version of {name}": version for name, version in self.software.items()},
        }


class ClusterPlan(BaseModel):
    """The nodes of a run's replicas."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    address: str  # address of Ray's head
    listen_on: str  # address of the run's machine for the nodes
    nodes: list[ClusterNode]


class KeptEngine(StrictModel):
    """An engine that serves multiple runs (sut/replicas/kept_engine.py), as one of these runs sees it."""

    folder: str  # temporary folder with the socket of each replica
    start_time_ns: int  # start of the engine
    run: int = Field(ge=1)  # number of this run on the engine
    log: str  # output of the engine


class ReplicasPlan(BaseModel):
    """The plan of multiple engines behind one LoadGen."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    places: list[ReplicaPlace]
    cluster: ClusterPlan | None = None  # None = all on the run's machine
    kept: KeptEngine | None = None  # None = the engines serve this run only
    # Seed of the assignment of queries to replicas that are compared (runs/ab/twins.py); None = equal replicas
    twins: int | None = None

    @model_validator(mode="after")
    def _on_nodes(self) -> Self:
        nodes: list[int | None] = [None] if self.cluster is None else [*range(len(self.cluster.nodes))]
        if unknown := [place.node for place in self.places if place.node not in nodes]:
            raise ValueError(f"places: node {unknown[0]} does not exist")
        return self


class AdmissionPlan(BaseModel):
    """The admission of queries (sut/admission.py)."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    policy: Literal["fcfs", "shortest", "deadline", "priority"]
    prefill_tokens: int | None = Field(gt=0)  # None = the engine's token budget per step
    queries: int | None = Field(gt=0)


class RunPlan(BaseModel):
    """Everything that a run's process needs."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), defer_build=True)

    scenario: Scenario
    loadgen_scenario: str
    mode: Mode
    loadgen_key: str
    dataset_path: str
    dataset_sha256: Sha256
    sample_count: int = Field(ge=1)  # samples of the query sample library
    rows: list[int] | None = None  # row of the dataset of each sample; None = the first `sample_count` rows
    longest_prompt_tokens: int = Field(ge=1)
    audit: bool  # True if LoadGen reads audit.config in the run directory
    enable_log_trace: bool
    engine: str
    model_path: str
    engine_options: dict[str, Any]
    environment: dict[str, str]  # variables set for the run's process
    sampling: SamplingPolicy
    admission: AdmissionPlan | None = None  # None = queries are admitted at once
    concurrency: int | None = Field(default=None, ge=1)  # limit of open queries in a closed loop; None = no closed loop
    replicas: ReplicasPlan | None = None  # None = one engine, in the run's process
    schedule_rng_seed: int | None = None  # seed of the arrivals of a comparison; None = the seed of the round
    warmup_prompts: int = Field(ge=0)  # minimum number of warm-up prompts with the dataset's lengths
    compiles: bool = False  # True if the engine compiles kernels or captures graphs for new shapes
    trial: bool = False  # True if the process of the run measures the engine and writes user.conf
    engine_start_timeout_s: float = Field(gt=0)
    stall_timeout_s: float = Field(gt=0)

    @property
    def reports_first_tokens(self) -> bool:
        """True if the engine reports first tokens: to LoadGen, or for the request log of a closed loop."""
        return self.loadgen_scenario != "Offline" or self.concurrency is not None

    @property
    def nodes(self) -> list[ClusterNode]:
        """The nodes that compute; empty if the run's machine computes."""
        cluster = self.replicas.cluster if self.replicas is not None else None
        return cluster.nodes if cluster is not None else []

    @property
    def is_warm(self) -> bool:
        """True if the engine has served a run before."""
        return self.replicas is not None and self.replicas.kept is not None and self.replicas.kept.run > 1

    def row_of(self, sample_index: int) -> int:
        """Return the row of the dataset of a sample."""
        return sample_index if self.rows is None else self.rows[sample_index]

    @property
    def starts_engine(self) -> bool:
        """True if the harness starts the engine; False for a server that was started by its owner."""
        return not self.engine_record.is_server or bool(self.engine_options.get("serve"))

    @property
    def engine_record(self) -> EngineRecord:
        """The requirements of this engine's configuration."""
        return engine_record(self.engine)


class WarmUp(StrictModel):
    prompts: Count
    output_tokens: Count
    # prompt_tokens_at_once, queries_at_once: the largest numbers in the engine at a time
    prompt_tokens_at_once: Count
    queries_at_once: Count
    seconds: Amount


class Trial(StrictModel):
    """Measurements of a trial during warm-up, and the settings of user.conf that follow from them."""

    queries_at_a_time: AtLeastOne
    seconds: Amount  # from the first submission to the last response
    output_tokens: Count
    queries_per_second: Amount
    settings: dict[Text, int | FiniteFloat]  # LoadGen's key → value


class EngineState(StrictModel):
    """The report of the running engine; empty before the engine runs."""

    model_config = strictly(frozen=False)

    versions: Versions = Field(default_factory=dict)
    # effective configuration; in a finished run it has the schema of the engine's kind (engine_records.py)
    configuration: dict[str, Any] = Field(default_factory=dict)
    warm_up: WarmUp | None = None

    @property
    def prefix_caching(self) -> bool:
        """True if the configuration lets the engine reuse the prompts of earlier queries."""
        return self.configuration.get("enable_prefix_caching") is True


class ReplicaRecord(StrictModel):
    """A replica of a run; requests.jsonl has its responses."""

    replica: Count
    host: Text
    pid: AtLeastOne
    devices: list[str]
    cores: list[int]
    start_s: Amount  # from the start of the process to a ready engine
    weights_sha256: dict[Text, Sha256]
    environment: dict[str, str]
    cpu_s: Amount = 0.0  # processor time at the end of the run


class Manifest(BaseModel):
    """The manifest of one run."""

    model_config = strictly(frozen=False)

    record: Literal[4] = RECORD_VERSION
    status: ManifestStatus = "planned"
    official: bool
    unofficial_reasons: list[Text]
    notes: list[Text]
    asked: dict[str, Any]
    plan: RunPlan
    engine: EngineState = Field(default_factory=EngineState)
    observed: Observed
    trial: Trial | None = None
    replicas: list[ReplicaRecord] = Field(default_factory=list)
    parent_pid: Pid
    pid: Pid | None = None
    start_time_ns: Nanoseconds
    end_time_ns: Nanoseconds | None = None
    exit_code: OurExitCode | None = None
    error: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _plan_as_asked(cls, values: Any) -> Any:
        """Add the values that the file omits to the plan."""
        if not isinstance(values, dict) or not isinstance(plan := values.get("plan"), dict):
            return values
        requested = values["asked"] if isinstance(values.get("asked"), dict) else {}
        return {**values, "plan": {name: requested[name] for name in RunPlan.model_fields if name in requested} | plan}

    @model_serializer(mode="wrap")
    def _omit_what_was_asked(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = write(self)
        requested = content["asked"]
        content["plan"] = {
            name: value for name, value in content["plan"].items() if name not in requested or requested[name] != value
        }
        return content

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.official == bool(self.unofficial_reasons):
            raise ValueError("unofficial_reasons: present in an eligible run, or missing in an ineligible run")
        kind = self.plan.engine_record
        if self.model.weights is not None and not kind.computes_here:
            raise ValueError(
                "observed.model.weights: present for an engine that does not compute a model on this machine"
            )
        if self.status == "finished":
            if absent := self._absent(kind):
                raise ValueError(f"{', '.join(absent)}: missing in the manifest of a finished run")
            if self.error is not None:
                raise ValueError("error: present for a finished run")
            kind.configuration.model_validate(self.engine.configuration)
        return self

    def _absent(self, kind: EngineRecord) -> list[str]:
        absent = [name for name in _OF_A_FINISHED_RUN if attrgetter(name)(self) is None]
        if kind.runs_model and kind.computes_here and not (self.model.sha256 and self.model.weights):
            absent.append("observed.model: files or weights")
        if kind.is_server and not self.observed.clients:
            absent.append("observed.engines: clients")
        return absent

    @property
    def model(self) -> Model:
        return self.observed.model

    @property
    def mechanism(self) -> dict[str, Any]:
        """The technique that the run declares."""
        return dict(self.asked.get("mechanism") or NO_TECHNIQUE)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest; raise ExecutionError if it could not be read back."""
    content = manifest.model_dump(mode="json")
    try:
        Manifest.model_validate(content, strict=True)
    except ValidationError as error:
        raise ExecutionError(
            f"{path.name} of the run is incomplete: {first_problem(error)}",
            "report this message as a defect of the harness",
        ) from error
    write_json(path, content)


@names_its_file
def read_manifest(path: Path) -> Manifest:
    """Read a manifest; raise InputError if it is missing, damaged, or of another version."""
    content = read_object(
        path, "give a run directory of this harness; if its manifest is damaged, rerun", within=path.parent
    )
    version = content.get("record", content.get("schema_version"))
    if version != RECORD_VERSION:
        raise InputError(
            f"{path} has version {version}; this harness reads version {RECORD_VERSION}",
            "rerun, or use the version of the harness that wrote the file",
        )
    fix = "the file is damaged; rerun"
    try:
        manifest = Manifest.model_validate(content, strict=True)
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}", _package_fix(content) or fix) from error
    if absent := list(_absent_fields(manifest)):
        raise InputError(f"{path}: missing: {', '.join(absent)}", fix)
    return manifest


def _package_fix(content: dict[str, Any]) -> str:
    """Return how to read a run whose engine is of another package; "" for other runs, and if it is installed."""
    observed = content.get("observed")
    package = observed.get("engine_package") if isinstance(observed, dict) else None
    if not isinstance(package, dict):
        return ""
    if package.get("name") in {extension.package for extension in find_extensions(ENGINE_GROUP)}:
        return ""
    return f"install package {package.get('name')} {package.get('version')}, which has the engine of the run"


def _absent_fields(part: BaseModel, place: str = "") -> Iterator[str]:
    """Yield missing fields that have a default, at any depth. Omitting a field must not disable a rule that
    reads it.
    """
    for name in type(part).model_fields:
        value = getattr(part, name)
        if name not in part.model_fields_set and place + name not in _LATER:
            yield f"{place}{name}"
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, BaseModel):
                yield from _absent_fields(item, f"{place}{name}.")
