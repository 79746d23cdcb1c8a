"""The verdict on the accuracy run of a result, as evidence for a quality evaluation."""

from dataclasses import dataclass, replace
from typing import Any

from compliance.judge.verdict import Finding
from compliance.results.details import ResultVerdict, RunVerdict, part_of
from compliance.results.result import Result
from runs.files.writing import sha256_of
from runs.record.fingerprint import LOSSY, describe_differences, differences, run_fingerprint

# Rules whose violation means that the accuracy is unknown.
SCORES_UNKNOWN = frozenset({"accuracy-scored-again", "accuracy-no-target"})


@dataclass(frozen=True)
class QualityEvidence:
    """The verdict on the accuracy run of a result."""

    directory: str | None = None  # None: the run is missing
    failures: tuple[str, ...] = ()  # reasons why the run does not pass
    unknown: tuple[str, ...] = ()  # reasons why the verdict is unknown
    evaluation: str | None = None  # ID of the evaluation in the registry
    scores: dict[str, float] | None = None
    delta: str | None = None  # differences from the reference scores, in percent
    accuracy_log_sha256: str | None = None
    accuracy_text_sha256: str | None = None

    @property
    def passed(self) -> bool | None:
        """True if the run passes; None if its verdict is unknown."""
        if self.failures:
            return False
        return None if self.unknown or self.directory is None else True

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of a row with the scores and the verdict."""
        return {**(self.scores or {}), "accuracy_passed": None if self.passed is None else int(self.passed)}

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons why the run does not pass or its verdict is unknown."""
        return self.unknown + self.failures


def quality_evidence(result: Result, verdict: ResultVerdict) -> QualityEvidence:
    """Return the verdict on the accuracy run of a result, taken from the verdict of `verify`."""
    run, part = result.accuracy, part_of(verdict, "accuracy")
    if run is None:
        return QualityEvidence()
    evidence = QualityEvidence(str(run.dir.root), evaluation=run.benchmark.quality_eval)
    if part is None:
        return replace(
            evidence, unknown=(verdict.error.message if verdict.error else "the accuracy run could not be checked",)
        )
    failed = decisive(part)
    failures = [finding.sentence for finding in failed if finding.rule not in SCORES_UNKNOWN]
    unknown = [finding.sentence for finding in part.contradictions]
    unknown += [finding.sentence for finding in failed if finding.rule in SCORES_UNKNOWN]
    if not part.details.scored_again:
        unknown.append("the responses were not rescored, so the scores are not verified")
    performance = result.performance
    if performance is not None:
        failures += [finding.sentence for finding in verdict.violated]
        different = differences(run_fingerprint(performance), run_fingerprint(run), LOSSY)
        failures += describe_differences(different, "in the performance run", "in the accuracy run")
    scores, target = part.details.values.get("scores"), part.details.values.get("target")
    deltas = [
        f"{name} {100 * (scores[name] / reference - 1):+.2f}%"
        for name, reference in (target or {}).items()
        if scores and name != "gen_num"
    ]
    log, text = (sha256_of(path) if path.is_file() else None for path in (run.dir.accuracy_log, run.dir.accuracy_text))
    return replace(
        evidence,
        failures=tuple(failures),
        unknown=tuple(unknown),
        scores=scores,
        delta=", ".join(deltas) or None,
        accuracy_log_sha256=log,
        accuracy_text_sha256=text,
    )


def decisive(part: RunVerdict) -> list[Finding]:
    """Return the violated rules that decide the verdict on a run, and those that leave its accuracy unknown."""
    return [finding for finding in part.violated if part.counts(finding) or finding.rule in SCORES_UNKNOWN]
