"""The frozen runs of the sign-off's back-test, unpacked once a session, and copies of them to damage."""

import shutil
from pathlib import Path

import pytest

from compliance.judge.finding import Finding
from compliance.judge.verdict import Verdict
from compliance.signoff.evidence import Evidence, load
from runs.record.layout import RunDir
from tests.signoff.backtest import RUNS, unpack
from tests.signoff.forge.faults import inject
from tests.support.once import make_once


class FrozenRuns:
    """Unpacks when it is first asked."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory

    def __call__(self, name: str) -> Path:
        """A run's directory. Read it only."""
        return make_once(self._factory, "frozen-runs", unpack) / RUNS / name

    def paths(self, *names: str) -> list[Path]:
        return [self(name) for name in names]

    def copy(self, target: Path, name: str, *faults: list[object]) -> Path:
        """A copy with faults in it."""
        shutil.copytree(self(name), target)
        for fault, *arguments in faults:
            inject(RunDir(target), str(fault), arguments, self(""))
        return target


def evidence(path: Path) -> Evidence:
    """A run as sign-off sees it."""
    (loaded,), _ = load([path])
    return loaded


def label_of(finding: Finding) -> str:
    """What a finding is worth, in the word of a case's label."""
    return {"error": "FAIL", "warning": "FLAG"}.get(finding.severity, "NOTE")


def slugs(verdict: Verdict, word: str = "FAIL") -> set[str]:
    """The slugs of a verdict's findings of one outcome."""
    return {finding.slug for finding in verdict.findings if label_of(finding) == word}
