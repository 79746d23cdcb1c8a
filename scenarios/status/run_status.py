"""The state of a run or of a group of runs, as values."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from runs.errors import ExitCode
from runs.record.progress import Progress

if TYPE_CHECKING:  # Only commands that read a manifest import this code.
    from runs.record.manifest import Manifest

# "silent": no recent heartbeat, although the process is alive or on another machine.
# "unattested": complete, but the attestation is missing.
StateName = Literal["running", "silent", "finished", "unattested", "interrupted", "failed", "killed", "damaged"]
DirectoryKind = Literal["campaign", "tune", "bench", "curve", "audit", "leg"]
Row = dict[str, Any]  # facts and numbers of a run, by column of `results`
LATENCIES, STATISTICS = ("ttft", "tpot", "latency"), ("mean", "p50", "p90", "p99")  # columns NAME_STATISTIC_ms


@dataclass(frozen=True, kw_only=True)
class _Status:
    root: Path
    state: StateName
    text: str = ""  # phase, verdict or reason of the end
    exit_code: ExitCode = ExitCode.OK
    pid: int | None = None

    @property
    def alive(self) -> bool:
        return self.state in ("running", "silent")


@dataclass(frozen=True, kw_only=True)
class RunStatus(_Status):
    """The state of one run."""

    kind: ClassVar[DirectoryKind] = "leg"
    what: str = ""  # scenario and mode
    started_ns: int | None = None
    seen_ns: int | None = None  # time of the end or of the last heartbeat
    host: str = ""
    progress: Progress | None = field(default=None, repr=False)
    manifest: "Manifest | None" = field(default=None, repr=False)
    row: Callable[[], Row] = field(default=dict, repr=False)  # empty for a run without a result

    @property
    def last_ns(self) -> int:
        return self.seen_ns or self.started_ns or 0


@dataclass(frozen=True, kw_only=True)
class GroupStatus(_Status):
    """The state of one campaign, tuning, bench, curve or audit."""

    kind: DirectoryKind
    runs: tuple[RunStatus, ...]
    audits: tuple["GroupStatus", ...] = ()  # audits of a campaign
    done: int | None = None  # finished runs of a campaign, or points of a curve
    total: int | None = None

    @property
    def last_ns(self) -> int:
        return max((run.last_ns for run in self.runs), default=0)
