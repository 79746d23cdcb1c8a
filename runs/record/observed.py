"""`observed` of manifest.json: what was found on the machine, and measured while a leg ran.

contention: who else used the cores. loop_lag: how late the leg's event loop was: everything between LoadGen and the
engine happens on it, so that a first token or an answer may be told this much late. query_times, of each engine: where
the queries' time went inside vLLM, by its own statistics. vLLM stamps a query when it is queued, first computed, has
its first token and its last; queries are computed together, so these are shares of the queries' time, not of the
accelerator's, and what preemption costs lies in prefill and decode.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from runs.accelerators import FACTS
from runs.fields import Amount, AtLeastOne, Count, Part, Sha256, Text, Versions, strictly

# Of the cores that a leg may use: a tenth of the machine is more than an idle system needs for itself.
FOREIGN_SHARE = 0.10
OF_A_LIMIT = 0.05  # a client that was later than this share of a limit is flagged


def _is_accelerator(row: dict[str, str | None]) -> dict[str, str | None]:
    wrong = {"vendor", *FACTS} ^ (row.keys() - {"visible_by", "problem", "host"})
    if wrong:
        raise ValueError(f"{', '.join(sorted(wrong))}: absent, or no fact of an accelerator")
    return row


# As `runs.accelerators` has it; with `host` where it is another machine of a cluster.
Accelerator = Annotated[dict[str, str | None], AfterValidator(_is_accelerator)]


class Harness(Part):
    version: Text
    # git_commit, git_changed: both None outside of a checkout
    git_commit: Annotated[str, Field(pattern="^([0-9a-f]{40}|[0-9a-f]{64})$")] | None
    git_changed: bool | None


class Loadgen(Part):
    version: Text
    extension: Text
    extension_sha256: Sha256


class Host(Part):
    hostname: Text
    boot_id: Text | None
    system: Text
    cpu: str
    cores_usable: AtLeastOne
    cores_logical: AtLeastOne | None
    memory_bytes: AtLeastOne


class Weights(Part):
    """What the files of a model's weights say of themselves (`qsl.weights` reads them)."""

    # files, tensors: of the safetensors files
    files: Count
    tensors: Count
    parameters: Count  # numbers in the weights, packed ones counted each, scales left out
    dtypes: dict[str, Count]  # numbers by the type that the headers have for them: BF16, F8_E4M3, U8, …
    precision: Text  # of most numbers: bfloat16, float16, float32; or how they are quantised: fp8_w8a8, int4_w4a16, …
    quantized: bool  # whether any weight is held in fewer bits, or the model's configuration says so
    sparse: bool  # whether the configuration says that weights were left out
    shape: dict[str, int | None]  # keys of config.json that tell a model from others
    headers_sha256: Sha256  # of all names, types and shapes


class Model(Part):
    name: Text
    folder: Text | None
    revision: Text | None
    weights: Weights | None  # None: an engine without a model, or a server's
    sha256: dict[Text, Sha256] = Field(default_factory=dict)  # of the folder's files; hashed while the leg runs


class NotRecorded(Part):
    """Why a measurement is absent, such as CPU times on a system that does not tell them."""

    not_recorded: Text


class Contention(Part):
    """CPU time of the cores that a leg may use, from LoadGen's start to its end."""

    window_s: float = Field(gt=0)  # from the first reading to the second
    usable_cores: AtLeastOne  # number of cores that the leg's process may use
    busy_cpu_s: Amount  # what was used of them by anybody: processes, interrupts, other virtual machines
    stolen_cpu_s: Amount  # the part of it that the hypervisor gave to other virtual machines
    # what the harness used: the leg's process group, all descendants, and the process that started it
    own_cpu_s: Amount
    foreign_cpu_s: Amount  # the rest; never negative
    # load_average_start, load_average_end: of the last minute, as the system tells it
    load_average_start: Amount
    load_average_end: Amount

    @property
    def foreign_share(self) -> float:
        """Of the usable cores' time, 0 to 1."""
        return self.foreign_cpu_s / (self.window_s * self.usable_cores)


class LoopLag(Part):
    """What a message would have waited for the loop's next turn, at moments a fixed interval apart."""

    # p99_ms, worst_ms: of all moments
    p99_ms: Amount
    worst_ms: Amount
    moments: AtLeastOne  # how many there were
    interval_ms: float = Field(gt=0)  # between two of them


class QueryTimes(Part):
    """Sums over queries, in seconds; warm-ups are not counted."""

    queries: Count = 0
    queued_s: Amount = 0.0
    prefill_s: Amount = 0.0
    decode_s: Amount = 0.0

    def __add__(self, other: "QueryTimes") -> "QueryTimes":
        mine, theirs = self.model_dump(), other.model_dump()
        return QueryTimes(**{name: value + theirs[name] for name, value in mine.items()})


class LatenessSummary(Part):
    """How late a client was, in ms, and over how many queries."""

    model_config = strictly("allow")

    count: Count
    p99_ms: Amount | None = None


class ServerClient(Part):
    """What the client of a server saw of it in a leg."""

    model_config = strictly("allow")

    server: Text  # its URL
    on_this_machine: bool  # what was sent to the server stayed on LoadGen's machine
    counts_reuse: bool  # the server said, of every answer or of all together, what it took from a cache
    answers: Count
    tokens: Count
    cached_tokens: Count
    answers_with_cached_count: Count
    answers_with_their_prompt: Count
    answers_with_their_id: Count
    answers_read_at_once: Count
    answers_in_one_chunk: Count
    first_tokens_with_others: Count
    cached_tokens_by_metrics: Count | None
    tokens_by_metrics: Count | None
    tokens_that_came: Count
    issue_to_wire: LatenessSummary
    read_to_loadgen: LatenessSummary  # in the client's own process


class EngineSeen(Part):
    """What one engine saw of itself in a leg."""

    query_times: QueryTimes | None = None  # of vLLM, where its statistics were on
    client: ServerClient | None = None  # of a server


class Observed(Part):
    """What was found on the machine before the start, and measured while the leg ran; None until it is known."""

    model_config = strictly(frozen=False)

    harness: Harness
    software: Annotated[Versions, Field(min_length=1)]  # distribution → version
    loadgen: Loadgen
    host: Host
    accelerators: list[Accelerator]
    model: Model
    cached_prompt_tokens: Count | None = None  # taken from a cache across queries
    contention: Contention | NotRecorded | None = None
    loop_lag: LoopLag | None = None
    start_stages: dict[str, Amount] | None = None  # seconds
    engines: list[EngineSeen] = Field(default_factory=list)
    read_to_loadgen: LatenessSummary | None = None  # from the read of a server's answer to the call of LoadGen
    rejected_connections: Count | None = None  # by the socket of a leg with replicas

    @property
    def foreign_share(self) -> float:
        """What others used of the cores while the leg's clock ran, 0 to 1; 0 where it was not recorded."""
        return min(1.0, self.contention.foreign_share) if isinstance(self.contention, Contention) else 0.0

    @property
    def query_times(self) -> QueryTimes | None:
        """Of all engines together; None where vLLM's statistics were off, or another engine ran."""
        found = [one.query_times for one in self.engines if one.query_times is not None]
        return sum(found, QueryTimes()) if found else None

    @property
    def clients(self) -> list[ServerClient]:
        """One for each client process of a leg over HTTP."""
        return [one.client for one in self.engines if one.client is not None]

    @property
    def lacks(self) -> list[str]:
        """What a finished leg has measured, and this record has not."""
        measured = ("cached_prompt_tokens", "contention", "loop_lag", "start_stages")
        return [name for name in measured if getattr(self, name) is None]


def late_client(observed: Observed, limits_ns: Mapping[str, int]) -> Iterator[str]:
    """Sentences on a client that was later than `OF_A_LIMIT` of a limit (p99); nothing where no client measured itself.

    LoadGen stamps when it is called, so its times hold the client's own lateness: that is little, or the times are the
    client's as much as the server's.

    Args:
        limits_ns: by TTFT and TPOT, those that LoadGen judges the leg by.
    """
    clients = observed.clients
    sent = [client.issue_to_wire.p99_ms for client in clients if client.issue_to_wire.p99_ms is not None]
    told_ms = observed.read_to_loadgen.p99_ms if observed.read_to_loadgen is not None else None
    if not sent or told_ms is None:
        return
    tokens = sum(client.tokens for client in clients) / max(1, sum(client.answers for client in clients))
    late_ms = {"TTFT": max(sent) + told_ms, "TPOT": told_ms / max(1.0, tokens - 1)}
    for name, limit_ns in limits_ns.items():
        if late_ms[name] > OF_A_LIMIT * limit_ns / 1e6:
            yield (
                f"the client itself was {late_ms[name]:.1f} ms late (p99), more than {OF_A_LIMIT:.0%} of the {name} "
                f"limit of {limit_ns / 1e6:.0f} ms: give it more cores, or more client processes"
            )
