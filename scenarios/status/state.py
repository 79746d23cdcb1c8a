"""The state of a leg, and of a group of legs (campaign, tune, audit), from their files."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from runs.endpoints.folder import EndpointsRun, read_folder
from runs.endpoints.layout import is_run_folder
from runs.errors import ExitCode, HarnessError
from runs.reading import read_as, read_object
from runs.record.layout import CampaignDir, RunDir
from runs.record.progress import SILENCE_RUNNING_S, SILENCE_STARTING_S, Progress, read_progress
from runs.wording import counted
from scenarios.status.find import FoundDir, Kind, holder_of
from scenarios.tune.tune_dir import TuneDir

if TYPE_CHECKING:  # the records of legs are read where there are any
    from runs.numbers.result import Result
    from runs.record.manifest import Manifest

# "silent": its process runs, or is on another machine, and has written no heartbeat for too long.
State = Literal["running", "silent", "finished", "interrupted", "failed", "killed", "damaged"]

OTHER_CLOCK_S = 60.0  # clocks of two machines may differ by seconds
_FIX = "restore the file"


@dataclass(frozen=True, kw_only=True)
class _Status:
    root: Path
    state: State
    text: str = ""  # its phase, its verdict, or why it ended
    exit_code: ExitCode = ExitCode.OK
    pid: int | None = None

    @property
    def alive(self) -> bool:
        return self.state in ("running", "silent")


@dataclass(frozen=True, kw_only=True)
class LegStatus(_Status):
    """One leg."""

    kind: ClassVar[Kind] = "leg"
    what: str = ""  # scenario and mode
    started_ns: int | None = None
    seen_ns: int | None = None  # its end, or its last heartbeat
    host: str = ""
    progress: Progress | None = field(default=None, repr=False)
    manifest: "Manifest | None" = field(default=None, repr=False)
    result: "Result | None" = field(default=None, repr=False)
    endpoints: EndpointsRun | None = field(default=None, repr=False)  # of the MLPerf Endpoints client

    @property
    def last_ns(self) -> int:
        return self.seen_ns or self.started_ns or 0


@dataclass(frozen=True, kw_only=True)
class GroupStatus(_Status):
    """One campaign, tune or audit."""

    kind: Kind
    legs: tuple[LegStatus, ...]
    done: int | None = None  # legs, of a campaign
    total: int | None = None

    @property
    def last_ns(self) -> int:
        return max((leg.last_ns for leg in self.legs), default=0)


# Legs ---------------------------------------------------------------------------------------------------------------


def leg_status(root: Path) -> LegStatus:
    """Read a leg's directory; a damaged one is a state, not an error."""
    from runs.record.manifest import read_manifest

    run = RunDir(root)
    try:
        if not run.manifest.is_file() and is_run_folder(root):
            return _of_endpoints(root)
        manifest = read_manifest(run.manifest)
    except HarnessError as error:
        return LegStatus(root=root, state="damaged", text=error.message, exit_code=ExitCode.BAD_INPUT)
    progress = read_progress(run.progress)
    leg = LegStatus(
        root=root,
        state="running",
        what=f"{manifest.plan.scenario} {manifest.plan.mode}",
        started_ns=manifest.start_time_ns,
        seen_ns=manifest.end_time_ns or (progress.time_ns if progress else None),
        host=manifest.observed.host.hostname,
        progress=progress,
        manifest=manifest,
    )
    if manifest.status == "finished":
        return _finished(run, leg, ExitCode(manifest.exit_code or 0))
    if manifest.status in ("failed", "interrupted"):
        code = ExitCode(manifest.exit_code if manifest.exit_code is not None else ExitCode.FAILED)
        text = str((manifest.error or {}).get("message", ""))
        return replace(leg, state=manifest.status, text=text, exit_code=code)
    return _not_closed(leg, manifest)


def _of_endpoints(root: Path) -> LegStatus:
    """From the client's summary, which `verify` compares with its events."""
    run = read_folder(root)
    summary, config = run.summary, run.config
    what = f"Endpoints {config.settings.load_pattern.asked}" if config is not None else "Endpoints"
    seen_ns = root.stat().st_mtime_ns
    if summary is None or not summary.complete:
        text = "no result_summary.json" if summary is None else f"the client calls it {summary.state}, not complete"
        return LegStatus(root=root, state="failed", what=what, seen_ns=seen_ns, text=text, exit_code=ExitCode.FAILED)
    failed = f", {summary.n_samples_failed:,} failed" if summary.n_samples_failed else ""
    return LegStatus(root=root, state="finished", what=what, seen_ns=seen_ns, text=f"complete{failed}", endpoints=run)


def _finished(run: RunDir, leg: LegStatus, code: ExitCode) -> LegStatus:
    from runs.numbers.result import read_result

    try:
        result = read_result(run.result)
    except HarnessError as error:
        return replace(leg, state="damaged", text=error.message, exit_code=ExitCode.FAILED)
    verdict = ("FAIL" if code else "scored") if result.verdict == "DONE" else result.verdict
    return replace(leg, state="finished", text=verdict, exit_code=code, result=result)


def _not_closed(leg: LegStatus, manifest: "Manifest") -> LegStatus:
    """A record that was not closed: the leg runs, or its processes were killed."""
    from runs.record.liveness import living_process, on_this_machine

    progress, here = leg.progress, on_this_machine(manifest)
    if progress is None:
        doing, allowed_s = "importing the engine's code", SILENCE_STARTING_S
    elif progress.phase == "done":
        doing, allowed_s = "judging the result", float("inf")  # without a heartbeat, for minutes perhaps
    else:
        doing = progress.doing
        allowed_s = SILENCE_RUNNING_S if progress.phase == "running" else SILENCE_STARTING_S
    pid = living_process(manifest) if here else None
    if here and pid is None:
        gone = f"its process {manifest.pid or manifest.parent_pid} is gone (killed, or its disk was full)"
        return replace(leg, state="killed", text=f"while {doing}; {gone}", exit_code=ExitCode.FAILED)
    quiet_s = time.time() - leg.last_ns / 1e9
    if quiet_s > allowed_s + (0 if here else OTHER_CLOCK_S):
        source = "" if here else f" from {leg.host}"
        text = f"no heartbeat{source} for {quiet_s:.0f} s, last {doing}"
        return replace(leg, state="silent", text=text, exit_code=ExitCode.FAILED, pid=pid)
    return replace(leg, text=doing, pid=pid)


# Groups -------------------------------------------------------------------------------------------------------------


class _Planned(BaseModel):
    directory: Annotated[str, Field(pattern="^[^\0]+$")]


class _Campaign(BaseModel):
    """The fields of campaign.json that are read."""

    legs: list[_Planned]


def group_status(place: FoundDir, legs: Sequence[LegStatus]) -> GroupStatus:
    """Read a group's directory; a damaged one is a state, not an error. `legs` may include those of other groups."""
    own = tuple(leg for leg in legs if leg.root.is_relative_to(place.root))
    try:
        return {"campaign": _campaign, "tune": _tune, "audit": _audit}[place.kind](place.root, own)
    except HarnessError as error:
        return GroupStatus(
            kind=place.kind,
            root=place.root,
            state="damaged",
            text=error.message,
            exit_code=ExitCode.BAD_INPUT,
            legs=own,
        )


def _campaign(root: Path, legs: tuple[LegStatus, ...]) -> GroupStatus:
    place = CampaignDir(root)
    pid = holder_of(place.lock)
    if not place.configuration.is_file():
        return _group("campaign", root, legs, pid, "planning", None)
    folders = {Path(leg.directory).resolve() for leg in read_as(place.configuration, _Campaign, _FIX).legs}
    by_folder = {leg.root: leg for leg in legs}
    done = sum(_leg_is_done(folder, by_folder.get(folder)) for folder in folders)
    complete = ExitCode.OK if done == len(folders) else None
    group = _group("campaign", root, legs, pid, f"{done} of {len(folders)} legs done", complete)
    return replace(group, done=done, total=len(folders))


def _leg_is_done(folder: Path, leg: LegStatus | None) -> bool:
    """Whether a leg has passed by its record, or an audit, a directory of legs, by its outcome."""
    if leg is not None:
        return leg.state == "finished" and not leg.exit_code
    return any(_passed(path) for path in folder.glob("audit_*.json"))


def _passed(record: Path) -> bool:
    return read_object(record, _FIX).get("passed") is True


def _tune(root: Path, legs: tuple[LegStatus, ...]) -> GroupStatus:
    from scenarios.tune.journal import Journal, read_tune

    place = TuneDir(root)
    pid = holder_of(place.lock)
    steps = Journal(place.journal).measured()
    text = counted(sum(step.step != "confirm" for step in steps), "probe")
    if steps:
        text += f", last {steps[-1].step} at {steps[-1].target_qps:g}/s {steps[-1].verdict}"
    code: ExitCode | None = None
    if place.record.is_file() and pid is None:
        found = read_tune(place.record)["target_qps"]
        code = ExitCode.NEGATIVE if found is None else ExitCode.OK
        text += "; no rate was confirmed" if found is None else f"; confirmed {found:g}/s"
    return _group("tune", root, legs, pid, text, code)


def _audit(root: Path, legs: tuple[LegStatus, ...]) -> GroupStatus:
    record = next(iter(sorted(root.glob("audit_*.json"))), None)
    code: ExitCode | None = None
    text = f"{sum(leg.state == 'finished' for leg in legs)} legs done"
    if record is not None:
        passed = _passed(record)
        code = ExitCode.OK if passed else ExitCode.NEGATIVE
        text = f"{'PASS' if passed else 'FAIL'}: {read_object(record, _FIX).get('reason', '')}"
    pid = next((leg.manifest.parent_pid for leg in legs if leg.alive and leg.manifest), None)
    return _group("audit", root, legs, pid, text, code)


def _group(
    kind: Kind, root: Path, legs: tuple[LegStatus, ...], pid: int | None, text: str, code: ExitCode | None
) -> GroupStatus:
    """A group runs while a process holds its lock, or one of its legs runs, perhaps on another machine.

    Args:
        code: its exit code; None if it has not ended.
    """
    group = GroupStatus(kind=kind, root=root, state="running", text=text, pid=pid, legs=legs)
    if pid is not None or any(leg.alive for leg in legs):
        silent = any(leg.state == "silent" for leg in legs)
        return replace(group, state="silent", exit_code=ExitCode.FAILED) if silent else group
    if code is not None:
        return replace(group, state="finished", exit_code=code)
    worst = max((leg.exit_code for leg in legs), default=ExitCode.FAILED) or ExitCode.FAILED
    return replace(group, state="interrupted", text=f"{text}; it does not run", exit_code=worst)
