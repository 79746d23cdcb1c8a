"""A kind of engine: its options, its record, its plan for a run, its imports, and its construction.

A kind is a stateless object in `sut.engines.KINDS`. It has everything that the harness needs before an engine runs and
after it has run. The running engine is an `Engine` (sut/engine.py). The module of a kind imports little: every command
that starts or reads a run may import it. The methods import the engine and its libraries.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel

from runs.benchmark import OfficialModel, SamplingPolicy, Scenario
from runs.record.engines.engine_records import EngineRecord

if TYPE_CHECKING:  # not needed for the options of a kind
    from runs.record.manifest import ReplicaPlace, RunPlan
    from sut.engine import Engine
    from sut.loadgen_sut import LoadgenSut

EngineOptionsT = TypeVar("EngineOptionsT", bound=BaseModel)
ModelPart = Literal["config", "weights", "tokenizer"]


@dataclass(frozen=True)
class RunFacts:
    """Facts of the run that a plan may use."""

    scenario: Scenario
    sampling: SamplingPolicy
    official_model: OfficialModel  # model of a closed submission of the benchmark
    admission: str  # admission policy; "off" without admission control
    longest_prompt_tokens: int  # longest prompt of the dataset, in tokens
    lead_tokens: int  # IDs that all prompts have in common at their start
    model_folder: Path | None  # None for an engine that runs without model files
    parameters: int  # number of the model's parameters; 0 if unknown
    precision: str = ""  # data type of the weights, such as bfloat16 or fp8_w8a8; "" if unknown
    quantization: dict[str, Any] = field(default_factory=dict)  # quantization in the model's config.json
    vocab_size: int | None = None  # the model's IDs are below it; None without a model
    light: bool = False  # the embedded model with few queries at a time
    cores_taken: int = 0  # cores that other programs use, in a trial; 0 if unknown

    @property
    def streamed(self) -> bool:
        """True if first tokens have a limit."""
        return self.scenario in ("Server", "Interactive")


@dataclass(frozen=True)
class EnginePlan:
    """The plan of an engine, from the requested options."""

    options: dict[str, Any]  # options of the engine; plain data, `engine_options` in the manifest
    # environment variables for the engine's process; the user's values take precedence
    environment: dict[str, str] = field(default_factory=dict)
    compiles: bool = False  # True if the engine compiles kernels or captures graphs for new shapes
    # reasons why a run with these options is not eligible for submission; sentences
    unofficial_reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # sentences for the user before the start
    hints: list[str] = field(default_factory=list)  # such sentences that are shown without --verbose too


class EngineKind(ABC, Generic[EngineOptionsT]):
    """One kind of engine, by name.

    `options` declares its part of a run's configuration, with the title of these options in help texts (`options_in`).
    The configuration has all kinds' fields, and a field of another kind is refused. `record` states what the manifest
    of a finished run must contain; without it, the requirements are those for vLLM.
    """

    name: ClassVar[str]
    help: ClassVar[str]  # description after the name in help texts
    options: ClassVar[type[BaseModel]]
    record: ClassVar[EngineRecord] = EngineRecord()
    chosen_by: ClassVar[str | None] = None  # option that selects this kind if --engine is missing
    uses_vllm: ClassVar[bool] = False  # True if a run needs vLLM on this machine
    has_priorities: ClassVar[bool] = False  # True if the engine computes the requests with the lowest `priority` first
    own_processes: ClassVar[bool] = False  # True if the engine never runs in the process of the run
    own_model: ClassVar[str | None] = None  # default model, if it has no files; None = the embedded model
    may_lack_model: ClassVar[bool] = False  # True if the model may be unknown (--model-path bytes)
    # Values for options that the user does not give, in an audit that compares rates.
    audit_pace: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    def plan(self, options: EngineOptionsT, run: RunFacts) -> EnginePlan:
        """Resolve every option, before anything starts.

        Raises:
            InputError: If options are invalid or contradict each other.
            SetupError: If the engine cannot run on this machine.
        """

    def early_environment(self, options: EngineOptionsT, *, light: bool = False) -> dict[str, str]:
        """Return the part of the plan's environment that follows from the options alone.

        The run's process starts with these variables while the run is checked. It is restarted if the plan's
        environment differs.
        """
        return {}

    def reads(self, options: EngineOptionsT) -> frozenset[ModelPart]:
        """Return the parts of a model's folder that the engine loads."""
        return frozenset()

    def longest_sequence(self, options: EngineOptionsT) -> int | None:
        """Return the maximum tokens of prompt and output together that the options allow; None without a limit."""
        return None

    def longest_response_s(self, options: EngineOptionsT) -> float:
        """Return the maximum time of a response that the options allow; 0 without such an option."""
        return 0.0

    def search_values(self, options: EngineOptionsT) -> dict[str, tuple[Any, ...]]:
        """Return the values that an option search tries, by option. These options affect timing, never the output."""
        return {}

    def places(self, options: EngineOptionsT, run: RunFacts, count: int | None) -> "list[ReplicaPlace]":
        """Return the devices or cores of each of `count` replicas; None = the number that suits the machine.

        Raises:
            InputError, SetupError: If the machine has too few devices or cores.
        """
        from runs.record.manifest import ReplicaPlace

        return [ReplicaPlace()] * (count or 1)

    def at(self, place: "ReplicaPlace", replicas: int) -> "EngineKind[EngineOptionsT]":
        """Return this kind with the devices or cores of one of `replicas` replicas, for planning."""
        return self

    def wants_replicas(self, options: EngineOptionsT, run: RunFacts) -> str:
        """Return why a run without `--replicas` should have multiple replicas; "" if one engine is better."""
        return ""

    def check_ready(self, options: EngineOptionsT) -> None:
        """Check what a run needs besides its own files, before anything starts.

        Raises:
            InputError, SetupError: If the run could not start.
        """
        return

    def lacks_generated_ids(self, plan: "RunPlan") -> str:
        """Return why the responses of a run will have no token IDs that the model generated; "" if they have them.

        It is called before a run starts.
        """
        return ""

    def start_beside(self) -> None:
        """Start helper processes of the engine in the run's process, before the imports."""
        return

    def warm_import(self) -> None:
        """Import the engine's modules before its start. The start reports a failed import."""
        return

    @abstractmethod
    def make(self, plan: "RunPlan") -> "Engine":
        """Return an engine for a plan, not yet started; called in the engine's process.

        Args:
            plan: plan with the options and environment of this kind.

        Raises:
            InputError, SetupError: If this kind cannot run the plan.
        """

    def sut_class(self, plan: "RunPlan") -> "Callable[..., LoadgenSut]":
        """Return the class of the system under test around the engine; it takes the arguments of `LoadgenSut`."""
        from sut.loadgen_sut import LoadgenSut

        return LoadgenSut
