"""The state of a group of runs (campaign, tuning, bench, curve, audit), from its files."""

import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from runs.errors import ExitCode, HarnessError
from runs.files.reading import read_as, read_object
from runs.processes.lock_holder import holder_of
from runs.record.group_end import read_end
from runs.record.layout import BENCH_FILE, CampaignDir
from runs.record.tune_dir import TuneDir
from runs.wording import counted
from scenarios.status.find import FoundDir
from scenarios.status.run_status import DirectoryKind, GroupStatus, RunStatus, StateName

_FIX = "restore the file"


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
