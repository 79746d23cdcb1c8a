"""The audit output_consistency, similar to TEST01: it compares the responses of a performance and an accuracy run."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

from compliance.audits.base import NAMED_IN_MESSAGES
from compliance.audits.mode_comparison import TwoModeAudit, TwoModeOptions
from compliance.audits.options import Share, audit_field
from compliance.judge.rule import AUDIT_AGAIN, OURS, decides
from compliance.judge.verdict import Finding, compared
from runs.record.engines.server_facts import COUNTS_SHARE, without_ids

if TYPE_CHECKING:
    from compliance.audits.logged_tokens import Ids
    from compliance.audits.mode_comparison import Responses
    from compliance.audits.run_artifacts import RunArtifacts

# On average, half of a differing response follows its first difference, hence a factor of 2; doubled for chance.
DIFFERENT_RESPONSES_PER_TOKEN = 4


class ConsistencyOptions(TwoModeOptions):
    # Greedy responses depend slightly on the batch: rounding decides between nearly equally likely tokens, and all
    # later tokens differ. docs/audits.md has measurements.
    threshold: Share = audit_field(
        0.05, "Maximum share of tokens after the first difference in a response. Default: 0.05.", "X"
    )


class OutputConsistency(TwoModeAudit):
    name = "output_consistency"
    summary = "Compare the responses of a performance run with those of the accuracy run, token by token."
    heading, text_name = "Output consistency", "verify_accuracy.txt"
    options = ConsistencyOptions

    def rule(self, threshold: float) -> str:
        return (
            "tokens before the first difference between each logged performance response and the accuracy run's "
            f"response to the same sample must be at least {1 - threshold:.4g} of all tokens of the longer responses; "
            f"at least {1 - DIFFERENT_RESPONSES_PER_TOKEN * threshold:.4g} of all responses must be equal by hash"
        )

    @decides(
        "audit",
        ("consistency-tokens", "error", OURS, "tokens equal to the accuracy run", AUDIT_AGAIN),
        ("consistency-hashes", "error", OURS, "responses equal to the accuracy run, by hash", AUDIT_AGAIN),
        ("consistency-record", "error", OURS, "logged responses, compared with the request log", AUDIT_AGAIN),
    )  # fmt: skip
    def compare(
        self, responses: "dict[int, Ids]", logged: "Responses", performance: "RunArtifacts", threshold: float
    ) -> Iterator[Finding]:
        self.need_ids([performance], zeros_only=True)
        fit = _with_counted_length if performance.manifest and without_ids(performance.manifest) else _unchanged
        if logged:
            yield _tokens(logged, responses, 1 - threshold, fit)
        if not performance.dir.requests.exists():
            return
        table, where = performance.request_table, performance.dir.requests
        rows = zip(table.sample_index.tolist(), table.output_tokens.tolist(), table.output_sha256, strict=True)
        different = [
            index
            for index, count, digest in rows
            if index not in responses
            or sha256(fit(responses[index], count).astype("<i4").tobytes()).hexdigest() != digest
        ]
        share, least = 1 - len(different) / max(1, len(table)), 1 - DIFFERENT_RESPONSES_PER_TOKEN * threshold
        passed, value = len(table) > 0 and share >= least, f"{share:.4f} of {len(table):,} responses"
        value += "" if passed else f" (samples {different[:NAMED_IN_MESSAGES]})"
        name = "responses equal, by hash"
        yield compared("consistency-hashes", passed, value, f"at least {least:.4g}", where, share=share, text=name)
        recorded = dict(zip(table.seq.tolist(), table.output_sha256, strict=True))
        wrong = [
            entry.seq_id
            for entry in performance.entries
            if recorded.get(entry.seq_id) != sha256(entry.data).hexdigest()
        ]
        value = f"{len(wrong)} of {len(performance.entries)}"
        value += f" (seq_id {wrong[:NAMED_IN_MESSAGES]})" if wrong else ""
        text = "logged responses that differ from the request log"
        yield compared("consistency-record", not wrong, value, "none", where, text=text)


def _unchanged(ids: "Ids", count: int) -> "Ids":
    return ids


def _with_counted_length(ids: "Ids", count: int) -> "Ids":
    """Return the IDs of a text with the length that the server reported in the performance run.

    In an accuracy run, the tokenizer counts the tokens of a text. Its number may differ a little.
    """
    import numpy as np

    if abs(count - len(ids)) > max(1, COUNTS_SHARE * len(ids)):
        return ids
    return np.pad(ids[:count], (0, max(0, count - len(ids))))


def _tokens(
    logged: "Responses", responses: "dict[int, Ids]", least: float, fit: "Callable[[Ids, int], Ids]"
) -> Finding:
    """Compare the logged responses with those of the accuracy run, up to the first different token.

    Args:
        logged: Entries of the performance run, and their token IDs.
        responses: Token IDs of the accuracy run by sample index.
        least: Minimum share of equal tokens.
        fit: Returns the IDs of a response with a number of tokens.
    """
    import numpy as np

    agreed = total = 0
    different = []
    for entry, ids in logged:
        expected = fit(responses.get(entry.qsl_idx, ids[:0]), len(ids))
        both, longer = min(len(ids), len(expected)), max(len(ids), len(expected))
        places = np.flatnonzero(ids[:both] != expected[:both])
        common = int(places[0]) if len(places) else both
        agreed += common
        total += longer
        if common < longer:
            where = f"from token {common}" if entry.qsl_idx in responses else "not in the accuracy run"
            different.append(f"sample {entry.qsl_idx} {where}")
    share = agreed / total if total else 0.0
    value = f"{share:.4f} of {total:,} tokens ({len(different)} of {len(logged)} responses differ)"
    if share < least:
        value += f" ({'; '.join(different[:NAMED_IN_MESSAGES])})"
    name = "tokens equal up to the first difference"
    return compared("consistency-tokens", share >= least, value, f"at least {least:.4g}", share=share, text=name)
