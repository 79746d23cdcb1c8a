"""`bench.json`: the runs of a bench with their numbers, the conditions, and the best rate within the limits.

Rates are in queries/s and tokens/s, latencies in ms. A number that was not measured is None, never 0.
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from runs.errors import ExitCode, names_its_file
from runs.files.reading import read_as
from runs.files.writing import write_json
from runs.harness import PROGRAM
from runs.record.layout import BENCH_FILE

# offline: all queries at once; server: Poisson arrivals at a rate; concurrency: a fixed number of open queries.
LoadKind = Literal["offline", "server", "concurrency"]
# maximum: an Offline run. within, outside: by the limits. unchecked: the run cannot show whether the limits are met.
# measured: no limits apply. saturated: open queries grew, so the latencies depend on the length of the run. unclear: a
# part of the signs of saturation is present, the client may explain the latencies, or the tokenizer contradicts the
# server's numbers of tokens.
RateVerdict = Literal["maximum", "within", "outside", "unchecked", "measured", "saturated", "unclear", "failed"]
MET: tuple[RateVerdict, ...] = ("within", "measured")
VIOLATED: tuple[RateVerdict, ...] = ("outside", "saturated")
# Queries with which the bound of a percentile, by early stopping, may have some late queries. Highest percentile first.
NEEDED = {"p99": 662, "p95": 130, "p90": 64}
MAX_FAILED_SHARE = 0.01  # share of the requests of a run that may fail
RUNS = "runs"  # directory of the run directories
WARM_UP = 0  # number of a warm-up
BenchStatus = Literal["running", "complete", "interrupted", "failed"]
Fact = str | int | float | bool | None


class _Part(BaseModel):
    """A part of bench.json. Later versions may add fields, so unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Latency(_Part):
    """Statistics over all queries of a run, in ms; a percentile that the number of queries does not support is None."""

    mean: float
    p50: float
    p90: float | None
    p95: float | None
    p99: float | None
    max: float
    std: float | None = None  # None in files of earlier versions
    # Value at the rank of p99, although fewer queries than p99 needs may support it; for vLLM's file.
    rank_p99: float | None = None
    # Upper bound of the bench's percentile with 99% confidence, by LoadGen's early stopping; None if there is none.
    bound: float | None

    def at(self, percentile: str | None) -> float | None:
        """Return a statistic by name; None for no name."""
        value: float | None = getattr(self, percentile) if percentile else None
        return value


class OpenQueries(_Part):
    """Open queries in the last two thirds of the time from the first to the last arrival."""

    mean: float
    max: int
    growth: float  # growth of the number of open queries during the run, from a straight line through the numbers


class ClientLateness(_Part):
    """Delays that the harness adds to latencies: 99th percentiles in ms; None if not measured."""

    issue_to_engine: float | None  # from LoadGen's scheduled time until the query is sent to the engine or the socket
    read_to_loadgen: float | None  # from a server's bytes to the call of LoadGen
    loop_lag: float | None  # wait of a message for the next turn of the event loop


class OutputTokens(_Part):
    """Output tokens of all responses; None if unknown."""

    server: int | None  # number that the server reports in `usage`
    counted: int | None  # number of received token IDs, or of tokens of the received text by the tokenizer
    estimated: bool = False  # True if neither the server nor a tokenizer counts the tokens


class BenchRun(_Part):
    """One run of a bench."""

    number: int  # from 1, in order of execution
    kind: LoadKind
    repetition: int = 1  # number of the repetition, from 1 (--repeats)
    again: bool = False  # the second run at the best rate
    share: float | None = None  # requested rate as a share of the steady Offline rate
    asked_qps: float | None = None  # requested rate; None for offline and concurrency
    concurrency: int | None = None  # open queries, for concurrency
    scenario: str  # Server, Interactive, Offline or SingleStream
    verdict: RateVerdict
    reasons: list[str] = Field(default_factory=list)  # reasons for the verdict, and causes that may distort the numbers

    queries: int = 0
    errors: int = 0  # failed requests
    duration_s: float | None = None  # from the first arrival to the last completion
    offered_qps: float | None = None  # from the first to the last arrival
    done_qps: float | None = None  # completions/s in the time of OpenQueries; offline: the steady rate
    loadgen_qps: float | None = None  # LoadGen's rate, which includes the drain
    loadgen_verdict: str | None = None
    prompt_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    prompt_tokens_mean: float | None = None
    output_tokens_mean: float | None = None
    short_responses: int = 0  # responses with fewer tokens than requested, where the end token is ignored
    ttft: Latency | None = None  # server: from the scheduled time; concurrency: from the time when the query is sent
    tpot: Latency | None = None  # per token after the first one
    # Time between two parts of a response (events of a stream), over all responses; None if the engine does not send
    # parts of a few tokens.
    itl: Latency | None = None
    tokens_per_part: float | None = None  # mean number of tokens in a part after the first part
    latency: Latency | None = None
    within_limits: float | None = None  # share of the queries that met all limits
    open: OpenQueries | None = None
    drain_s: float | None = None  # from the last arrival to the last completion
    client: ClientLateness | None = None
    cached_share: float | None = None  # share of prompt tokens from a cache; None if the server does not count
    tokens: OutputTokens | None = None
    # Share of the cores' time that other processes used; None with a server on this machine, which is one of them.
    contention: float | None = None
    start_time_ns: int | None = None
    run_dir: str = ""  # relative to the bench's directory
    seal_sha256: str | None = None  # digest of the run's attestation


class Limits(_Part):
    """Latency limits in ms."""

    ttft: float | None = None
    tpot: float | None = None
    e2el: float | None = None  # of the whole latency, with vLLM's name

    def __str__(self) -> str:
        parts = (("TTFT", self.ttft), ("TPOT", self.tpot), ("latency", self.e2el))
        return ", ".join(f"{name} {value:g} ms" for name, value in parts if value is not None)


def limits_text(limits: Limits | None) -> str:
    """Return limits as the condition "limits" states them."""
    limits_ms = limits.model_dump(exclude_none=True) if limits else {}
    return ",".join(f"{name}={value!r}" for name, value in limits_ms.items()) or "none"


class Best(_Part):
    """The best rate within the limits: at least `low`, below `high`; None without such a rate."""

    low: float | None  # highest rate within the limits, below each rate that exceeds a limit
    high: float | None  # lowest rate above `low` outside the limits or saturated; None if no such rate was tried
    tokens_per_s: float | None = None  # output tokens of the run at `low`
    run: int | None = None  # number of the run at `low`
    again: int | None = None  # number of the second run at this rate


class Conditions(_Part):
    """The conditions under which the numbers were measured."""

    # Facts that must be equal in a comparison: data, lengths, limits, percentile, scenario, sampling, token counting,
    # cache state, duration of a run. Name → value, for a reader.
    equal: dict[str, Fact]
    # Facts that a change may alter: engine, version, options, model, precision, accelerators, driver, harness.
    system: dict[str, Fact]


class BenchRecord(_Part):
    """The content of bench.json."""

    schema_version: Literal[1] = 1
    status: BenchStatus
    label: str
    metadata: dict[str, str] = Field(default_factory=dict)
    command: list[str]  # words of the command line
    target: str  # model or URL
    model: str | None = None  # name of a server's model
    tokenizer: str | None = None  # folder or hub ID
    conditions: Conditions
    limits: Limits | None  # None: the scenario has no limits for this model
    percentile: str | None  # p99, p95 or p90, for all runs; None if a run has too few queries
    percentile_reason: str  # the number of queries that decides the percentile, in words
    arrivals: str = "Poisson, from LoadGen's seed"
    accelerators: int | None = None
    runs: list[BenchRun] = Field(default_factory=list)
    rows_used: int = 0  # rows of the source of prompts that runs have used, including unfinished runs
    best: Best | None = None
    warnings: list[str] = Field(default_factory=list)
    error: str | None = None  # why the bench ended early

    @property
    def _loads(self) -> list[BenchRun]:
        return [run for run in self.runs if run.kind != "offline" and run.verdict != "failed"]

    @property
    def undecided(self) -> str | None:
        """The reason why the bench cannot state whether a rate is within the limits; None if it can."""
        if self.limits is None or self.best is not None or any(run.verdict == "within" for run in self._loads):
            return None
        undecided = [run for run in self._loads if run.verdict not in VIOLATED]
        if not undecided:
            return None
        if self.percentile is None:
            return too_few_queries(min(run.queries for run in undecided))
        run = min(undecided, key=lambda run: run.verdict == "unclear")
        return f"run {run.number} is {run.verdict}: {run.reasons[0]}"

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a complete bench."""
        if any(run.verdict == "failed" or run.errors > MAX_FAILED_SHARE * run.queries for run in self.runs):
            return ExitCode.FAILED
        if self.undecided is not None:
            return ExitCode.REFUSED
        has_rate = any(run.kind == "concurrency" and run.verdict == "within" for run in self._loads)
        has_rate |= self.best is not None and self.best.low is not None
        return ExitCode.OK if has_rate or self.limits is None or not self._loads else ExitCode.NEGATIVE


def numbered(number: int) -> str:
    """Return the beginning of the name of a run directory."""
    return f"{number:02}-"


def too_few_queries(queries: int, percentile: str | None = None) -> str:
    """Return why the limits are not checked in a run with few queries; without a percentile, for the lowest one."""
    name = percentile or list(NEEDED)[-1]
    return f"limits not checked: {queries:,} queries, {NEEDED[name]} are needed for {name}"


def write_bench(folder: Path, record: BenchRecord) -> None:
    """Write bench.json atomically."""
    write_json(folder / BENCH_FILE, record.model_dump(mode="json"))


@names_its_file
def read_bench_record(path: Path) -> BenchRecord:
    """Read a bench.json.

    Raises:
        InputError: If the file or a field is missing, or a field is invalid.
    """
    fix = f"give the directory of a bench (`{PROGRAM} bench`)"
    return read_as(path, BenchRecord, fix, within=path.parent, strict=True)
