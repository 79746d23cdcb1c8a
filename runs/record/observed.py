"""`observed` of manifest.json: facts of the machine, and measurements of a run.

contention: use of the cores by other processes. loop_lag: delays of the run's event loop, which passes data between
LoadGen and the engine, so first tokens and responses may be reported with this delay. query_times of an engine: the
parts of the queries' time inside vLLM, from its statistics. Queries are computed together, so these are shares of
the queries' time, not of the accelerator's time; prefill and decode include the cost of preemption.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from runs.files.fields import Amount, AtLeastOne, Count, Sha256, StrictModel, Text, Versions, strictly
from runs.machine.environment import ACCELERATOR_FACTS

FOREIGN_SHARE = 0.10  # share of the usable cores, above the needs of an idle system


def _with_all_facts(row: dict[str, str | None]) -> dict[str, str | None]:
    """Return the row; raise ValueError if it has not exactly the facts of an accelerator."""
    names = {"vendor", *ACCELERATOR_FACTS} ^ (row.keys() - {"visible_by", "problem", "host"})
    if names:
        raise ValueError(f"{', '.join(sorted(names))}: missing, or not a fact of an accelerator")
    return row


# A row of `runs.machine.accelerators`; with `host` if it is in another machine of a cluster.
Accelerator = Annotated[dict[str, str | None], AfterValidator(_with_all_facts)]


class Harness(StrictModel):
    version: Text
    # git_commit, git_changed: both None outside a checkout
    git_commit: Annotated[str, Field(pattern="^([0-9a-f]{40}|[0-9a-f]{64})$")] | None
    git_changed: bool | None


class EnginePackage(StrictModel):
    """The package of an engine that is not part of the harness."""

    name: Text
    version: Text


class LoadgenBuild(StrictModel):
    """How LoadGen's extension module was built."""

    kind: Literal["wheel", "source"]  # wheel: built by MLCommons
    # compiler, pybind11: versions; None for a wheel, and for a build without `make setup`
    compiler: Text | None
    pybind11: Text | None


class Loadgen(StrictModel):
    version: Text
    extension: Text
    extension_sha256: Sha256
    build: LoadgenBuild | None = None  # None in earlier manifests


class Host(StrictModel):
    hostname: Text
    boot_id: Text | None
    system: Text
    cpu: str
    cores_usable: AtLeastOne
    cores_logical: AtLeastOne | None
    memory_bytes: AtLeastOne


class Weights(StrictModel):
    """Facts from the headers of a model's safetensors files (`qsl.weights`)."""

    files: Count
    tensors: Count
    parameters: Count  # number of parameters, with packed parameters counted separately and without scales
    dtypes: dict[str, Count]  # number of values by type in the headers: BF16, F8_E4M3, U8, …
    precision: Text  # data type of most weights: bfloat16, float16, float32, fp8_w8a8, int4_w4a16, …
    quantized: bool  # according to a weight's type or the model's configuration
    sparse: bool  # according to the model's configuration
    shape: dict[str, int | None]  # keys of config.json that distinguish models
    headers_sha256: Sha256  # SHA-256 of all names, types and shapes


class Model(StrictModel):
    name: Text
    folder: Text | None
    revision: Text | None
    weights: Weights | None  # None for an engine without a model, or a server
    sha256: dict[Text, Sha256] = Field(default_factory=dict)  # SHA-256 by file; hashed during the run


class NotRecorded(StrictModel):
    """The reason why a measurement is missing, such as a system that does not report CPU times."""

    not_recorded: Text


class Contention(StrictModel):
    """CPU time of the cores that a run may use, from LoadGen's start to its end."""

    window_s: float = Field(gt=0)  # from the first reading to the second
    usable_cores: AtLeastOne  # number of cores that the run's process may use
    busy_cpu_s: Amount  # time used by processes, interrupts and other virtual machines
    stolen_cpu_s: Amount  # part of busy_cpu_s that the hypervisor gave to other virtual machines
    own_cpu_s: Amount  # used by the run's process group, its descendants, and the process that started it
    foreign_cpu_s: Amount  # the rest of busy_cpu_s; never negative
    # load_average_start, load_average_end: load averages over one minute
    load_average_start: Amount
    load_average_end: Amount

    @property
    def foreign_share(self) -> float:
        """The share of the usable cores' time that other processes used, 0 to 1."""
        return self.foreign_cpu_s / (self.window_s * self.usable_cores)

    @property
    def cores_taken(self) -> int:
        """The number of cores that other processes used, rounded."""
        return min(self.usable_cores, int(self.foreign_cpu_s / self.window_s + 0.5))


class LoopLag(StrictModel):
    """The wait of a message for the loop's next turn, sampled at regular moments."""

    p99_ms: Amount
    worst_ms: Amount
    moments: AtLeastOne  # number of moments
    interval_ms: float = Field(gt=0)  # interval between two moments


class QueryTimes(StrictModel):
    """Sums over queries, in seconds; warm-ups are not counted."""

    queries: Count = 0
    queued_s: Amount = 0.0
    prefill_s: Amount = 0.0
    decode_s: Amount = 0.0

    def __add__(self, other: "QueryTimes") -> "QueryTimes":
        mine, added = self.model_dump(), other.model_dump()
        return QueryTimes(**{name: value + added[name] for name, value in mine.items()})


class LatenessSummary(StrictModel):
    """How late a client was, in ms, and the number of queries."""

    model_config = strictly("allow")

    count: Count
    p99_ms: Amount | None = None


class TextResponses(StrictModel):
    """The text responses of a server to the timed queries. The client counts in this object during a run."""

    model_config = strictly("allow", frozen=False)

    is_tokenized: bool  # True if tokens were counted with the model's tokenizer; otherwise LoadGen got zeros
    # Tokens of the responses with usage: by both counts, and as LoadGen received them (0 in earlier versions).
    responses_with_usage: Count = 0
    tokens_by_usage: Count = 0
    tokens_by_tokenizer: Count = 0
    tokens_for_loadgen: Count = 0
    # Prompt tokens of the same responses, by both counts.
    prompt_tokens_by_usage: Count = 0
    prompt_tokens_sent: Count = 0
    responses_estimated: Count = 0  # responses whose tokens are the number of chunks
    # short, long: responses with fewer and with more tokens than requested
    short: Count = 0
    long: Count = 0
    empty: Count = 0  # responses without text
    # with_finish_reason includes responses before the timed run; without_finish_reason are responses with text.
    with_finish_reason: Count = 0
    without_finish_reason: Count = 0
    padded: Count = 0  # responses with fewer tokens than LoadGen accepts, to which an ID was added
    issue_to_text: LatenessSummary = LatenessSummary(count=0)  # until the first text after reasoning

    @property
    def failed(self) -> int:
        """Number of empty and cut responses."""
        return self.empty + (self.without_finish_reason if self.with_finish_reason else 0)


class ServerClient(StrictModel):
    """A server, as its client observed it over the timed queries of a run. The client counts in this object.

    LoadGen takes a time when it is called, so its times contain the client's own delay. That delay is measured here:
    from issue to the request's last byte on the wire, and from the read of a response to the call of LoadGen.
    """

    model_config = strictly("allow", frozen=False)

    server: Text  # URL
    on_this_machine: bool = False  # True if the server is on LoadGen's machine
    counts_reuse: bool = False  # True if the server reports its use of a cache, in every response or in its metrics
    answers: Count = 0
    tokens: Count = 0
    chunks: Count = 0  # events with token IDs or text
    cached_tokens: Count = 0  # prompt tokens that the server read from a cache
    answers_with_cached_count: Count = 0  # responses that report how many prompt tokens were read from a cache
    answers_with_their_prompt: Count = 0  # responses that returned the prompt's IDs
    answers_with_their_id: Count = 0  # responses that returned the request's ID
    answers_read_at_once: Count = 0  # streamed responses whose IDs all arrived in one read, so that TPOT is 0
    answers_in_one_chunk: Count = 0  # responses that arrived in one chunk
    first_tokens_with_others: Count = 0  # first chunks with more than one ID
    # Counted since the start of the client, with probes and warm-up; None without metrics of the server.
    cached_tokens_by_metrics: Count | None = None
    tokens_by_metrics: Count | None = None
    tokens_that_came: Count = 0
    issue_to_wire: LatenessSummary = LatenessSummary(count=0)
    read_to_loadgen: LatenessSummary = LatenessSummary(count=0)  # in the client's own process
    # From the last token of a stream to the read that completed the query, and to the end of the response; None in
    # earlier versions.
    last_token_to_loadgen: LatenessSummary | None = None
    last_token_to_end: LatenessSummary | None = None
    text: TextResponses | None = None  # None for a server that sends token IDs
    loop_lag: LoopLag | None = None  # of the client's event loop
    connections_renewed: Count = 0

    @property
    def has_usage(self) -> bool:
        """True for a server that sends text and counts the tokens of each response."""
        return self.text is not None and self.text.responses_with_usage == self.answers

    @property
    def each_response_counts_reuse(self) -> bool:
        return self.answers_with_cached_count == self.answers


class EngineSeen(StrictModel):
    """The measurements of one engine in a run."""

    query_times: QueryTimes | None = None  # only for vLLM with statistics
    client: ServerClient | None = None  # only for clients of servers


class Observed(StrictModel):
    """Facts of the machine before the start, and measurements of the run; None until they are known."""

    model_config = strictly(frozen=False)

    harness: Harness
    software: Annotated[Versions, Field(min_length=1)]  # distribution → version
    loadgen: Loadgen
    host: Host
    accelerators: list[Accelerator]
    model: Model
    cached_prompt_tokens: Count | None = None  # prompt tokens reused across queries
    contention: Contention | NotRecorded | None = None
    loop_lag: LoopLag | None = None
    start_stages: dict[str, Amount] | None = None  # stage → duration in s
    engines: list[EngineSeen] = Field(default_factory=list)
    read_to_loadgen: LatenessSummary | None = None  # from reading a server's response to calling LoadGen
    engine_package: EnginePackage | None = None  # package of an engine that is not part of the harness
    rejected_connections: Count | None = None  # connections rejected at the socket of a run with replicas

    @property
    def foreign_share(self) -> float:
        """The share of the cores' time that other processes used, 0 to 1; 0 if it was not recorded."""
        return min(1.0, self.contention.foreign_share) if isinstance(self.contention, Contention) else 0.0

    @property
    def query_times(self) -> QueryTimes | None:
        """The times of all engines together; None without vLLM's statistics."""
        times = [engine.query_times for engine in self.engines if engine.query_times is not None]
        return sum(times, QueryTimes()) if times else None

    @property
    def clients(self) -> list[ServerClient]:
        """The clients of a run over HTTP, one per process."""
        return [engine.client for engine in self.engines if engine.client is not None]
