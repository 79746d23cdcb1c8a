"""Who else used the cores while a leg's clock ran: `observed["contention"]` of manifest.json."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runs.errors import InputError
from runs.reading import first_problem

CONTENTION = "contention"  # the key in `observed`
NOT_RECORDED = "not_recorded"  # in its place where the times could not be read: why


class Contention(BaseModel):
    """CPU time of the cores that a leg may use, from LoadGen's start to its end.

    Attributes:
        window_s: from the first reading to the second.
        usable_cores: number of cores that the leg's process may use.
        busy_cpu_s: what was used of them by anybody: processes, interrupts, other virtual machines.
        stolen_cpu_s: the part of it that the hypervisor gave to other virtual machines.
        own_cpu_s: what the harness used: the leg's process group, all descendants, and the process that started it.
        foreign_cpu_s: the rest; never negative.
        load_average_start, load_average_end: of the last minute, as the system tells it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    window_s: float = Field(gt=0)
    usable_cores: int = Field(gt=0)
    busy_cpu_s: float = Field(ge=0)
    stolen_cpu_s: float = Field(ge=0)
    own_cpu_s: float = Field(ge=0)
    foreign_cpu_s: float = Field(ge=0)
    load_average_start: float = Field(ge=0)
    load_average_end: float = Field(ge=0)

    @property
    def foreign_share(self) -> float:
        """Of the usable cores' time, 0 to 1."""
        return self.foreign_cpu_s / (self.window_s * self.usable_cores)


def contention_of(observed: dict[str, Any]) -> Contention | str:
    """The record in a manifest's `observed`, or why there is none.

    Raises:
        InputError: the record is there and damaged: a number is missing, null, negative or not finite.
    """
    if CONTENTION not in observed:
        return "the leg is from before this was recorded"
    found = observed[CONTENTION]
    if isinstance(found, dict) and found.keys() == {NOT_RECORDED}:
        return str(found[NOT_RECORDED])
    try:
        return Contention.model_validate(found)
    except ValidationError as error:
        text = f"observed.{CONTENTION}.{first_problem(error)}"
        raise InputError(text, "the record is damaged; repeat the run") from error
