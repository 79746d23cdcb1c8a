"""The state of a run of this harness, from its manifest and its heartbeat."""

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from runs.errors import ExitCode, HarnessError
from runs.record.layout import RunDir
from runs.record.progress import PHASES, SILENCE_RUNNING_S, SILENCE_STARTING_S, read_progress
from scenarios.status.run_status import STATISTICS, Row, RunStatus

if TYPE_CHECKING:  # Only commands that read a manifest import this code.
    from runs.numbers.result import RunNumbers
    from runs.record.manifest import Manifest

OTHER_CLOCK_S = 60.0  # tolerance for the clock of another machine


def is_harness_run(folder: Path) -> bool:
    """Return whether a directory is a run directory of this harness."""
    return RunDir(folder).manifest.is_file()


def harness_run_status(root: Path) -> RunStatus:
    """Return the state of a run.

    Raises:
        HarnessError: If the manifest is damaged.
    """
    from runs.record.manifest import read_manifest

    run_dir = RunDir(root)
    manifest = read_manifest(run_dir.manifest)
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


def _finished(run_dir: RunDir, status: RunStatus, manifest: "Manifest") -> RunStatus:
    from compliance.accuracy.recorded_outcome import recorded_outcome
    from runs.numbers.result import read_result

    code = ExitCode(manifest.exit_code or 0)
    try:
        result = read_result(run_dir.result)
        outcome = recorded_outcome(run_dir, manifest, result)
    except HarnessError as error:
        return replace(status, state="damaged", text=error.message, exit_code=ExitCode.FAILED)
    row = partial(_row, manifest, result, {} if outcome.scores is None else outcome.scores.scores)
    return replace(status, state="finished", text=outcome.text, exit_code=code, row=row)


def _row(manifest: "Manifest", result: "RunNumbers", scores: Mapping[str, float]) -> Row:
    """Return the facts and numbers of a finished run."""
    from runs.numbers.numbers import shows

    plan, accelerators = manifest.plan, manifest.observed.accelerators
    reported, limits = result.reported, result.in_force
    row: Row = {
        "label": manifest.asked.get("label"),
        "benchmark": plan.loadgen_key,
        "scenario": result.scenario,
        "mode": plan.mode,
        "official": manifest.official,
        "engine": plan.engine,
        "model": Path(manifest.model.name).name,
        "accelerators": len(accelerators),
        "accelerator": next((str(accelerator.get("name")) for accelerator in accelerators), None),
        "target_qps": limits.target_qps if plan.mode == "performance" else None,
        "samples": result.counts.samples,
        "ttft_limit_ms": limits.ttft_limit_ns / 1e6 if limits.ttft_limit_ns else None,
        "tpot_limit_ms": limits.tpot_limit_ns / 1e6 if limits.tpot_limit_ns else None,
    }
    if reported is not None:
        row |= reported.flat(*(statistic for statistic in STATISTICS if shows(statistic, result.counts.samples)))
    if plan.mode == "accuracy":
        row |= scores
    return row | (asdict(result.load) if result.load is not None else {})


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
