"""All kinds of engines. A new kind is a package with a `kind.py`, a line in `KINDS` and a base class of `EngineOptions`
here, and a line in runs/record/engines/engine_records.py.
"""

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from runs.errors import SetupError
from runs.mistakes import Mistakes
from runs.record.engines.engine_records import DEFAULT_ENGINE
from sut.dummy.dummy_kind import DummyKind, DummyOptions
from sut.engine_kind import EngineKind
from sut.http.http_kind import EndpointKind, EndpointOptions
from sut.vllm.vllm_kind import VllmKind, VllmOptions

if TYPE_CHECKING:
    from runs.record.manifest import RunPlan
    from sut.engine import Engine

DEFAULT = DEFAULT_ENGINE
ENDPOINT = EndpointKind.name
KINDS: dict[str, EngineKind[Any]] = {kind.name: kind for kind in (VllmKind(), EndpointKind(), DummyKind())}


class EngineOptions(DummyOptions, EndpointOptions, VllmOptions):
    """The options of all kinds; `--help` shows the options of the last base class first."""


def engine_kind(name: str) -> EngineKind[Any]:
    """Return the kind with a name.

    Raises:
        SetupError: If the name is unknown.
    """
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
            if getattr(options, name) != other_kind.options.model_fields[name].get_default(call_default_factory=True):
                flag = "--" + name.replace("_", "-")
                mistakes.add(
                    f"the {kind.name} engine takes no {flag}", f"remove {flag}, or use --engine {other_kind.name}"
                )
    mistakes.refuse()
