"""What "completed" rests on: an accuracy leg whose answers pass when scored again, made by the same system.

Only a benchmark's own evaluation leaves files that can be judged here; of any other nothing can be told.
"""

from dataclasses import dataclass
from typing import Any

from compliance.mechanisms.engine_facts import facts_of_run
from compliance.verify.find_results import ResultLegs
from compliance.verify.result_verdict import Verification
from runs.files import sha256_of
from runs.record.leg import ACCURACY, PERFORMANCE, FinishedLeg

_SCORES = ("rouge1", "rouge2", "rougeL", "rougeLsum", "gen_len", "gen_num")


@dataclass(frozen=True)
class QualityEvidence:
    """An accuracy leg, judged. `passed` is None where there is no leg; `failures` say what speaks against it.
    `evaluation` is its name in the registry."""

    passed: bool | None
    failures: tuple[str, ...] = ()
    directory: str | None = None
    accuracy_log_sha256: str | None = None
    accuracy_text_sha256: str | None = None
    scores: dict[str, float] | None = None
    delta: str | None = None  # scores against the reference's, in per cent
    evaluation: str | None = None

    def as_json(self) -> dict[str, Any]:
        names = ("passed", "directory", "accuracy_log_sha256", "accuracy_text_sha256", "delta")
        return {**{name: getattr(self, name) for name in names}, "failures": list(self.failures)}

    def columns(self) -> dict[str, Any]:
        """The scores as they stand in a row."""
        passed = None if self.passed is None else int(self.passed)
        return {**{name: (self.scores or {}).get(name) for name in _SCORES}, "accuracy_passed": passed}


def quality_evidence(result: ResultLegs, verdict: Verification) -> QualityEvidence:
    """Judge the accuracy leg of a result.

    Args:
        verdict: what `verify_result` found in them; its scores come from the answers, not from accuracy.txt alone.
    """
    leg, part = result.leg(ACCURACY), next((part for part in verdict.parts if part.mode == "accuracy"), None)
    if leg is None:
        return QualityEvidence(None)
    if part is None:
        why = verdict.error.message if verdict.error else "it could not be judged"
        return QualityEvidence(False, (why,), str(leg.run.root), evaluation=leg.benchmark.quality_eval)
    failures = [*(found.sentence for found in part.contradictions), *part.failures(verdict.official_asked)]
    if part.details.get("scores_from") != leg.run.accuracy_log.name:
        failures.append("the answers were not scored again: the scores are only claimed")
    performance = result.leg(PERFORMANCE)
    if performance is not None:
        failures += [check.sentence for check in verdict.of("error")]
        failures += _other_engine(performance, leg)
    scores, target = part.details.get("scores"), part.details.get("target")
    return QualityEvidence(
        not failures,
        tuple(failures),
        str(leg.run.root),
        sha256_of(leg.run.accuracy_log) if leg.run.accuracy_log.is_file() else None,
        sha256_of(leg.run.accuracy_text) if leg.run.accuracy_text.is_file() else None,
        scores,
        _delta(scores, target) if scores and target else None,
        leg.benchmark.quality_eval,
    )


def _other_engine(performance: FinishedLeg, accuracy: FinishedLeg) -> list[str]:
    """Lossy settings that one leg ran with and the other did not: accuracy of another system is no evidence."""
    shown = []
    for leg in (performance, accuracy):
        pairs = facts_of_run(leg.run, leg.manifest).in_force
        shown.append(", ".join(sorted(f"{mechanism}/{variant or '?'}" for mechanism, variant in pairs)))
    if shown[0] == shown[1]:
        return []
    words = [one or "nothing lossy" for one in shown]
    return [f"the performance leg ran with {words[0]}, the accuracy leg with {words[1]}"]


def _delta(scores: dict[str, float], target: dict[str, float]) -> str:
    return ", ".join(
        f"{name} {100 * (scores[name] / reference - 1):+.2f} %"
        for name, reference in target.items()
        if name != "gen_num"
    )
