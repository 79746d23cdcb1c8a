"""The audit output_length, similar to TEST09: it compares the output lengths of a performance and an accuracy run."""

from collections.abc import Iterator
from statistics import fmean
from typing import TYPE_CHECKING

from compliance.audits.mode_comparison import TwoModeAudit, TwoModeOptions
from compliance.audits.options import Share, audit_field
from compliance.judge.rule import AUDIT_AGAIN, OURS, decides
from compliance.judge.verdict import Finding, compared

if TYPE_CHECKING:
    from compliance.audits.logged_tokens import Ids
    from compliance.audits.mode_comparison import Responses
    from compliance.audits.run_artifacts import RunArtifacts


class LengthOptions(TwoModeOptions):
    threshold: Share = audit_field(0.10, "Allowed relative difference of the mean output lengths. Default: 0.1.", "X")


class OutputLength(TwoModeAudit):
    name = "output_length"
    summary = "Compare the mean output length of a performance run with that of the accuracy run."
    heading, text_name = "Output length", "verify_output_len.txt"
    options = LengthOptions

    def rule(self, threshold: float) -> str:
        return f"mean output tokens must be {1 - threshold:g} to {1 + threshold:g} × those of the accuracy run"

    @decides(
        "audit",
        ("length-mean", "error", OURS, "mean output length, compared with the accuracy run", AUDIT_AGAIN),
        ("length-samples", "error", OURS, "samples that are missing in the accuracy run", AUDIT_AGAIN),
    )  # fmt: skip
    def compare(
        self, responses: "dict[int, Ids]", logged: "Responses", performance: "RunArtifacts", threshold: float
    ) -> Iterator[Finding]:
        issued = self.lengths_by_sample(performance, logged)
        if not issued:
            return
        mean_tokens = fmean(length for _, length in issued)
        # A performance run may repeat some samples and skip others, so only its own samples are compared.
        same = [len(responses[index]) for index, _ in issued if index in responses]
        expected = fmean(same) if same else 0.0
        ratio = mean_tokens / expected if expected else float("inf")
        yield compared(
            "length-mean",
            1 - threshold <= ratio <= 1 + threshold,
            f"{mean_tokens:.2f} tokens ({len(issued):,} responses), {ratio:.4f} × the accuracy run",
            f"{1 - threshold:.4g} to {1 + threshold:.4g} × {expected:.2f} tokens (same samples)",
            performance.dir.root,
            mean_tokens=mean_tokens,
            accuracy_mean_tokens=expected,
            text="mean output length",
        )
        unknown = sorted({index for index, _ in issued} - responses.keys())
        text = f"{len(unknown)}" + (f" (samples {unknown[:3]})" if unknown else "")
        yield compared("length-samples", not unknown, text, "0", performance.dir.root)
