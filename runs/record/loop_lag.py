"""How late the leg's event loop was while the clock ran: `observed["loop_lag"]` of manifest.json.

Everything between LoadGen and the engine happens on this loop, so that a first token or an answer may be told this
much late.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runs.errors import InputError
from runs.reading import first_problem

LOOP_LAG = "loop_lag"  # the key in `observed`


class LoopLag(BaseModel):
    """What a message would have waited for the loop's next turn, at moments a fixed interval apart.

    Attributes:
        p99_ms, worst_ms: of all moments.
        moments: how many there were.
        interval_ms: between two of them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    p99_ms: float = Field(ge=0)
    worst_ms: float = Field(ge=0)
    moments: int = Field(gt=0)
    interval_ms: float = Field(gt=0)


def loop_lag_of(observed: dict[str, Any]) -> LoopLag | None:
    """The record in a manifest's `observed`; None where there is none: the leg is from before this was measured, or was
    over within the first interval.

    Raises:
        InputError: the record is there and damaged.
    """
    found = observed.get(LOOP_LAG)
    if found is None:
        return None
    try:
        return LoopLag.model_validate(found)
    except ValidationError as error:
        text = f"observed.{LOOP_LAG}.{first_problem(error)}"
        raise InputError(text, "the record is damaged; repeat the run") from error
