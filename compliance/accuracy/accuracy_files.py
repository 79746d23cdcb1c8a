"""The files of an accuracy verdict.

`accuracy.json` is the full record. `accuracy.txt` is for the official submission checker, which looks for the
scores with regular expressions in every line: it holds the reference evaluation's result and nothing else.
"""

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, FiniteFloat

from runs.files import write_atomic, write_json
from runs.reading import read_as
from runs.record.layout import RunDir

if TYPE_CHECKING:
    from compliance.accuracy.accuracy_verdict import AccuracyVerdict


def write_reports(run: RunDir, verdict: "AccuracyVerdict") -> None:
    """Write the record, then the text: where `accuracy.txt` exists, `accuracy.json` does too."""
    write_json(run.accuracy_json, scores_record(verdict).model_dump())
    write_atomic(run.accuracy_text, accuracy_text(verdict))


def accuracy_text(verdict: "AccuracyVerdict") -> str:
    """The content of accuracy.txt, without the `hash=` line that the official truncation tool appends."""
    return f"Results\n\n{verdict.metric.text(verdict.scores)}\n"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class ScoreCheck(_Record):
    """A score against its target."""

    name: str
    measured: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat | None
    passed: bool


class ScoresRecord(_Record):
    """The content of an `accuracy.json`; the names are those of `AccuracyVerdict`."""

    label: str
    metric: str
    scores: dict[str, int | FiniteFloat]
    target: dict[str, int | FiniteFloat] | None
    checks: list[ScoreCheck]
    passed: bool | None


def scores_record(verdict: "AccuracyVerdict") -> ScoresRecord:
    """What is written of a verdict."""
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
    """The scores of a finished accuracy run as they were judged.

    Raises:
        InputError: its accuracy.json is missing or damaged.
    """
    return read_as(run.accuracy_json, ScoresRecord, "build it again with verify", within=run.root, strict=True)
