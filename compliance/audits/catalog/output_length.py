"""output_length (the idea of TEST09): performance responses are as long as those of the accuracy run."""

from collections.abc import Iterator
from statistics import fmean
from typing import TYPE_CHECKING

from compliance.audits.mode_comparison import TwoModeAudit, TwoModeOptions
from compliance.audits.options import Share, audit_field
from compliance.judge.check import decides
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import AUDIT_AGAIN, OURS

if TYPE_CHECKING:
    from compliance.audits.logged_tokens import Ids
    from compliance.audits.mode_comparison import Responses
    from compliance.audits.run_artifacts import RunArtifacts


class LengthOptions(TwoModeOptions):
    threshold: Share = audit_field(0.10, "Difference of the mean output lengths. Default: 0.1.", "X")


class OutputLength(TwoModeAudit):
    name = "output_length"
    summary = "Mean output length of a performance run within 10 % of the accuracy run's."
    heading, text_name = "Output length", "verify_output_len.txt"
    options = LengthOptions

    def rule(self, threshold: float) -> str:
        return f"mean output tokens of the performance run within ± {threshold:g} of the accuracy run's, same samples"

    @decides(
        "audit",
        ("length-mean", "error", OURS, "performance responses are as long as the accuracy run's", AUDIT_AGAIN),
        ("length-samples", "error", OURS, "both runs answered the same samples", AUDIT_AGAIN),
    )  # fmt: skip
    def compare(
        self, responses: "dict[int, Ids]", logged: "Responses", performance: "RunArtifacts", threshold: float
    ) -> Iterator[Finding]:
        issued = [(entry.qsl_idx, len(ids)) for entry, ids in logged]
        if performance.dir.requests.exists():
            table = performance.request_table
            issued = list(zip(table.sample_index.tolist(), table.output_tokens.tolist(), strict=True))
        if not issued:
            return
        found = fmean(length for _, length in issued)
        # A performance run may issue some samples often and others never, so the same ones are compared.
        same = [len(responses[index]) for index, _ in issued if index in responses]
        expected = fmean(same) if same else 0.0
        ratio = found / expected if expected else float("inf")
        yield compared(
            "length-mean",
            "mean output length",
            1 - threshold <= ratio <= 1 + threshold,
            f"{found:.2f} tokens over {len(issued):,} responses, {ratio:.4f} of the accuracy run's",
            f"{1 - threshold:.4g} to {1 + threshold:.4g} of {expected:.2f} tokens (same samples)",
            performance.dir.root,
            mean_tokens=found,
            accuracy_mean_tokens=expected,
        )
        unknown = sorted({index for index, _ in issued} - responses.keys())
        text = f"{len(unknown)} are not in the accuracy run" + (f" (samples {unknown[:3]})" if unknown else "")
        name, where = "samples of the performance run", performance.dir.root
        yield compared("length-samples", name, not unknown, text, "all in the accuracy run", where)
