"""The audits of a result: whether each was made, passed when judged again, and is of the result's system."""

import contextlib
import os
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

# "recorded": passed by its record alone, since its runs are elsewhere (`audit --ref --run`).
AuditOutcome = Literal["missing", "unreadable", "no verdict", "recorded", "FAIL", "PASS"]
_SAME = Scope((*AUDITED.only, "scenario", "benchmark"))


@dataclass(frozen=True)
class AuditState:
    """One audit, judged again from its runs. Its record can only make the outcome worse."""

    folder: Path
    test: str
    outcome: AuditOutcome
    why: str = ""  # of any outcome but PASS: the end of a sentence about the audit
    recorded: AuditRecord | None = None
    result: AuditResult | None = None  # None: not judged again
    runs: tuple[RunArtifacts, ...] = field(default=(), repr=False)

    @property
    def record(self) -> Path:
        return audit_record(self.folder, self.test)

    @property
    def changed(self) -> list[Path]:
        """Files of the audit that differ from what its runs give."""
        return [] if self.result is None else list(files_that_differ(self.folder, self.result))

    def differs_from(self, run: FinishedRun) -> Differences:
        """How the first run of the audit that is not of another run's system and scenario differs from it."""
        there = (FinishedRun(RunDir(path.parent)) for path in sorted(self.folder.glob(f"*/{run.dir.detail.name}")))
        for one in self.runs or there:
            with contextlib.suppress(HarnessError, OSError, TypeError, ValueError):  # damage, reported elsewhere
                found = differences(run_fingerprint(one), run_fingerprint(run), _SAME)
                if found.keys() - FREE_MEMORY:
                    return found
        return {}


def audit_state(folder: Path, test: str, of: FinishedRun | AuditRequest[Any]) -> AuditState:
    """Judge the audit in a directory again.

    Args:
        of: a run of the audited system, from which the request of the audit follows; or the request, whose runs must be
            there whatever the record says.
    """
    if not audit_record(folder, test).exists():
        return AuditState(folder, test, "missing", "is missing")
    recorded = None
    try:
        recorded = read_audit(folder, test)
        if isinstance(of, AuditRequest):
            result, runs = judged_as_planned(folder, find_audit(test), of)
        elif not recorded.passed:
            return AuditState(folder, test, "FAIL", f"did not pass: {recorded.reason}", recorded)
        elif {entry.get("label") for entry in recorded.runs} == set(EXISTING):
            return AuditState(folder, test, "recorded", "has its runs elsewhere", recorded)
        else:
            audit = find_audit(test)
            result, runs = judged_again(folder, audit, request_beside(of, audit))
    except (OSError, HarnessError, KeyError, TypeError, ValueError) as error:
        why = error.message if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
        outcome: AuditOutcome = "no verdict" if isinstance(error, NoVerdictError) else "unreadable"
        return AuditState(folder, test, outcome, f"cannot be judged again: {why}", recorded)
    if not result.passed:
        why = f"judged again does not pass: {result.reason}"
        return AuditState(folder, test, "FAIL", why, recorded, result, tuple(runs))
    return AuditState(folder, test, "PASS", "", recorded, result, tuple(runs))


def result_homes(*runs: Path, named: Path | None = None) -> list[ResultDir]:
    """Return the directories that may be that of some runs' result: the named one, then by the places of the runs."""
    found = [] if named is None else [Path(os.path.normpath(named))]
    for run in runs:
        root = Path(os.path.normpath(run))
        if root.parent.name in ("", ".."):  # a path from the current directory does not show the place
            root = Path(os.path.normpath(Path.cwd() / root))
        if root.parent.name == "performance" or root.name.startswith("run_"):  # RESULT/performance/run_2
            found.append(root.parent.parent)
        found.append(root.parent)  # RESULT/accuracy
    return [ResultDir(path) for path in dict.fromkeys(found)]


def audit_beside(run: FinishedRun, test: str) -> AuditState:
    """The audit in the directory of a run's result."""
    states = [audit_state(home.audit(test), test, run) for home in result_homes(run.dir.root)]
    return next((state for state in states if state.outcome != "missing"), states[0])
