"""output_consistency (the idea of TEST01): are performance answers the ones that the accuracy score was given for?"""

from hashlib import sha256

import numpy as np

from compliance.audits.base import (
    AuditRequest,
    AuditResult,
    LegArtifacts,
    need_legs,
    threshold_of,
)
from compliance.audits.test06 import Ids
from compliance.audits.two_modes import TwoModeAudit, accuracy_answers, logged_answers
from compliance.finding import Finding, applied
from runs.errors import ExecutionError

# Share of tokens from the first difference on. Greedy answers depend a little on what else is in the batch: one
# rounding decides a near tie, and everything after it differs. docs/audits.md has what was measured.
DEFAULT_THRESHOLD = 0.05
# An answer that differs does so at any place, half of it on average; twice that again for chance.
DIFFERENT_ANSWERS_PER_TOKEN = 4
NAMED_IN_MESSAGES = 3


class OutputConsistency(TwoModeAudit):
    """See the module."""

    name = "output_consistency"
    summary = "Answers of a performance leg are those of the accuracy leg, token by token."
    default_threshold = DEFAULT_THRESHOLD

    def verify(self, request: AuditRequest, legs: list[LegArtifacts]) -> AuditResult:
        need_legs(self, legs, 2)
        accuracy, performance = legs[:2]
        threshold = threshold_of(request, DEFAULT_THRESHOLD)
        entries, answers = accuracy_answers(accuracy)
        logged = logged_answers(performance)
        checks: list[Finding] = []
        if logged:
            checks.append(_tokens(logged_ids=[(e.qsl_idx, ids) for e, ids in logged], answers=answers, limit=threshold))
        if performance.run.requests.exists():
            digests = {index: sha256(ids.astype("<i4").tobytes()).hexdigest() for index, ids in answers.items()}
            checks.append(_answers(performance, digests, DIFFERENT_ANSWERS_PER_TOKEN * threshold))
            checks.append(_own_record(performance))
        if not checks:
            raise ExecutionError(
                f"{performance.run.root} has neither logged answers nor a requests.jsonl",
                "run the audit's own legs with --scenario, or log answers with --audit-conf",
            )
        failed = [check for check in checks if not check.passed]
        rule = (
            f"of the tokens of each logged performance answer, those before the first difference to the accuracy leg's "
            f"answer to the same sample; over all answers at least {1 - threshold:.4g} of the longer answers' tokens; "
            f"and by their hashes at least {1 - DIFFERENT_ANSWERS_PER_TOKEN * threshold:.4g} of all answers equal"
        )
        return AuditResult(
            test=self.name,
            passed=not failed,
            official=False,
            required=False,
            reason=(failed or checks)[0].sentence,
            rule=rule,
            checks=tuple(checks),
            legs=(accuracy.summary(), performance.summary()),
            text_name="verify_accuracy.txt",
            text="\n".join(
                [
                    f"Output consistency check pass: {not failed}",
                    f"rule: {rule}",
                    *(f"check: {check}" for check in checks),
                    "",
                ]
            ),
            details={"threshold": threshold, "logged_answers": len(logged), "accuracy_answers": len(entries)},
        )


def agreed_tokens(one: Ids, other: Ids) -> int:
    """Length of the common start of two lists of ids."""
    both = min(len(one), len(other))
    different = np.flatnonzero(one[:both] != other[:both])
    return int(different[0]) if len(different) else both


def _tokens(logged_ids: list[tuple[int, Ids]], answers: dict[int, Ids], limit: float) -> Finding:
    agreed = total = 0
    different = []
    for index, ids in logged_ids:
        expected = answers.get(index)
        common = agreed_tokens(ids, expected) if expected is not None else 0
        longer = max(len(ids), len(expected) if expected is not None else 0)
        agreed += common
        total += longer
        if common < longer:
            where = f"from token {common}" if expected is not None else "not in the accuracy leg"
            different.append(f"sample {index} {where}")
    share = agreed / total if total else 0.0
    passed, where = share >= 1 - limit, "; ".join(different[:NAMED_IN_MESSAGES])
    found = f"{share:.4f} of {total:,} ({len(different)} of {len(logged_ids)} answers differ)"
    return applied(
        "consistency-tokens",
        "tokens equal up to the first difference",
        passed,
        found if passed else f"{found} ({where})",
        f"at least {1 - limit:.4g}",
        share=share,
    )


def _answers(performance: LegArtifacts, digests: dict[int, str], limit: float) -> Finding:
    table = performance.requests
    pairs = zip(table.sample_index.tolist(), table.output_sha256, strict=True)
    different = [index for index, digest in pairs if digests.get(index) != digest]
    total = len(table)
    share = 1 - len(different) / total if total else 0.0
    passed, found = total > 0 and share >= 1 - limit, f"{share:.4f} of all {total:,}"
    return applied(
        "consistency-hashes",
        "answers equal, by hash",
        passed,
        found if passed else f"{found} (samples {different[:NAMED_IN_MESSAGES]})",
        f"at least {1 - limit:.4g}",
        performance.run.requests,
        share=share,
    )


def _own_record(performance: LegArtifacts) -> Finding:
    """LoadGen's log and our record tell of the same answers."""
    table = performance.requests
    recorded = dict(zip(table.seq.tolist(), table.output_sha256, strict=True))
    wrong = [e.seq_id for e in performance.entries if recorded.get(e.seq_id) != sha256(e.data).hexdigest()]
    found = f"{len(wrong)} of {len(performance.entries)} differ"
    return applied(
        "consistency-record",
        "logged answers are the recorded ones",
        not wrong,
        f"{found} (seq_id {wrong[:NAMED_IN_MESSAGES]})" if wrong else found,
        "none",
        performance.run.requests,
    )
