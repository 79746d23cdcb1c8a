"""The frozen runs of the sign-off's back-test, unpacked once per session, and copies of them to damage."""

import shutil
from pathlib import Path

import pytest

from compliance.judge.verdict import Finding, Verdict
from compliance.signoff.evidence import Evidence, load
from runs.record.layout import RunDir
from tests.signoff.backtest import RUNS, unpack
from tests.signoff.forge.faults import inject
from tests.support.once import make_once


class FrozenRuns:
    """Frozen runs, unpacked at the first access."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory

    def __call__(self, name: str) -> Path:
        """Return the directory of a run. Only read it."""
        return make_once(self._factory, "frozen-runs", unpack) / RUNS / name

    def paths(self, *names: str) -> list[Path]:
        return [self(name) for name in names]

    def copy(self, target: Path, name: str, *faults: list[object]) -> Path:
        """Copy a run with faults."""
        shutil.copytree(self(name), target)
        for fault, *arguments in faults:
            inject(RunDir(target), str(fault), arguments, self(""))
        return target


def evidence(path: Path) -> Evidence:
    """Return a run as evidence of a sign-off."""
    (loaded,), _ = load([path])
    return loaded


def label_of(finding: Finding) -> str:
    """Return the label of a finding: PASS, NOTE, FLAG or FAIL."""
    return {"error": "FAIL", "warning": "FLAG"}.get(finding.severity, "NOTE")


def slugs(verdict: Verdict, word: str = "FAIL") -> set[str]:
    """Return the slugs of a verdict's findings of one label."""
    return {finding.slug for finding in verdict.all_findings if label_of(finding) == word}
