"""The options of an audit: a model for each, of which its block in a YAML file and the command line are made."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic.fields import FieldInfo

from runs.benchmark import Scenario
from runs.errors import InputError
from runs.fields import option_field

if TYPE_CHECKING:
    from runs.loadgen.detail_log import DetailLog

Logs = Mapping[str, "DetailLog"]  # of the runs in an audit's directory, by label


def _share(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError("must be between 0 and 1, such as 0.1")
    return value


def _positions(value: object) -> object:
    """`3`, `3,17` and YAML's lists."""
    words = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    if not words or not all(re.fullmatch(r" *-?\d+ *", str(word)) for word in words):
        raise ValueError("must be whole numbers, such as 3 or 3,17")
    found = tuple(map(int, words))
    if len(set(found)) < len(found):
        raise ValueError("names a sample twice")
    return found


# Types of options: a tolerance; positions among LoadGen's loaded samples; these, or none for `auto`.
Share = Annotated[float, AfterValidator(_share)]
Positions = Annotated[tuple[int, ...], BeforeValidator(_positions)]
PositionsOrAuto = Annotated[
    tuple[int, ...], BeforeValidator(lambda value: () if value in ("auto", ()) else _positions(value))
]


def audit_field(default: Any, help: str, metavar: str | None = None, **limits: Any) -> Any:
    """A field of an audit's options: its default, its help, and limits as pydantic's Field takes them."""
    return option_field(default, help, "audit", metavar, **limits)


class AuditOptions(BaseModel):
    """The options of every audit. An audit with options of its own has a subclass, whose fields are these options."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    test: str = audit_field(..., "Which audit.", metavar="NAME")
    ref: Path | None = audit_field(
        None,
        "Judge existing runs instead of starting new ones: the reference run, or the accuracy run (with --run).",
        metavar="DIR",
    )
    run: Path | None = audit_field(None, "The run to compare with --ref.", metavar="DIR")

    @classmethod
    def own(cls) -> dict[str, FieldInfo]:
        """The fields that not every audit has."""
        return {name: field for name, field in cls.model_fields.items() if name not in AuditOptions.model_fields}


Options = TypeVar("Options", bound=AuditOptions)


class AuditRequest(BaseModel, Generic[Options]):
    """What is audited, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)

    scenario: Scenario
    loadgen_key: str
    loaded_count: int  # samples LoadGen can load: rows of the dataset, at most the benchmark's own number
    options: Options
    stop_ids: tuple[int, ...] = ()  # end-of-sequence IDs of the model
    bos_ids: tuple[int, ...] = ()
    special_ids: tuple[int, ...] = ()  # other special IDs of the tokenizer

    def sample_count(self, given: int | None, default: int) -> int:
        """The number of samples, by default at most as many as are loaded.

        Raises:
            InputError: more are given.
        """
        if given is not None and given > self.loaded_count:
            raise InputError(
                f"--samples {given} is more than the {self.loaded_count} samples that LoadGen can load; "
                "it would repeat them",
                f"give at most {self.loaded_count}",
            )
        return min(default, self.loaded_count) if given is None else given

    def check_positions(self, positions: Collection[int], count: int) -> None:
        """Refuse positions outside the samples that a run loads.

        Raises:
            InputError: LoadGen would crash.
        """
        for index in positions:
            if not 0 <= index < count:
                raise InputError(
                    f"--sample-index {index} is outside the {count} samples that the runs load; LoadGen would crash",
                    f"give 0 to {count - 1}, or auto",
                )
