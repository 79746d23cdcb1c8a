"""What the record of a leg tells of the time in which its clock ran: `observed` of manifest.json.

contention: who else used the cores. loop_lag: how late the leg's event loop was: everything between LoadGen and the
engine happens on it, so that a first token or an answer may be told this much late. query_times, in `engine`: where the
queries' time went inside vLLM, by its own statistics: vLLM stamps a query when it is queued, first computed, has its
first token and its last; queries are computed together, so these are shares of the queries' time, not of the
accelerator's, and what preemption costs lies in prefill and decode.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runs.errors import InputError
from runs.reading import first_problem

# Keys in `observed`; the last one in its `engine`, or in each of that one's replicas.
CONTENTION, LOOP_LAG, QUERY_TIMES = "contention", "loop_lag", "query_times"
NOT_RECORDED = "not_recorded"  # in place of contention where the times could not be read: why
# Of the cores that a leg may use: a tenth of the machine is more than an idle system needs for itself.
FOREIGN_SHARE = 0.10
OF_A_LIMIT = 0.05  # a client that was later than this share of a limit is flagged


class _Observed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


Form = TypeVar("Form", bound=_Observed)


class Contention(_Observed):
    """CPU time of the cores that a leg may use, from LoadGen's start to its end."""

    window_s: float = Field(gt=0)  # from the first reading to the second
    usable_cores: int = Field(gt=0)  # number of cores that the leg's process may use
    busy_cpu_s: float = Field(ge=0)  # what was used of them by anybody: processes, interrupts, other virtual machines
    stolen_cpu_s: float = Field(ge=0)  # the part of it that the hypervisor gave to other virtual machines
    # what the harness used: the leg's process group, all descendants, and the process that started it
    own_cpu_s: float = Field(ge=0)
    foreign_cpu_s: float = Field(ge=0)  # the rest; never negative
    # load_average_start, load_average_end: of the last minute, as the system tells it
    load_average_start: float = Field(ge=0)
    load_average_end: float = Field(ge=0)

    @property
    def foreign_share(self) -> float:
        """Of the usable cores' time, 0 to 1."""
        return self.foreign_cpu_s / (self.window_s * self.usable_cores)


class LoopLag(_Observed):
    """What a message would have waited for the loop's next turn, at moments a fixed interval apart."""

    # p99_ms, worst_ms: of all moments
    p99_ms: float = Field(ge=0)
    worst_ms: float = Field(ge=0)
    moments: int = Field(gt=0)  # how many there were
    interval_ms: float = Field(gt=0)  # between two of them


class QueryTimes(_Observed):
    """Sums over queries, in seconds; warm-ups are not counted."""

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
    return _read(found, Contention, CONTENTION)


def foreign_share(observed: dict[str, Any]) -> float:
    """What others used of the cores while a leg's clock ran, 0 to 1; 0 where nothing sound is on record."""
    try:
        found = contention_of(observed)
    except InputError:
        return 0.0
    return 0.0 if isinstance(found, str) else min(1.0, found.foreign_share)


def loop_lag_of(observed: dict[str, Any]) -> LoopLag | None:
    """The record in a manifest's `observed`; None where there is none: the leg is from before this was measured, or was
    over within the first interval.

    Raises:
        InputError: the record is there and damaged.
    """
    found = observed.get(LOOP_LAG)
    return None if found is None else _read(found, LoopLag, LOOP_LAG)


def _read(found: Any, form: type[Form], key: str) -> Form:
    try:
        return form.model_validate(found)
    except ValidationError as error:
        text = f"observed.{key}.{first_problem(error)}"
        raise InputError(text, "the record is damaged; repeat the run") from error


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


def late_client(observed: dict[str, Any], loadgen_settings: dict[str, Any]) -> Iterator[str]:
    """Sentences on a client that was later than `OF_A_LIMIT` of a limit (p99); nothing where no client measured itself.

    LoadGen stamps when it is called, so its times hold the client's own lateness: that is little, or the times are the
    client's as much as the server's.

    Args:
        loadgen_settings: of the manifest; limits in ns. LoadGen's settings have them in every scenario and judge by
            them in Server alone.
    """
    if loadgen_settings.get("scenario") != "Server":
        return
    record = observed.get("engine") or {}
    clients = record.get("replicas") or [record]
    sent = [late for client in clients if (late := (client.get("issue_to_wire") or {}).get("p99_ms")) is not None]
    told_ms = (record.get("read_to_loadgen") or {}).get("p99_ms")
    if not sent or told_ms is None:
        return
    sent_ms = max(sent)
    tokens = sum(client["tokens"] for client in clients) / max(1, sum(client["answers"] for client in clients))
    shares = (
        ("TTFT", "ttft_latency", sent_ms + told_ms),
        ("TPOT", "tpot_latency", told_ms / max(1.0, tokens - 1)),
    )
    for name, setting, late_ms in shares:
        limit_ns = loadgen_settings.get(setting)
        if limit_ns and late_ms > OF_A_LIMIT * limit_ns / 1e6:
            yield (
                f"the client itself was {late_ms:.1f} ms late (p99), more than {OF_A_LIMIT:.0%} of the {name} limit of "
                f"{limit_ns / 1e6:.0f} ms: give it more cores, or more client processes"
            )
