"""The rules of compliance/evidence/plausibility.py on the legs of a result."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from compliance.accuracy.metrics import Metric, Scores
from compliance.accuracy.scores import DecodedAnswer
from compliance.evidence.plausibility import (
    first_token_takes_a_step,
    first_tokens_not_held_back,
    first_tokens_on_the_line,
    not_padded,
    not_the_reference,
    repeats_cost_as_much,
    scores_within_reach,
    shared_answers,
)
from compliance.finding import Finding
from qsl.tokenizers import Tokenizer
from runs.benchmark import Target
from runs.numbers.numbers import reported_numbers
from runs.record.leg import FinishedLeg
from runs.record.requests_log import NO_TIME


def performance_plausible(leg: FinishedLeg) -> list[Finding]:
    """Rules on the times of a performance leg; most of them need our record of every request."""
    table, scenario = leg.requests, leg.detail.scenario
    found = [*_first_tokens(leg)]
    if table is not None:
        found += [repeats_cost_as_much(table, scenario), first_token_takes_a_step(table, scenario)]
    return _applied(found)


def _first_tokens(leg: FinishedLeg) -> Iterator[Finding | None]:
    if leg.detail.scenario != "Server" or not leg.detail.has_results:
        return
    logged_ns = leg.detail.get("requested_server_ttft_latency")
    limit_ns = float(logged_ns) if isinstance(logged_ns, int | float) else 0.0
    table, p10_ns = leg.requests, None
    if table is not None and len(table) and not (table.first_token_ns == NO_TIME).any():
        p10_ns = float(np.percentile(table.first_token_ns - table.issue_ns, 10))
    found = first_tokens_not_held_back(reported_numbers(leg.detail).ttft_ns, limit_ns, p10_ns)
    # This harness tells LoadGen at once, so in its legs the engine held back. Of others it is for a reviewer to ask.
    yield _to_ask(found) if leg.manifest is None else found
    yield _to_ask(None if table is None else first_tokens_on_the_line(table, limit_ns))


def _to_ask(found: Finding | None) -> Finding | None:
    return found if found is None or found.passed else replace(found, severity="warning")


def answers_plausible(
    answers: Sequence[DecodedAnswer], references: Sequence[str], tokenizer: Tokenizer
) -> list[Finding]:
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
