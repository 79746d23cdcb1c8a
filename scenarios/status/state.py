"""The state of a run, and of a group of runs (campaign, tuning, bench, curve, audit), from their files."""

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from runs.errors import ExitCode, HarnessError
from runs.files.reading import read_as, read_object
from runs.mlperf_endpoints.folder import EndpointsRun, read_folder
from runs.mlperf_endpoints.layout import is_run_folder
from runs.processes.lock_holder import holder_of
from runs.record.group_end import read_end
from runs.record.layout import BENCH_FILE, CampaignDir, RunDir
from runs.record.progress import PHASES, SILENCE_RUNNING_S, SILENCE_STARTING_S, Progress, read_progress
from runs.record.tune_dir import TuneDir
from runs.wording import counted
from scenarios.status.find import DirectoryKind, FoundDir

if TYPE_CHECKING:  # Only commands that read a manifest import this code.
    from runs.numbers.result import RunNumbers
    from runs.record.manifest import Manifest

# "silent": no recent heartbeat, although the process is alive or on another machine.
# "unattested": complete, but the attestation is missing.
StateName = Literal["running", "silent", "finished", "unattested", "interrupted", "failed", "killed", "damaged"]

OTHER_CLOCK_S = 60.0  # tolerance for the clock of another machine
_FIX = "restore the file"


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
    result: "RunNumbers | None" = field(default=None, repr=False)
    scores: Mapping[str, float] = field(default_factory=dict, repr=False)  # scores of a finished accuracy run
    endpoints: EndpointsRun | None = field(default=None, repr=False)  # run of the MLPerf Endpoints client

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


# Runs ---------------------------------------------------------------------------------------------------------------


def run_status(root: Path) -> RunStatus:
    """Read a run directory. Damage is a state, not an error."""
    from runs.record.manifest import read_manifest

    run_dir = RunDir(root)
    try:
        if not run_dir.manifest.is_file() and is_run_folder(root):
            return _of_endpoints(root)
        manifest = read_manifest(run_dir.manifest)
    except HarnessError as error:
        return RunStatus(root=root, state="damaged", text=error.message, exit_code=ExitCode.BAD_INPUT)
    progress = read_progress(run_dir.progress)
    status = RunStatus(
        root=root,
        state="running",
        what=f"{manifest.plan.scenario} {manifest.plan.mode}",
        started_ns=manifest.start_time_ns,
        seen_ns=manifest.end_time_ns or (progress.time_ns if progress else None),
        host=manifest.observed.host.hostname,
        progress=progress,
        manifest=manifest,
    )
    if manifest.status == "finished" and not run_dir.seal.is_file():
        return _unattested(run_dir, status, manifest)
    if manifest.status == "finished":
        return _finished(run_dir, status, manifest)
    if manifest.status in ("failed", "interrupted"):
        code = ExitCode(manifest.exit_code if manifest.exit_code is not None else ExitCode.FAILED)
        text = str((manifest.error or {}).get("message", ""))
        return replace(status, state=manifest.status, text=text, exit_code=code)
    return _not_closed(status, manifest)


def _of_endpoints(root: Path) -> RunStatus:
    """Read the summary of an MLPerf Endpoints run folder. `verify` compares the summary with the events."""
    run = read_folder(root)
    summary, config = run.summary, run.config
    title = f"Endpoints {config.settings.load_pattern.text}" if config is not None else "Endpoints"
    seen_ns = root.stat().st_mtime_ns
    if summary is None or not summary.complete:
        text = "no result_summary.json" if summary is None else f"client state {summary.state}, not complete"
        return RunStatus(root=root, state="failed", what=title, seen_ns=seen_ns, text=text, exit_code=ExitCode.FAILED)
    failed = f", {summary.n_samples_failed:,} failed" if summary.n_samples_failed else ""
    return RunStatus(root=root, state="finished", what=title, seen_ns=seen_ns, text=f"complete{failed}", endpoints=run)


def _finished(run_dir: RunDir, status: RunStatus, manifest: "Manifest") -> RunStatus:
    from compliance.accuracy.accuracy_files import ACCURACY_OUTCOMES, read_scores_record
    from runs.attestation.attestation import changed_records
    from runs.numbers.result import read_result
    from runs.record.engines.server_notes import stated_verdict

    code = ExitCode(manifest.exit_code or 0)
    try:
        result = read_result(run_dir.result)
        record = read_scores_record(run_dir) if result.verdict == "DONE" else None
    except HarnessError as error:
        return replace(status, state="damaged", text=error.message, exit_code=ExitCode.FAILED)
    verdict = stated_verdict(result.verdict, manifest.observed) if record is None else ACCURACY_OUTCOMES[record.passed]
    if changed := changed_records(run_dir):
        verdict = f"{verdict}, but {' and '.join(changed)} changed since the attestation"
    scores = {} if record is None else record.scores
    return replace(status, state="finished", text=verdict, exit_code=code, result=result, scores=scores)


def _unattested(run_dir: RunDir, run: RunStatus, manifest: "Manifest") -> RunStatus:
    """Return the state of a complete run without an attestation. It is in progress while its process signs it."""
    from runs.record.liveness import living_process, on_this_machine
    from runs.record.unattested import NotAttestedError

    if on_this_machine(manifest) and (pid := living_process(manifest)) is not None:
        return replace(run, text="signing the run", pid=pid)
    error = NotAttestedError(run_dir)
    return replace(run, state="unattested", text=f"{error.message}; {error.fix}", exit_code=ExitCode.FAILED)


def _not_closed(run: RunStatus, manifest: "Manifest") -> RunStatus:
    """Return the state of a run whose manifest is not closed: it is in progress, or its processes were killed."""
    from runs.record.liveness import living_process, on_this_machine

    progress, is_here = run.progress, on_this_machine(manifest)
    doing = PHASES["importing"] if progress is None else progress.doing
    # The check of the result possibly takes minutes without a heartbeat.
    limits_s = {"running": SILENCE_RUNNING_S, "done": float("inf")}
    allowed_s = limits_s.get("" if progress is None else progress.phase, SILENCE_STARTING_S)
    pid = living_process(manifest) if is_here else None
    if is_here and pid is None:
        cause = f"process {manifest.pid or manifest.parent_pid} ended (it was killed, or its disk was full)"
        return replace(run, state="killed", text=f"while {doing}; {cause}", exit_code=ExitCode.FAILED)
    quiet_s = time.time() - run.last_ns / 1e9
    if quiet_s > allowed_s + (0 if is_here else OTHER_CLOCK_S):
        source = "" if is_here else f" from {run.host}"
        text = f"no heartbeat{source} for {quiet_s:.0f} s, last {doing}"
        return replace(run, state="silent", text=text, exit_code=ExitCode.FAILED, pid=pid)
    return replace(run, text=doing, pid=pid)


# Groups -------------------------------------------------------------------------------------------------------------


class _Planned(BaseModel):
    directory: Annotated[str, Field(pattern="^[^\0]+$")]


class _Campaign(BaseModel):
    """The required fields of campaign.json."""

    runs: list[_Planned] = Field(alias="legs")


def group_status(place: FoundDir, runs: Sequence[RunStatus]) -> GroupStatus:
    """Read a group's directory. Damage is a state, not an error. `runs` may include runs of other groups."""
    runs_of_group = tuple(run for run in runs if run.root.is_relative_to(place.root))
    try:
        return {"campaign": _campaign, "tune": _tune, "bench": _bench, "curve": _curve, "audit": _audit}[place.kind](
            place.root, runs_of_group
        )
    except HarnessError as error:
        return GroupStatus(
            kind=place.kind,
            root=place.root,
            state="damaged",
            text=error.message,
            exit_code=ExitCode.BAD_INPUT,
            runs=runs_of_group,
        )


def _campaign(root: Path, runs: tuple[RunStatus, ...]) -> GroupStatus:
    place = CampaignDir(root)
    pid = holder_of(place.lock)
    if not place.configuration.is_file():
        return _group("campaign", root, runs, pid, "planning", None)
    folders = {Path(run.directory).resolve() for run in read_as(place.configuration, _Campaign, _FIX).runs}
    by_folder = {run.root: run for run in runs}
    done = sum(_run_is_done(folder, by_folder.get(folder)) for folder in folders)
    complete = ExitCode.OK if done == len(folders) else None
    group = _group("campaign", root, runs, pid, f"{done} of {len(folders)} runs done", complete)
    return replace(group, done=done, total=len(folders))


def _run_is_done(folder: Path, run: RunStatus | None) -> bool:
    """Return whether a run has passed according to its manifest, or an audit according to its verdict."""
    if run is not None:
        return run.state == "finished" and not run.exit_code
    return any(_passed(path) for path in folder.glob("audit_*.json"))


def _passed(record: Path) -> bool:
    return read_object(record, _FIX).get("passed") is True


def _tune(root: Path, runs: tuple[RunStatus, ...]) -> GroupStatus:
    from scenarios.tune.journal import Journal, read_tune

    place = TuneDir(root)
    pid = holder_of(place.lock)
    steps = Journal(place.journal).measured()
    text = counted(sum(step.step != "confirm" for step in steps), "probe")
    if steps:
        text += f", last {steps[-1].step} at {steps[-1].target_qps:g}/s {steps[-1].verdict}"
    code: ExitCode | None = None
    if place.record.is_file() and pid is None:
        rates = read_tune(place.record)["target_qps"]
        code = ExitCode.NEGATIVE if rates is None else ExitCode.OK
        text += "; no rate was confirmed" if rates is None else f"; confirmed {rates:g}/s"
    return _group("tune", root, runs, pid, text, code)


def _bench(root: Path, runs: tuple[RunStatus, ...]) -> GroupStatus:
    from runs.bench.bench_record import read_bench_record

    record, pid = read_bench_record(root / BENCH_FILE), holder_of(root / "lock")
    text, low = f"{record.label}: {counted(len(record.runs), 'run')}", record.best and record.best.low
    code: ExitCode | None = None
    if low is not None:
        text += f", best rate {low:.4g}/s" + (" within the limits" if record.limits else "")
    if record.status == "complete":
        code = record.exit_code
    return _group("bench", root, runs, pid, text, code)


def _curve(root: Path, runs: tuple[RunStatus, ...]) -> GroupStatus:
    """Read a curve. Its runs are those of the client, which decide nothing until the command has checked them."""
    from scenarios.curve.curve_dir import CurveDir
    from scenarios.curve.curve_progress import read_curve_progress

    place = CurveDir(root)
    pid, end = holder_of(place.lock), read_end(root)
    progress = read_curve_progress(place, is_running=pid is not None)
    ended = None if end is None else ExitCode(end.exit_code)
    code = ended if ended in (ExitCode.OK, ExitCode.NEGATIVE) else None
    group = _group("curve", root, (), pid, progress.text, code)
    return replace(group, runs=runs, done=progress.done, total=progress.total)


def _audit(root: Path, runs: tuple[RunStatus, ...]) -> GroupStatus:
    from runs.record.liveness import lives, on_this_machine

    record = next(iter(sorted(root.glob("audit_*.json"))), None)
    if record is not None:
        passed = _passed(record)
        text = f"{'PASS' if passed else 'FAIL'}: {read_object(record, _FIX).get('reason', '')}"
        return _group("audit", root, runs, None, text, ExitCode.OK if passed else ExitCode.NEGATIVE)
    pid = None
    if read_end(root) is None:
        manifests = [run.manifest for run in runs if run.manifest and on_this_machine(run.manifest)]
        pid = next(
            (
                manifest.parent_pid
                for manifest in manifests
                if manifest.parent_pid and lives(manifest.parent_pid, manifest)
            ),
            None,
        )
    return _group("audit", root, runs, pid, f"{sum(run.state == 'finished' for run in runs)} runs done", None)


def _group(
    kind: DirectoryKind, root: Path, runs: tuple[RunStatus, ...], pid: int | None, text: str, code: ExitCode | None
) -> GroupStatus:
    """Return the state of a group. It is in progress if its process lives, or if a run has not ended.

    Args:
        code: Exit code of a complete group; None if an outcome is missing.
    """
    group = GroupStatus(kind=kind, root=root, state="running", text=text, pid=pid, runs=runs)
    if pid is not None or any(run.alive for run in runs):
        silent = any(run.state == "silent" for run in runs)
        return replace(group, state="silent", exit_code=ExitCode.FAILED) if silent else group
    if code is not None:
        return replace(group, state="finished", exit_code=code)
    state, why, exit_code = _end_of(root, runs)
    return replace(group, state=state, text=f"{text}; {why}" if why else text, exit_code=exit_code)


def _end_of(root: Path, runs: tuple[RunStatus, ...]) -> tuple[StateName, str, ExitCode]:
    """Return how a group without a result ended: as its command recorded, otherwise as its last run ended."""
    last = max(runs, key=lambda run: run.last_ns, default=None)
    unfinished = [run for run in runs if run.state != "finished"]
    if (end := read_end(root)) is not None:
        code = max(ExitCode(end.exit_code), ExitCode.NEGATIVE)
        states: dict[ExitCode, StateName] = {ExitCode.NEGATIVE: "finished", ExitCode.INTERRUPTED: "interrupted"}
        return states.get(code, "failed"), end.message or "; ".join(map(_sentence, unfinished[:1])), code
    if last is not None and last.state != "finished":
        return last.state, _sentence(last), last.exit_code
    if last is not None and last.host and last.host != platform.node():
        return "silent", f"no run in progress on {last.host}", ExitCode.FAILED
    return "killed", "its process ended and wrote no result (it was killed, or its disk was full)", ExitCode.FAILED


def _sentence(run: RunStatus) -> str:
    return f"{run.what}: {run.text}"
