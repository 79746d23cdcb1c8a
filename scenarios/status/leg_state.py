"""The state of one leg: whether it lives and what it does, or when and why it ended."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from runs.errors import ExitCode, HarnessError
from runs.numbers.result import Result, read_result
from runs.record.layout import RunDir
from runs.record.manifest import Manifest, read_manifest
from runs.record.progress import Progress, read_progress
from runs.record.unfinished import living_process, on_this_machine
from scenarios.leg.supervisor import SILENCE_RUNNING_S, SILENCE_STARTING_S

# "silent": its process lives, or cannot be seen from here, and has written no heartbeat for too long.
State = Literal["running", "silent", "finished", "interrupted", "failed", "killed", "damaged"]

ELSEWHERE_S = 60.0  # clocks of two machines may differ by seconds


@dataclass(frozen=True)
class LegStatus:
    """One leg as its files show it now."""

    root: Path
    state: State
    what: str = ""  # scenario and mode
    text: str = ""  # what it does, its verdict, or why it ended
    exit_code: ExitCode = ExitCode.OK
    started_ns: int | None = None
    seen_ns: int | None = None  # its end, or its last heartbeat
    host: str = ""
    pid: int | None = None
    progress: Progress | None = field(default=None, repr=False)
    manifest: Manifest | None = field(default=None, repr=False)
    result: Result | None = field(default=None, repr=False)

    @property
    def alive(self) -> bool:
        return self.state in ("running", "silent")


def leg_status(root: Path) -> LegStatus:
    """Read a leg's directory; a damaged one is a state, not an error."""
    run = RunDir(root)
    try:
        manifest = read_manifest(run.manifest)
    except HarnessError as error:
        return LegStatus(root, "damaged", text=error.message, exit_code=ExitCode.BAD_INPUT)
    progress = read_progress(run.progress)
    facts: dict[str, Any] = {
        "root": root,
        "what": f"{manifest.resolved.scenario} {manifest.resolved.mode}",
        "started_ns": manifest.start_time_ns,
        "seen_ns": manifest.end_time_ns or (progress.time_ns if progress else None),
        "host": str(manifest.host.get("hostname") or ""),
        "progress": progress,
        "manifest": manifest,
    }
    if manifest.status == "finished":
        return _finished(run, manifest, facts)
    if manifest.status in ("failed", "interrupted"):
        record = manifest.error or {}
        code = ExitCode(manifest.exit_code if manifest.exit_code is not None else ExitCode.FAILED)
        return LegStatus(**facts, state=manifest.status, text=str(record.get("message", "")), exit_code=code)
    return _open(manifest, progress, facts)


def _finished(run: RunDir, manifest: Manifest, facts: dict[str, Any]) -> LegStatus:
    code = ExitCode(manifest.exit_code or 0)
    try:
        result = read_result(run.result)
    except HarnessError as error:
        return LegStatus(**facts, state="damaged", text=error.message, exit_code=ExitCode.FAILED)
    outcome = ("FAIL" if code else "scored") if result.verdict == "DONE" else result.verdict
    return LegStatus(**facts, state="finished", text=outcome, exit_code=code, result=result)


def _open(manifest: Manifest, progress: Progress | None, facts: dict[str, Any]) -> LegStatus:
    """A record that was not closed: the leg lives, or nobody was left to close it."""
    doing = _doing(manifest, progress)
    last_s = (facts["seen_ns"] or manifest.start_time_ns or 0) / 1e9
    quiet_s = time.time() - last_s
    if not on_this_machine(manifest):
        if quiet_s > ELSEWHERE_S + _allowed_s(progress):
            text = f"no sign of life from {facts['host']} for {quiet_s:.0f} s, last {doing}"
            return LegStatus(**facts, state="silent", text=text, exit_code=ExitCode.FAILED)
        return LegStatus(**facts, state="running", text=doing)
    pid = living_process(manifest)
    if pid is None:
        text = (
            f"while {doing}; its process {manifest.pid or manifest.parent_pid} is gone (killed, or its disk was full)"
        )
        return LegStatus(**facts, state="killed", text=text, exit_code=ExitCode.FAILED)
    if quiet_s > _allowed_s(progress):
        text = f"no sign of life for {quiet_s:.0f} s, last {doing}"
        return LegStatus(**facts, state="silent", text=text, exit_code=ExitCode.FAILED, pid=pid)
    return LegStatus(**facts, state="running", text=doing, pid=pid)


def _doing(manifest: Manifest, progress: Progress | None) -> str:
    if progress is None:
        return "importing the engine's code"
    return "judging what was measured" if progress.phase == "done" else progress.doing


def _allowed_s(progress: Progress | None) -> float:
    """How long a leg may be silent. Judging, which takes a large leg minutes, has no heartbeat."""
    if progress is not None and progress.phase == "done":
        return float("inf")
    return SILENCE_RUNNING_S if progress is not None and progress.phase == "running" else SILENCE_STARTING_S
