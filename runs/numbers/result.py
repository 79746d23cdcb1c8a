"""`result.json`: the result of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from runs.errors import names_its_file
from runs.files.reading import read_as
from runs.files.writing import write_json
from runs.harness import PROGRAM
from runs.loadgen.early_stopping import LatencyVerdict
from runs.numbers.load import Load
from runs.numbers.numbers import Numbers
from runs.record.layout import RunDir

LoadGenVerdict = Literal["VALID", "INVALID", "DONE"]


@dataclass(frozen=True)
class Disagreement:
    """A number that differs. `tolerance` is absolute, in `unit`; 0 means exact.

    `about`: numbers differ from the request log, the order of issue from the seeds, the summary from the detail
    log (then `reported` is the whole sentence).
    """

    name: str
    reported: int | float | str | None
    derived: int | float | str | None
    tolerance: float
    unit: str
    about: Literal["numbers", "order", "summary"] = "numbers"
    seq: int | None = None  # position of the sample that decides a recomputed minimum or maximum, in order of issue

    def __str__(self) -> str:
        near = f" ± {self.tolerance:g}" if self.tolerance else ""
        return f"{self.name}: reported {self.reported}, re-derived {self.derived}{near} {self.unit}".rstrip()


@dataclass(frozen=True)
class EarlyStopping:
    """LoadGen's early stopping.

    Server: `verdicts` by limit ("tpot" and "ttft", or "latency" without token latencies). SingleStream:
    `estimates_ns` by name ("ttft_p90", "tpot_p99", ...), None if the run is too short for one.
    """

    met: bool
    percentile: float  # as a share, such as 0.99
    queries_needed: int  # required number of queries without a late query
    verdicts: dict[str, LatencyVerdict]
    estimates_ns: dict[str, int | None]


class _Record(BaseModel):
    """A part of result.json. Other versions may have written it, so unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Counts(_Record):
    """Numbers of samples; None for a number that the files do not state."""

    samples: int | None  # samples in requests.jsonl
    samples_expected: int | None  # samples that LoadGen issued, or in an accuracy run must issue


class EffectiveSettings(_Record):
    """The effective settings of LoadGen; limits in the Server scenario only."""

    target_qps: float
    min_duration_ms: int
    min_query_count: int
    performance_sample_count: int
    ttft_limit_ns: int | None
    tpot_limit_ns: int | None
    qsl_rng_seed: int
    sample_index_rng_seed: int
    schedule_rng_seed: int


class RunNumbers(_Record):
    """The result of a run. If `disagreements` has entries, the files contradict each other and no number counts.

    If the log has error records, only the summary is compared, because LoadGen marks its numbers as invalid.
    """

    schema_version: Literal[1] = 1
    scenario: str  # requested scenario; LoadGen runs Interactive as Server
    mode: str  # PerformanceOnly or AccuracyOnly
    verdict: (
        LoadGenVerdict  # performance: VALID or INVALID; accuracy: DONE, or INVALID with an error or a missing sample
    )
    reasons: list[str]  # reasons why the run is not valid, and advice
    notes: list[str]
    loadgen_verdict: str | None
    duration_ns: int | None = None  # duration that is compared with the minimum duration
    in_force: EffectiveSettings
    reported: Numbers | None = None
    derived: Numbers | None = None
    derived_from: Literal["trace", "requests"] | None = None
    early_stopping: EarlyStopping | None = None
    load: Load | None = None  # only in Server
    disagreements: list[Disagreement] = Field(default_factory=list)
    counts: Counts
    output_tokens_mean: float | None = None


def write_result(run: RunDir, result: RunNumbers) -> None:
    """Write `result.json` atomically."""
    write_json(run.result, result.model_dump(mode="json"))


@names_its_file
def read_result(path: Path) -> RunNumbers:
    """Read a `result.json`.

    Raises:
        InputError: If the file or a field is missing, or a field is invalid.
    """
    fix = f"use the result.json of the run, or recreate it with `{PROGRAM} verify`"
    return read_as(path, RunNumbers, fix, within=path.parent, strict=True)
