"""output_length (the idea of TEST09): performance answers are as long as those of the accuracy leg, within 10 %."""

import numpy as np

from compliance.audits.base import (
    AuditRequest,
    AuditResult,
    LegArtifacts,
    need_legs,
    threshold_of,
)
from compliance.audits.two_modes import TwoModeAudit, accuracy_answers, logged_answers
from compliance.finding import applied
from runs.errors import ExecutionError

DEFAULT_THRESHOLD = 0.10


class OutputLength(TwoModeAudit):
    """See the module."""

    name = "output_length"
    summary = "Mean output length of a performance leg within 10 % of the accuracy leg's."
    default_threshold = DEFAULT_THRESHOLD

    def verify(self, request: AuditRequest, legs: list[LegArtifacts]) -> AuditResult:
        need_legs(self, legs, 2)
        accuracy, performance = legs[:2]
        threshold = threshold_of(request, DEFAULT_THRESHOLD)
        _, answers = accuracy_answers(accuracy)
        issued = _lengths(performance)
        unknown = sorted({index for index, _ in issued} - answers.keys())
        found = float(np.mean([length for _, length in issued]))
        # A performance leg may issue some samples often and others never: the same ones are compared.
        same = [len(answers[index]) for index, _ in issued if index in answers]
        expected = float(np.mean(same)) if same else 0.0
        ratio = found / expected if expected else float("inf")
        checks = (
            applied(
                "length-samples",
                "samples of the performance leg",
                not unknown,
                f"{len(unknown)} are not in the accuracy leg" + (f" (samples {unknown[:3]})" if unknown else ""),
                "all in the accuracy leg",
                performance.run.root,
            ),
            applied(
                "length-mean",
                "mean output length",
                1 - threshold <= ratio <= 1 + threshold,
                f"{found:.2f} tokens over {len(issued):,} answers, {ratio:.4f} of the accuracy leg's",
                f"{1 - threshold:.4g} to {1 + threshold:.4g} of {expected:.2f} tokens (same samples)",
                performance.run.root,
            ),
        )
        passed = all(check.passed for check in checks)
        rule = f"mean output tokens of the performance leg within ± {threshold:g} of the accuracy leg's, same samples"
        return AuditResult(
            test=self.name,
            passed=passed,
            official=False,
            required=False,
            reason=next((check for check in checks if not check.passed), checks[-1]).sentence,
            rule=rule,
            checks=checks,
            legs=(accuracy.summary(), performance.summary()),
            text_name="verify_output_len.txt",
            text="\n".join(
                [f"Output length check pass: {passed}", f"rule: {rule}", *(f"check: {check}" for check in checks), ""]
            ),
            details={
                "threshold": threshold,
                "performance_mean_tokens": found,
                "accuracy_mean_tokens": expected,
                "accuracy_mean_tokens_all": float(np.mean([len(ids) for ids in answers.values()])),
                "ratio": ratio if ratio != float("inf") else None,
            },
        )


def _lengths(performance: LegArtifacts) -> list[tuple[int, int]]:
    """(sample index, output tokens) of each answer: from our record of all requests, else from the logged ones."""
    logged = logged_answers(performance)
    if performance.run.requests.exists():
        table = performance.requests
        pairs = list(zip(table.sample_index.tolist(), table.output_tokens.tolist(), strict=True))
    else:
        pairs = [(entry.qsl_idx, len(ids)) for entry, ids in logged]
    if not pairs:
        raise ExecutionError(
            f"{performance.run.root} has no output lengths: no requests.jsonl, and no logged answer",
            "run the audit's own legs with --scenario, or log answers with --audit-conf",
        )
    return pairs
