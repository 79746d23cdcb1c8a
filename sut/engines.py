"""All kinds of engines: those of the harness (`BUILT_IN_ENGINES`), and those of other packages (docs/extensions.md)."""

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, create_model

from runs.errors import SetupError
from runs.extensions import ENGINE_GROUP, load_extensions, load_object
from runs.mistakes import Mistakes
from runs.record.engines.engine_records import BUILT_IN_ENGINES, DEFAULT_ENGINE
from sut.engine_kind import EngineKind

if TYPE_CHECKING:
    from runs.record.manifest import RunPlan
    from sut.dummy.dummy_options import DummyOptions
    from sut.engine import Engine
    from sut.http.http_kind import EndpointOptions
    from sut.vllm.vllm_kind import VllmOptions

    class EngineOptions(DummyOptions, EndpointOptions, VllmOptions):
        """The options of all kinds, as far as a type checker knows them."""


DEFAULT = DEFAULT_ENGINE
_BUILT_IN: dict[str, EngineKind[Any]] = {name: load_object(target)() for name, target in BUILT_IN_ENGINES.items()}
_EXTENSIONS, ENGINE_FAULTS = load_extensions(ENGINE_GROUP, EngineKind, _BUILT_IN)  # faults of unusable engines, by name
KINDS: dict[str, EngineKind[Any]] = _BUILT_IN | _EXTENSIONS

if not TYPE_CHECKING:
    # The options of all kinds; `--help` shows the options of the last base class first.
    EngineOptions = create_model(
        "EngineOptions", __base__=tuple(kind.options for kind in reversed(KINDS.values())), __module__=__name__
    )


def engine_kind(name: str) -> EngineKind[Any]:
    """Return the kind with a name.

    Raises:
        SetupError: If the name is unknown, or the engine of another package is unusable.
    """
    if name in ENGINE_FAULTS:
        raise ENGINE_FAULTS[name]
    if name not in KINDS:
        raise SetupError(f"unknown engine {name!r}", f"use {' or '.join(KINDS)}")
    return KINDS[name]


def make_engine(plan: "RunPlan") -> "Engine":
    """Return an engine for a plan, not yet started: an engine of the kind, or a pool of replicas.

    Raises:
        InputError, SetupError: If the kind cannot run the plan.
    """
    if plan.replicas is None:
        return engine_kind(plan.engine).make(plan)
    from sut.replicas.pool import ReplicaPool

    return ReplicaPool(plan)


def refuse_options_of_others(kind: EngineKind[Any], options: BaseModel) -> None:
    """Refuse options of engines that the run does not use.

    Raises:
        InputError: If such options are set; the message names all of them.
    """
    mistakes = Mistakes()
    for other_kind in KINDS.values():
        foreign = options.model_fields_set & (other_kind.options.model_fields.keys() - kind.options.model_fields.keys())
        for name in sorted(foreign):
            value = getattr(options, name)
            if value != other_kind.options.model_fields[name].get_default(call_default_factory=True):
                flag = "--" + name.replace("_", "-")
                keys = f" {', '.join(value)}" if isinstance(value, dict) else ""
                mistakes.add(
                    f"the {kind.name} engine takes no {flag}{keys}", f"remove {flag}, or use --engine {other_kind.name}"
                )
    mistakes.refuse()
