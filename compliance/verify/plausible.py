"""The rules of compliance/plausibility.py on the legs of a result, as checks."""

from collections.abc import Sequence
from dataclasses import asdict

from compliance.accuracy import AccuracyScores, decode_ids
from compliance.checks import Check
from compliance.plausibility import (
    Finding,
    first_token_takes_a_step,
    not_padded,
    not_the_reference,
    repeats_cost_as_much,
    rouge_within_reach,
    shared_answers,
)
from compliance.verify.legs import Leg
from qsl.tokenizers import Tokenizer
from runs.accuracy_log import AccuracyEntry
from runs.benchmarks import AccuracyTarget
from runs.requests_log import read_requests


def performance_plausible(leg: Leg) -> list[Check]:
    """Rules on the times of a performance leg; none without our record of every request."""
    if not leg.run.requests.is_file():
        return []
    table = read_requests(leg.run.requests)
    scenario = leg.detail.scenario
    return _checks([repeats_cost_as_much(table, scenario), first_token_takes_a_step(table, scenario)])


def answers_plausible(entries: Sequence[AccuracyEntry], references: Sequence[str], tokenizer: Tokenizer) -> list[Check]:
    """Rules on the answers of an accuracy leg that could be scored; `references` by sample index."""
    ids = [decode_ids(entry.data, entry.token_count) for entry in entries]
    texts = [text.strip() for text in tokenizer.batch_decode([one.tolist() for one in ids])]
    return _checks(
        [
            shared_answers((entry.qsl_idx, one) for entry, one in zip(entries, ids, strict=True)),
            not_padded([len(one) for one in ids], texts, tokenizer.encode_batch),
            not_the_reference(texts, [references[entry.qsl_idx] for entry in entries]),
        ]
    )


def scores_plausible(scores: AccuracyScores, target: AccuracyTarget) -> list[Check]:
    """Rules on the scores themselves."""
    return _checks([rouge_within_reach(scores, target)])


def _checks(findings: list[Finding | None]) -> list[Check]:
    return [Check(**asdict(finding)) for finding in findings if finding is not None]
