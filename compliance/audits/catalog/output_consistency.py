"""output_consistency (the idea of TEST01): performance responses are the ones that were scored."""

from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

from compliance.audits.base import NAMED_IN_MESSAGES
from compliance.audits.mode_comparison import TwoModeAudit, TwoModeOptions
from compliance.audits.options import Share, audit_field
from compliance.judge.check import decides
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import AUDIT_AGAIN, OURS

if TYPE_CHECKING:
    from compliance.audits.logged_tokens import Ids
    from compliance.audits.mode_comparison import Responses
    from compliance.audits.run_artifacts import RunArtifacts

# On average half of a differing response is after the first difference; doubled for chance.
DIFFERENT_RESPONSES_PER_TOKEN = 4


class ConsistencyOptions(TwoModeOptions):
    # Greedy responses depend a little on what else is in the batch: one rounding decides a near tie, and everything
    # after it differs. docs/audits.md has what was measured.
    threshold: Share = audit_field(0.05, "Share of tokens from the first difference on. Default: 0.05.", "X")


class OutputConsistency(TwoModeAudit):
    name = "output_consistency"
    summary = "Responses of a performance run are those of the accuracy run, token by token."
    heading, text_name = "Output consistency", "verify_accuracy.txt"
    options = ConsistencyOptions

    def rule(self, threshold: float) -> str:
        return (
            "of the tokens of each logged performance response, those before the first difference to the "
            "accuracy run's "
            f"response to the same sample; over all responses at least {1 - threshold:.4g} of the longer "
            "responses' tokens; "
            f"and by their hashes at least {1 - DIFFERENT_RESPONSES_PER_TOKEN * threshold:.4g} of all responses equal"
        )

    @decides(
        "audit",
        ("consistency-tokens", "error", OURS, "performance responses are the accuracy run's, by tokens", AUDIT_AGAIN),
        ("consistency-hashes", "error", OURS, "performance responses are the accuracy run's, by hashes", AUDIT_AGAIN),
        ("consistency-record", "error", OURS, "LoadGen's log and the request log have the same responses", AUDIT_AGAIN),
    )  # fmt: skip
    def compare(
        self, responses: "dict[int, Ids]", logged: "Responses", performance: "RunArtifacts", threshold: float
    ) -> Iterator[Finding]:
        if logged:
            yield _tokens(logged, responses, 1 - threshold)
        if not performance.dir.requests.exists():
            return
        table, where = performance.request_table, performance.dir.requests
        digests = {index: sha256(ids.astype("<i4").tobytes()).hexdigest() for index, ids in responses.items()}
        pairs = zip(table.sample_index.tolist(), table.output_sha256, strict=True)
        different = [index for index, digest in pairs if digests.get(index) != digest]
        share, least = 1 - len(different) / max(1, len(table)), 1 - DIFFERENT_RESPONSES_PER_TOKEN * threshold
        passed, found = len(table) > 0 and share >= least, f"{share:.4f} of all {len(table):,}"
        found += "" if passed else f" (samples {different[:NAMED_IN_MESSAGES]})"
        name = "responses equal, by hash"
        yield compared("consistency-hashes", name, passed, found, f"at least {least:.4g}", where, share=share)
        recorded = dict(zip(table.seq.tolist(), table.output_sha256, strict=True))
        wrong = [one.seq_id for one in performance.entries if recorded.get(one.seq_id) != sha256(one.data).hexdigest()]
        found = f"{len(wrong)} of {len(performance.entries)} differ"
        found += f" (seq_id {wrong[:NAMED_IN_MESSAGES]})" if wrong else ""
        yield compared("consistency-record", "logged responses are the recorded ones", not wrong, found, "none", where)


def _tokens(logged: "Responses", responses: "dict[int, Ids]", least: float) -> Finding:
    import numpy as np

    agreed = total = 0
    different = []
    for entry, ids in logged:
        expected = responses.get(entry.qsl_idx, ids[:0])
        both, longer = min(len(ids), len(expected)), max(len(ids), len(expected))
        places = np.flatnonzero(ids[:both] != expected[:both])
        common = int(places[0]) if len(places) else both
        agreed += common
        total += longer
        if common < longer:
            where = f"from token {common}" if entry.qsl_idx in responses else "not in the accuracy run"
            different.append(f"sample {entry.qsl_idx} {where}")
    share = agreed / total if total else 0.0
    found = f"{share:.4f} of {total:,} ({len(different)} of {len(logged)} responses differ)"
    if share < least:
        found += f" ({'; '.join(different[:NAMED_IN_MESSAGES])})"
    name = "tokens equal up to the first difference"
    return compared("consistency-tokens", name, share >= least, found, f"at least {least:.4g}", share=share)
