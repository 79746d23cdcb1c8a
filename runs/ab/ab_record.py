"""`ab.json`: the systems of a comparison, its blocks, and the changes between the systems.

Times are in s, latencies in ms, changes are shares of the base's value. A value that was not measured is None.
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from runs.bench.bench_record import BenchRun, BenchStatus, Fact, Limits, LoadKind
from runs.errors import ExitCode, names_its_file
from runs.files.reading import read_as
from runs.files.writing import write_json
from runs.harness import PROGRAM
from runs.wording import four_digits

AB_FILE = "ab.json"
# interleaved: each query goes to one of the systems. turns: the systems take turns, in the order A B B A.
AbMethod = Literal["interleaved", "turns"]
AbVerdict = Literal["faster", "slower", "equal", "undecided"]


class _Part(BaseModel):
    """A part of ab.json. Later versions may add fields, so unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class AbSystem(_Part):
    """One of the compared systems."""

    name: str  # A is the base
    target: str  # URL, configuration file, model or command
    facts: dict[str, Fact] = Field(default_factory=dict)  # what the system reports about itself, and its options


class AbLoad(_Part):
    """A load at which the systems are compared."""

    kind: LoadKind
    qps: float | None = None  # rate for each system
    share: float | None = None  # requested rate as a share of the base's Offline rate
    concurrency: int | None = None

    def __str__(self) -> str:
        if self.kind == "offline":
            return "all queries at once"
        return f"{self.concurrency} open queries" if self.concurrency else f"{four_digits(self.qps or 0)} queries/s"


class AbBlock(_Part):
    """One run."""

    number: int  # from 1, in the order of execution
    load: int  # place in the list of loads
    pair: int  # number of the pair, from 0; interleaved: number of the block at this load
    systems: list[int]  # systems that the run measures
    first_row: int = 0  # number of the first prompt
    run: BenchRun
    seconds: float  # wall time of the run, with its start and its checks
    levels: dict[str, list[float | None]] = Field(default_factory=dict)  # quantity → mean of each system, in ms
    saturated: list[int] = Field(default_factory=list)  # systems that did not keep up with the rate
    late_share: float | None = None  # mean delay of the client before a query is issued, as a share of the TTFT
    foreign_share: float | None = None  # share of the cores' time that other processes used
    within: list[int | None] = Field(default_factory=list)  # queries of each system within the limits, if there are any


class AbChange(_Part):
    """The change of one quantity between the base and another system."""

    load: int
    system: int
    quantity: str  # such as "TTFT mean"
    unit: str
    is_main: bool  # the interval must reach the precision
    base: float | None
    value: float | None
    change: float
    low: float | None  # ends of the interval; None for an end that is infinite, or if the pairs are too few
    high: float | None
    values: list[float]  # change of each pair or batch
    times_s: list[float]  # middle of each pair or batch, from the start
    trimmed: list[int]  # places of values that were trimmed
    precision: float | None = None  # half-width with which the systems are called equal; None: that of the comparison
    verdict: AbVerdict
    needed_s: float | None = None  # time that the precision would need; None if it is reached or unknown
    drift: list[float] | None = None  # change in the first and in the second half, if they differ


class AbRecord(_Part):
    """The content of ab.json."""

    schema_version: Literal[1] = 1
    status: BenchStatus
    command: list[str]
    method: AbMethod
    systems: list[AbSystem]
    loads: list[AbLoad]
    precision: float
    max_time_s: float
    fail_if_slower: float | None
    seed: int
    conditions: dict[str, Fact]
    limits: Limits | None = None
    shares_machine: bool = False  # True if all systems run on the machine of the client
    blocks: list[AbBlock] = Field(default_factory=list)
    changes: list[AbChange] = Field(default_factory=list)
    withheld: list[str] = Field(default_factory=list)  # reasons why the changes support no statement
    notes: list[str] = Field(default_factory=list)
    sentences: list[str] = Field(default_factory=list)
    rows_used: int = 0
    other_s: float = 0.0  # wall time of warm-ups, starts of systems, and the run that measures the Offline rate
    error: str | None = None

    @property
    def elapsed_s(self) -> float:
        """Wall time of all blocks, warm-ups and starts."""
        return self.other_s + sum(block.seconds for block in self.blocks)

    def changes_of(self, load: int, system: int) -> list[AbChange]:
        """Return the changes of one system at a load."""
        return [change for change in self.changes if (change.load, change.system) == (load, system)]

    def queries(self, load: int, system: int) -> int:
        """Return the number of queries of one system at a load."""
        blocks = [block for block in self.blocks if block.load == load and system in block.systems]
        return sum(block.run.queries // len(block.systems) for block in blocks)

    def share_within(self, load: int, system: int) -> float | None:
        """Return the share of a system's queries within the limits; None without limits, or without their latencies."""
        blocks = [block for block in self.blocks if block.load == load and system in block.systems and block.within]
        within = [block.within[block.systems.index(system)] for block in blocks]
        queries = sum(block.run.queries // len(block.systems) for block in blocks)
        return sum(filter(None, within)) / queries if queries and None not in within else None

    def saturated_at(self, load: int) -> list[int]:
        """Return the systems that are saturated at a load: in at least half of its blocks."""
        blocks = [block for block in self.blocks if block.load == load and block.run.verdict != "failed"]
        systems = range(len(self.systems))
        return [
            system
            for system in systems
            if (own := [block for block in blocks if system in block.systems])
            and sum(system in block.saturated for block in own) * 2 >= len(own)
        ]

    def worse(self) -> list[AbChange]:
        """Return the changes that are worse than `fail_if_slower`."""
        limit = self.fail_if_slower
        slower = [change for change in self.changes if change.verdict == "slower"]
        return [] if limit is None else [change for change in slower if abs(change.change) > limit]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a complete comparison."""
        if self.fail_if_slower is None:
            return ExitCode.REFUSED if self.withheld else ExitCode.OK
        lost = [load for load in range(len(self.loads)) if (full := self.saturated_at(load)) and 0 not in full]
        if self.withheld:
            return ExitCode.REFUSED
        if lost or self.worse():
            return ExitCode.NEGATIVE
        saturated = any(self.saturated_at(load) for load in range(len(self.loads)))
        undecided = any(change.is_main and change.verdict == "undecided" for change in self.changes)
        return ExitCode.REFUSED if saturated or undecided or not self.changes else ExitCode.OK


def write_ab(folder: Path, record: AbRecord) -> None:
    """Write ab.json atomically."""
    write_json(folder / AB_FILE, record.model_dump(mode="json"))


@names_its_file
def read_ab_record(path: Path) -> AbRecord:
    """Read an ab.json.

    Raises:
        InputError: If the file or a field is missing, or a field is invalid.
    """
    return read_as(path, AbRecord, f"give the directory of a comparison (`{PROGRAM} ab`)", within=path.parent,
                   strict=True)  # fmt: skip
