"""output_length (the idea of TEST09): performance answers are as long as those of the accuracy leg."""

from collections.abc import Iterator
from statistics import fmean
from typing import TYPE_CHECKING

from compliance.audits.options import Share, audit_field
from compliance.audits.two_modes import TwoModeAudit, TwoModeOptions
from compliance.judge.check import decides
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import AUDIT_AGAIN, OURS

if TYPE_CHECKING:
    from compliance.audits.leg_artifacts import LegArtifacts
    from compliance.audits.logged_tokens import Ids
    from compliance.audits.two_modes import Answers


class LengthOptions(TwoModeOptions):
    threshold: Share = audit_field(0.10, "Difference of the mean output lengths. Default: 0.1.", "X")


class OutputLength(TwoModeAudit):
    name = "output_length"
    summary = "Mean output length of a performance leg within 10 % of the accuracy leg's."
    heading, text_name = "Output length", "verify_output_len.txt"
    options = LengthOptions

    def rule(self, threshold: float) -> str:
        return f"mean output tokens of the performance leg within ± {threshold:g} of the accuracy leg's, same samples"

    @decides(
        "audit",
        ("length-mean", "error", OURS, "performance answers are as long as the accuracy leg's", AUDIT_AGAIN),
        ("length-samples", "error", OURS, "both legs answered the same samples", AUDIT_AGAIN),
    )  # fmt: skip
    def compare(
        self, answers: "dict[int, Ids]", logged: "Answers", performance: "LegArtifacts", threshold: float
    ) -> Iterator[Finding]:
        issued = [(entry.qsl_idx, len(ids)) for entry, ids in logged]
        if performance.run.requests.exists():
            table = performance.request_table
            issued = list(zip(table.sample_index.tolist(), table.output_tokens.tolist(), strict=True))
        if not issued:
            return
        found = fmean(length for _, length in issued)
        # A performance leg may issue some samples often and others never, so the same ones are compared.
        same = [len(answers[index]) for index, _ in issued if index in answers]
        expected = fmean(same) if same else 0.0
        ratio = found / expected if expected else float("inf")
        yield compared(
            "length-mean",
            "mean output length",
            1 - threshold <= ratio <= 1 + threshold,
            f"{found:.2f} tokens over {len(issued):,} answers, {ratio:.4f} of the accuracy leg's",
            f"{1 - threshold:.4g} to {1 + threshold:.4g} of {expected:.2f} tokens (same samples)",
            performance.run.root,
            mean_tokens=found,
            accuracy_mean_tokens=expected,
        )
        unknown = sorted({index for index, _ in issued} - answers.keys())
        text = f"{len(unknown)} are not in the accuracy leg" + (f" (samples {unknown[:3]})" if unknown else "")
        name, where = "samples of the performance leg", performance.run.root
        yield compared("length-samples", name, not unknown, text, "all in the accuracy leg", where)
