"""Where the time of a leg's queries went inside vLLM, by vLLM's own statistics: `observed["engine"]` of manifest.json.

vLLM stamps a query when it is queued, first computed, has its first token and its last. Queries are computed together,
so these are shares of the queries' time, not of the accelerator's; what preemption costs lies in prefill and decode.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

QUERY_TIMES = "query_times"  # the key in `observed["engine"]`, or in each of its replicas


class QueryTimes(BaseModel):
    """Sums over queries, in seconds; warm-ups are not counted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    queries: int = Field(default=0, ge=0)
    queued_s: float = Field(default=0.0, ge=0)
    prefill_s: float = Field(default=0.0, ge=0)
    decode_s: float = Field(default=0.0, ge=0)

    def __add__(self, other: "QueryTimes") -> "QueryTimes":
        mine, theirs = self.model_dump(), other.model_dump()
        return QueryTimes(**{name: value + theirs[name] for name, value in mine.items()})


class _Seen(BaseModel):
    query_times: QueryTimes | None = None
    replicas: list["_Seen"] = []


def query_times_of(seen: dict[str, Any] | None) -> QueryTimes | None:
    """Of all engines of a leg together; None where vLLM's statistics were off, or another engine ran.

    Args:
        seen: `observed["engine"]`.

    Raises:
        ValueError: the record is damaged.
    """
    whole = _Seen.model_validate(seen or {})
    found = [one.query_times for one in (whole, *whole.replicas) if one.query_times is not None]
    return sum(found, QueryTimes()) if found else None
