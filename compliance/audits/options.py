"""Models of the options of audits, for YAML files and for the command line."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic.fields import FieldInfo

from runs.benchmark import Scenario
from runs.errors import InputError
from runs.files.fields import option_field

if TYPE_CHECKING:
    from runs.loadgen.detail_log import DetailLog

Logs = Mapping[str, "DetailLog"]  # detail logs of the runs of an audit, by label


def _share(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError("must be between 0 and 1, such as 0.1")
    return value


def _positions(value: object) -> object:
    """Return a tuple of positions for an option value such as `3`, `3,17` or a YAML list."""
    words = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    if not words or not all(re.fullmatch(r" *-?\d+ *", str(word)) for word in words):
        raise ValueError("must be whole numbers, such as 3 or 3,17")
    positions = tuple(map(int, words))
    if len(set(positions)) < len(positions):
        raise ValueError("must not contain a sample twice")
    return positions


# Types of options, also for added audits (docs/add-an-audit.md). Share: a tolerance. Positions: positions in LoadGen's
# set of loaded samples. PositionsOrAuto: the same, or `auto` (an empty tuple).
Share = Annotated[float, AfterValidator(_share)]
Positions = Annotated[tuple[int, ...], BeforeValidator(_positions)]
PositionsOrAuto = Annotated[
    tuple[int, ...], BeforeValidator(lambda value: () if value in ("auto", ()) else _positions(value))
]


def audit_field(default: Any, help: str, metavar: str | None = None, **limits: Any) -> Any:
    """Return a field for an option of an audit, with default, help, and limits as in pydantic's Field."""
    return option_field(default, help, "audit", metavar, **limits)


class AuditOptions(BaseModel):
    """Options of every audit. An audit with further options has a subclass with these options as fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    test: str = audit_field(..., "Name of the audit.", metavar="NAME")
    ref: Path | None = audit_field(
        None,
        "Directory of the reference run, or of the accuracy run. With --ref and --run, the command checks existing "
        "runs and starts none.",
        metavar="DIR",
    )
    run: Path | None = audit_field(None, "Directory of the run to compare with the run of --ref.", metavar="DIR")

    @classmethod
    def own(cls) -> dict[str, FieldInfo]:
        """Return the fields that are specific to an audit."""
        return {name: field for name, field in cls.model_fields.items() if name not in AuditOptions.model_fields}


AuditOptionsT = TypeVar("AuditOptionsT", bound=AuditOptions)


class AuditRequest(BaseModel, Generic[AuditOptionsT]):
    """The request for an audit: scenario, benchmark, options and token IDs."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)

    scenario: Scenario
    loadgen_key: str
    loaded_count: int  # number of samples that LoadGen can load: the rows of the dataset, limited by the benchmark
    options: AuditOptionsT
    starts_engine: bool = True  # False if the system is a server that was started by its owner
    stop_ids: tuple[int, ...] = ()  # end-of-sequence IDs of the model
    bos_ids: tuple[int, ...] = ()
    special_ids: tuple[int, ...] = ()  # other special IDs of the tokenizer

    def sample_count(self, samples: int | None, default: int) -> int:
        """Return the number of samples: the given number, or the default limited by the number of loaded samples.

        Raises:
            InputError: If the given number is above the number of loaded samples.
        """
        if samples is not None and samples > self.loaded_count:
            raise InputError(
                f"--samples {samples}: must be at most {self.loaded_count}, the number of samples LoadGen can load",
                f"use --samples {self.loaded_count}",
            )
        return min(default, self.loaded_count) if samples is None else samples

    def check_positions(self, positions: Collection[int], count: int) -> None:
        """Refuse positions outside the loaded samples of a run. They would crash LoadGen.

        Raises:
            InputError: If a position is outside.
        """
        for index in positions:
            if not 0 <= index < count:
                raise InputError(
                    f"--sample-index {index}: must be 0 to {count - 1}, because the runs load {count} samples",
                    f"use a position from 0 to {count - 1}, or --sample-index auto",
                )
