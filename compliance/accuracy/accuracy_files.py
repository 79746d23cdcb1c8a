"""Readers and writers of the two files of an accuracy verdict: accuracy.json and accuracy.txt.

The official submission checker searches every line of accuracy.txt for scores. The file therefore contains only the
result line of the reference evaluation.
"""

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, FiniteFloat

from runs.files.reading import read_as
from runs.files.writing import write_atomic, write_json
from runs.record.layout import RunDir

if TYPE_CHECKING:
    from compliance.accuracy.accuracy_verdict import AccuracyVerdict


def write_reports(run: RunDir, verdict: "AccuracyVerdict") -> None:
    """Write accuracy.json, then accuracy.txt. An accuracy.txt therefore never exists without its accuracy.json."""
    write_json(run.accuracy_json, scores_record(verdict).model_dump())
    write_atomic(run.accuracy_text, accuracy_text(verdict))


def accuracy_text(verdict: "AccuracyVerdict") -> str:
    """Return the content of accuracy.txt, without the `hash=` line of the official truncation tool."""
    return f"Results\n\n{verdict.metric.text(verdict.scores)}\n"


# Verdict on an accuracy run. True: all targets are met; None: no target applies.
ACCURACY_OUTCOMES: dict[bool | None, str] = {True: "PASS", False: "FAIL", None: "no target applies"}


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class ScoreCheck(_Record):
    """A score compared with its target."""

    name: str
    measured: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat | None
    passed: bool


class ScoresRecord(_Record):
    """The content of accuracy.json, with the names of `AccuracyVerdict`."""

    label: str
    metric: str
    scores: dict[str, int | FiniteFloat]
    target: dict[str, int | FiniteFloat] | None
    checks: list[ScoreCheck]
    passed: bool | None


def scores_record(verdict: "AccuracyVerdict") -> ScoresRecord:
    """Return the content of accuracy.json for a verdict."""
    checks = []
    for check in verdict.findings:
        numbers = dict(check.numbers)
        checks.append(ScoreCheck(name=numbers.pop("metric"), **numbers, passed=check.passed))
    return ScoresRecord(
        label=verdict.label,
        metric=verdict.metric.name,
        scores=verdict.scores,
        target=verdict.references,
        checks=checks,
        passed=verdict.passed,
    )


def read_scores_record(run: RunDir) -> ScoresRecord:
    """Read the scores of a finished accuracy run from accuracy.json, with their targets.

    Raises:
        InputError: If accuracy.json is missing or damaged.
    """
    return read_as(
        run.accuracy_json, ScoresRecord, "restore the accuracy.json of the run, or rerun", within=run.root, strict=True
    )
