"""The official TEST04 on any two runs, with the official score, threshold and wording. No supported benchmark needs it.

The official comparison is for models with inputs of one length. It cannot find a cache in Server, where the arrival
rate determines the score. In SingleStream it compares times per output token; output_caching compares whole responses.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compliance.audits.base import PERFORMANCE_MODE, AuditResult, AuditTest, RunSpec
from compliance.audits.options import AuditOptions, AuditRequest
from runs.errors import InputError, SetupError
from runs.files.reading import read_record

if TYPE_CHECKING:
    from compliance.audits.run_artifacts import RunArtifacts

# [mlcommons/inference compliance/TEST04/audit.config and verify_performance.py]
SAME_INDEX = 3
SETTINGS = {
    "mode": PERFORMANCE_MODE,
    "performance_issue_unique": 0,
    "performance_issue_same": 1,
    "performance_issue_same_index": SAME_INDEX,
}
THRESHOLD = 0.10
FAST_THRESHOLD = 0.20
FAST_SCORES = {"SingleStream": 200_000.0, "MultiStream": 1_600_000.0}  # highest scores for FAST_THRESHOLD
SCORE_LINES = {
    "SingleStream": re.compile(r".*Early stopping (90th|90\.0th|99\.9th) percentile estimate"),
    "MultiStream": re.compile(r".*Early stopping (99th|99\.0th) percentile estimate"),
    "Server": re.compile(r"Completed samples per second"),
    "Offline": re.compile(r"Samples per second"),
}
_ERRORS = re.compile(r"\d+ ERROR")
RULE = (
    "official TEST04: the test score must stay below (1 + threshold) × the reference score; threshold 0.1, 0.2 for "
    "SingleStream scores up to 200000. Not required for this benchmark"
)


@dataclass(frozen=True)
class OfficialOutcome:
    """The result of the official script for two summary files."""

    text: str  # content of `verify_performance.txt`
    # printed scores; None if the script ends before it prints them
    reference_score: str | None
    test_score: str | None
    passed: bool  # True if the script prints TEST PASS


class OfficialTest04(AuditTest[AuditOptions]):
    name = "TEST04"
    summary = "Compare two runs as the official TEST04 does. This benchmark does not require it."
    official = True
    existing = ("performance", "performance")

    def validate(self, request: AuditRequest[AuditOptions]) -> None:
        if request.loaded_count <= SAME_INDEX:
            raise SetupError(
                f"--test TEST04: needs at least {SAME_INDEX + 1} samples, but LoadGen loads {request.loaded_count}",
                f"use a dataset with at least {SAME_INDEX + 1} samples",
            )

    def runs(self, request: AuditRequest[AuditOptions]) -> list[RunSpec]:
        return [RunSpec("reference"), RunSpec("repeat", settings=SETTINGS, scenario=request.scenario)]

    def verify(self, request: AuditRequest[AuditOptions], runs: list["RunArtifacts"]) -> AuditResult:
        self.need(runs, 2)
        outcome = official_outcome(runs[0].dir.summary, runs[1].dir.summary)
        verdict = next((line for line in outcome.text.splitlines() if line.startswith("TEST")), "no verdict")
        readable = [run for run in runs if run.dir.detail.exists()]
        return self.result(
            [],
            readable,
            passed=outcome.passed,
            reason=f"{verdict} (test score {outcome.test_score}, reference score {outcome.reference_score})",
            rule=RULE,
            text=self.text_of(outcome.text, RULE, readable, ()),
            details={
                "official_text": outcome.text,
                "reference_score": outcome.reference_score,
                "test_score": outcome.test_score,
            },
        )


def official_outcome(reference: Path, test: Path) -> OfficialOutcome:
    """Compare two mlperf_log_summary.txt files as the official script does.

    Raises:
        InputError: If a file cannot be read, or a score is not a number.
    """
    reference_summary, test_summary = _Summary(reference, "reference"), _Summary(test, "test")
    lines, passed = ["Verifying performance.", *reference_summary.warnings], False
    score: str | None = None
    test_score: str | None = None
    if reference_summary.invalid:
        lines.append("TEST FAIL: Reference results are invalid")
    elif test_summary.invalid:
        lines += [*test_summary.warnings, "TEST FAIL: Test results are invalid"]
    elif reference_summary.scenario != test_summary.scenario:
        lines += [*test_summary.warnings, "Test and reference scenarios do not match!"]
    else:
        fast = reference_summary.value <= FAST_SCORES.get(reference_summary.scenario, float("-inf"))
        passed = test_summary.value < reference_summary.value * (1 + (FAST_THRESHOLD if fast else THRESHOLD))
        score, test_score = reference_summary.score, test_summary.score
        lines += [*test_summary.warnings, f"reference score = {score}", f"test score = {test_score}"]
        lines.append("TEST PASS" if passed else "TEST FAIL: Test score invalid")
    return OfficialOutcome("\n".join(lines) + "\n", score, test_score, passed)


class _Summary:
    """The values that the official script reads in a summary. The last score before INVALID counts."""

    def __init__(self, path: Path, role: str) -> None:
        self.scenario = ""
        self.score = "0"
        self.invalid = False
        self.warnings: list[str] = []
        try:
            text = read_record(path, "give a directory with LoadGen's logs").decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not a text file ({error})", "restore the file that LoadGen wrote") from error
        for line in text.split("\n"):
            pattern = SCORE_LINES.get(self.scenario)
            if line.startswith("Scenario"):
                self.scenario = self._value(path, line)
            elif pattern is not None and pattern.match(line):
                self.score = self._score(path, self._value(path, line))
            elif line.startswith("Result is") and self._value(path, line) == "INVALID":
                self.invalid = True
                break
            elif _ERRORS.match(line):
                self.warnings.append(f"WARNING: {line.split(' ', 1)[0]} ERROR reported in {role} results")
        self.value = float(self.score)

    def _score(self, path: Path, text: str) -> str:
        try:
            number = float(text)
            return str(1e9 / number) if self.scenario in FAST_SCORES else text
        except (ValueError, ZeroDivisionError) as error:
            raise InputError(
                f"{path}: the score {text[:40]!r} is not a finite number", "restore the file that LoadGen wrote"
            ) from error

    @staticmethod
    def _value(path: Path, line: str) -> str:
        _, separator, value = line.partition(": ")
        if not separator:
            raise InputError(
                f"{path}: the value is missing in the line {line[:60]!r}", "restore the file that LoadGen wrote"
            )
        return value.strip()
