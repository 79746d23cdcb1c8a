"""A kind of engine: its options, its plan for a run, its imports, and its construction.

A kind is a stateless object in `sut.engines.KINDS`, with everything that other rooms need of an engine before it runs;
what runs is an `Engine` (sut/engine.py). Nothing here imports the engine's own library.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel

from runs.benchmark import OfficialModel, SamplingPolicy, Scenario

if TYPE_CHECKING:  # the options of a kind are read without what runs
    from runs.record.manifest import ReplicaPlace, RunPlan
    from sut.engine import Engine
    from sut.loadgen_sut import LoadgenSut
    from sut.planned_replica import PlannedReplica

Options = TypeVar("Options", bound=BaseModel)
ModelPart = Literal["config", "weights", "tokenizer"]


@dataclass(frozen=True)
class RunFacts:
    """Facts of the run that a plan may use."""

    scenario: Scenario
    sampling: SamplingPolicy
    official_model: OfficialModel  # model of a closed submission of the benchmark
    admission: str  # the policy, "off" for none
    longest_prompt_tokens: int  # longest prompt of the dataset, in tokens
    lead_tokens: int  # IDs that all prompts have in common at their start
    model_folder: Path | None  # None for an engine that runs without model files
    parameters: int  # numbers in the model's weights, 0 where it is not known
    precision: str = ""  # data type of the weights, such as bfloat16 or fp8_w8a8; "" if unknown
    quantization: dict[str, Any] = field(default_factory=dict)  # quantization in the model's config.json
    vocab_size: int | None = None  # IDs of the model lie below it; None where there is no model
    light: bool = False  # the embedded model with few queries at a time

    @property
    def streamed(self) -> bool:
        """True if first tokens have a limit."""
        return self.scenario in ("Server", "Interactive")


@dataclass(frozen=True)
class EnginePlan:
    """A kind's plan from the requested options."""

    options: dict[str, Any]  # options of the engine; plain data, `engine_options` in the manifest
    # variables that the engine's process must be started with; those that the user set win
    environment: dict[str, str] = field(default_factory=dict)
    compiles: bool = False  # whether the engine makes kernels or graphs for the shapes that it meets first
    # why a run with these options could not be submitted; sentences
    unofficial_reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # sentences for the user before the start


class EngineKind(ABC, Generic[Options]):
    """One kind of engine, by name.

    `options` declares its part of a run's configuration; the configuration has all kinds' fields, and a field of
    another kind is refused.
    """

    name: ClassVar[str]
    help: ClassVar[str]  # a few words behind the name
    options: ClassVar[type[BaseModel]]
    has_priorities: ClassVar[bool] = False  # computes the requests of the lowest `priority` first
    own_processes: ClassVar[bool] = False  # runs outside the run's process also where no replicas are asked for
    own_model: ClassVar[str | None] = None  # model without files if no model is named; None = the embedded one

    @abstractmethod
    def plan(self, asked: Options, run: RunFacts) -> EnginePlan:
        """Resolve every option, before anything starts.

        Raises:
            InputError: options that are wrong or contradict each other.
            SetupError: an engine that cannot run on this machine.
        """

    def early_environment(self, asked: Options, *, light: bool = False) -> dict[str, str]:
        """The part of the plan's environment that follows from the options alone, at once.

        A run's process is started with it while the run is still being checked, and started again if the plan's
        environment differs.
        """
        return {}

    def reads(self, asked: Options) -> frozenset[ModelPart]:
        """The parts of a model's folder that it loads."""
        return frozenset()

    def longest_sequence(self, asked: Options) -> int | None:
        """The tokens of prompt and output together that the options allow, None where they say nothing."""
        return None

    def search_values(self, asked: Options) -> dict[str, tuple[Any, ...]]:
        """Options of a run that decide when, never what, the engine computes: for each, the values worth a try."""
        return {}

    def places(self, asked: Options, run: RunFacts, count: int | None) -> "list[ReplicaPlace]":
        """Return the devices or cores of each of `count` replicas on this machine; None = as many as suit it.

        Raises:
            InputError, SetupError: there is no place for so many.
        """
        from runs.record.manifest import ReplicaPlace

        return [ReplicaPlace()] * (count or 1)

    def at(self, place: "ReplicaPlace", replicas: int) -> "EngineKind[Options]":
        """This kind as it plans for one of so many replicas, which has only this place."""
        return self

    def plan_replicas(self, asked: Options, run: RunFacts, count: int | None) -> "list[PlannedReplica]":
        """Return the plan of each of `count` replicas on this machine; None = as many as suit it."""
        from sut.planned_replica import PlannedReplica

        places = self.places(asked, run, count)
        plans = [self.at(place, len(places)).plan(asked, run) for place in places]
        return [
            PlannedReplica(place.model_copy(update={"environment": dict(plan.environment)}), plan)
            for place, plan in zip(places, plans, strict=True)
        ]

    def wants_replicas(self, asked: Options, run: RunFacts) -> str:
        """Why a run without the option `--replicas` should have several; "" where one engine is better."""
        return ""

    def start_beside(self) -> None:
        """Start, in the run's process, what the engine needs besides imports; called before them."""
        return

    def warm_import(self) -> None:
        """Import what the engine needs, ahead of its start, which reports whatever fails here."""
        return

    @abstractmethod
    def make(self, plan: "RunPlan") -> "Engine":
        """An engine for a plan, not yet started; called in the process that it will live in.

        Args:
            plan: with the options and in the environment of this kind's own plan.

        Raises:
            InputError, SetupError: the plan is not one that this kind can run.
        """

    def sut_class(self, plan: "RunPlan") -> "Callable[..., LoadgenSut]":
        """Makes the system under test around the engine, from the arguments of `LoadgenSut`."""
        from sut.loadgen_sut import LoadgenSut

        return LoadgenSut
