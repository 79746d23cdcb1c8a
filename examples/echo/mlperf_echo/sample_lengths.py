"""The audit sample_lengths: does each sample have the same output length in a performance and an accuracy run?"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from compliance.audits.mode_comparison import TwoModeAudit, TwoModeOptions
from compliance.audits.options import Share, audit_field
from compliance.judge.rule import AUDIT_AGAIN, decides
from compliance.judge.verdict import Finding, compared

if TYPE_CHECKING:
    from compliance.audits.logged_tokens import Ids
    from compliance.audits.mode_comparison import Responses
    from compliance.audits.run_artifacts import RunArtifacts


class SampleLengthsOptions(TwoModeOptions):
    threshold: Share = audit_field(0.05, "Maximum share of responses with another length. Default: 0.05.", "X")


class SampleLengths(TwoModeAudit):
    name = "sample_lengths"
    summary = "Compare the output length of each sample in a performance run with that in the accuracy run."
    heading, text_name = "Sample lengths", "verify_sample_lengths.txt"
    options = SampleLengthsOptions

    def rule(self, threshold: float) -> str:
        return f"at least {1 - threshold:g} of the responses have the length of the accuracy run's response"

    @decides("audit", ("sample-lengths", "error", "[mlperf-echo]", "responses of another length", AUDIT_AGAIN))
    def compare(
        self, responses: "dict[int, Ids]", logged: "Responses", performance: "RunArtifacts", threshold: float
    ) -> Iterator[Finding]:
        lengths = self.lengths_by_sample(performance, logged)
        if not lengths:
            return
        equal = sum(len(responses.get(sample, ())) == length for sample, length in lengths)
        share = 1 - equal / len(lengths)
        value = f"{share:.4f} of {len(lengths):,} responses"
        yield compared("sample-lengths", share <= threshold, value, f"at most {threshold:g}", performance.dir.root)
