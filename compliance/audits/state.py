"""State of the audits of a result: missing or passed when re-evaluated, and the system that the audit ran on."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from compliance.audits.audit_registry import (
    AuditRecord,
    files_that_differ,
    judged_again,
    judged_as_planned,
    read_audit,
    request_beside,
)
from compliance.audits.base import EXISTING, AuditResult, NoVerdictError
from compliance.audits.discovery import find_audit
from compliance.audits.options import AuditRequest
from compliance.audits.run_artifacts import RunArtifacts
from runs.errors import HarnessError
from runs.record.fingerprint import AUDITED, FREE_MEMORY, Differences, Scope, differences, run_fingerprint
from runs.record.finished_run import FinishedRun
from runs.record.layout import ResultDir, RunDir, audit_record

# "recorded": audit_<test>.json states PASS, but the runs are in other directories (`audit --ref --run`).
AuditOutcome = Literal["missing", "unreadable", "no verdict", "recorded", "FAIL", "PASS"]
_SAME = Scope((*AUDITED.only, "scenario", "benchmark"))


@dataclass(frozen=True)
class AuditState:
    """The state of an audit, re-evaluated from its runs. The verdict in audit_<test>.json can only make it worse."""

    folder: Path
    test: str
    outcome: AuditOutcome
    why: str = ""  # reason for an outcome other than PASS, as the end of a sentence
    recorded: AuditRecord | None = None
    result: AuditResult | None = None  # None if the audit was not re-evaluated
    runs: tuple[RunArtifacts, ...] = field(default=(), repr=False)

    @property
    def record(self) -> Path:
        return audit_record(self.folder, self.test)

    @property
    def changed(self) -> list[Path]:
        """Files of the audit whose content differs from what a re-evaluation of its runs writes."""
        return [] if self.result is None else list(files_that_differ(self.folder, self.result))

    def differs_from(self, run: FinishedRun) -> Differences:
        """Return the differences in system and scenario between a run and the first audit run that differs."""
        stored = (FinishedRun(RunDir(path.parent)) for path in sorted(self.folder.glob(f"*/{run.dir.detail.name}")))
        for audit_run in self.runs or stored:
            with contextlib.suppress(HarnessError, OSError, TypeError, ValueError):  # other checks report damage
                unequal = differences(run_fingerprint(audit_run), run_fingerprint(run), _SAME)
                if unequal.keys() - FREE_MEMORY:
                    return unequal
        return {}


def audit_state(
    folder: Path, test: str, subject: FinishedRun | AuditRequest[Any], read: Sequence[FinishedRun] = ()
) -> AuditState:
    """Re-evaluate an audit from its directory.

    Args:
        subject: A run of the audited system, which determines the request, or the request itself, whose runs must
            exist.
        read: Runs of the audit that were read before; their files are not read again.
    """
    if not audit_record(folder, test).exists():
        return AuditState(folder, test, "missing", "is missing")
    recorded: AuditRecord | None = None
    outcome: AuditOutcome
    try:
        recorded = read_audit(folder, test)
        if isinstance(subject, AuditRequest):
            result, runs = judged_as_planned(folder, find_audit(test), subject, read)
        elif not recorded.passed:
            return AuditState(folder, test, "FAIL", f"did not pass: {recorded.reason}", recorded)
        elif {entry.get("label") for entry in recorded.runs} == set(EXISTING):
            return AuditState(folder, test, "recorded", "has its runs outside its directory", recorded)
        else:
            audit = find_audit(test)
            result, runs = judged_again(folder, audit, request_beside(subject, audit), read)
    except (OSError, HarnessError, KeyError, TypeError, ValueError) as error:
        why = error.message if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
        outcome = "no verdict" if isinstance(error, NoVerdictError) else "unreadable"
        return AuditState(folder, test, outcome, f"cannot be re-evaluated: {why}", recorded)
    outcome, why = ("PASS", "") if result.passed else ("FAIL", f"fails when re-evaluated: {result.reason}")
    return AuditState(folder, test, outcome, why, recorded, result, tuple(runs))


def result_homes(*runs: Path, named: Path | None = None) -> list[ResultDir]:
    """Return the possible directories of a result: the named directory, then those that contain its runs."""
    homes = [] if named is None else [Path(os.path.normpath(named))]
    for run in runs:
        root = Path(os.path.normpath(run))
        if root.parent.name in ("", ".."):  # a short relative path does not show the parents
            root = Path(os.path.normpath(Path.cwd() / root))
        if root.parent.name == "performance" or root.name.startswith("run_"):  # RESULT/performance/run_2
            homes.append(root.parent.parent)
        homes.append(root.parent)  # RESULT/accuracy
    return [ResultDir(path) for path in dict.fromkeys(homes)]


def audit_beside(run: FinishedRun, test: str) -> AuditState:
    """Return the state of an audit in the result directory of a run."""
    states = [audit_state(home.audit(test), test, run) for home in result_homes(run.dir.root)]
    return next((state for state in states if state.outcome != "missing"), states[0])
