"""The rules of compliance/evidence/plausibility.py on the legs of a result."""

from collections.abc import Mapping, Sequence

from compliance.accuracy.metrics import Metric, Scores
from compliance.accuracy.scores import Answer
from compliance.evidence.plausibility import (
    first_token_takes_a_step,
    not_padded,
    not_the_reference,
    repeats_cost_as_much,
    scores_within_reach,
    shared_answers,
)
from compliance.finding import Finding
from qsl.tokenizers import Tokenizer
from runs.benchmark import Target
from runs.record.leg import FinishedLeg


def performance_plausible(leg: FinishedLeg) -> list[Finding]:
    """Rules on the times of a performance leg; none without our record of every request."""
    table = leg.requests
    if table is None:
        return []
    scenario = leg.detail.scenario
    return _applied([repeats_cost_as_much(table, scenario), first_token_takes_a_step(table, scenario)])


def answers_plausible(answers: Sequence[Answer], references: Sequence[str], tokenizer: Tokenizer) -> list[Finding]:
    """Rules on the answers of an accuracy leg that are scored; `references` of the same samples, in the same order."""
    texts = [answer.text.strip() for answer in answers]
    return _applied(
        [
            shared_answers((answer.sample_index, answer.ids) for answer in answers),
            not_padded([len(answer.ids) for answer in answers], texts, tokenizer.encode_batch),
            not_the_reference(texts, references),
        ]
    )


def scores_plausible(metric: Metric, scores: Scores, targets: Mapping[str, Target]) -> list[Finding]:
    """Rules on the scores themselves."""
    return _applied([scores_within_reach(metric, scores, targets)])


def _applied(findings: Sequence[Finding | None]) -> list[Finding]:
    """Without those that have nothing to say of this leg."""
    return [finding for finding in findings if finding is not None]
