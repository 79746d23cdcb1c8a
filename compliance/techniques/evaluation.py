"""The completed quality evaluation of a row, and the evidence for it.

The accuracy run of a benchmark is recomputed. Another evaluation needs a results file, which the gate compares with the
declared change.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, compared
from compliance.techniques.declaration import QUALITY_BASELINE, QUALITY_RESULTS, Declaration
from compliance.techniques.declaration_rules import claims_support
from compliance.techniques.quality_evidence import QualityEvidence
from compliance.techniques.quality_results import QualityResults, declared_change, read_results
from compliance.techniques.technique_registry import Registries
from runs.benchmarks import BENCHMARKS
from runs.errors import HarnessError
from runs.record.technique import BASELINE
from runs.wording import shortened_list

COMPLETED = "gate/completed_evaluation_passes"
# Kinds of evidence for an evaluation.
RECOMPUTED, ATTACHED, DECLARED_ONLY = "recomputed", "declared, results file attached", "declared only"
MIN_SCORE = 0.99  # below this share of the baseline's score, a person should review the evaluation


@dataclass(frozen=True)
class Evaluation:
    """The evidence for a completed evaluation, and the findings on this evidence."""

    how: str | None = None  # kind of evidence; None: the row declares no completed evaluation
    results: QualityResults | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.how}: {self.results.text}" if self.results else str(self.how)

    def record(self) -> dict[str, Any]:
        return {"evaluation": self.how, "results": self.results and asdict(self.results)}


def no_evaluation(row: Mapping[str, Any]) -> str:
    """Return the reason why a row needs no evidence of an evaluation; empty if it needs evidence."""
    completed = row["quality_eval_status"] == "completed" and row["mechanism"] != BASELINE
    return "" if completed else "the row declares no completed evaluation"


@decides(
    "gate",
    (COMPLETED, "error", OURS, "evidence of a completed quality evaluation",
     "restore the files of the evaluation, or repeat it"),
    also=("gate/review",),
)  # fmt: skip
def check_evaluation(
    row: Mapping[str, Any], declared: Declaration, quality: QualityEvidence | None, registries: Registries
) -> Evaluation:
    """Check the evidence for the completed evaluation of a row.

    Missing evidence is an error for a supported compression, otherwise a warning.

    Args:
        row: the row, with the corrected values of its declaration.
        quality: accuracy run of the row; None for a row without a run.
    """
    if no_evaluation(row):
        return Evaluation()
    named = row["quality_eval_id"]
    needed = claims_support(row) and registries.compresses(row["mechanism"])

    def unshown(subject: str, value: str, required: str) -> Finding:
        return compared(COMPLETED, False, value, required, text=subject, severity="error" if needed else "warning")

    if named in {benchmark.quality_eval for benchmark in BENCHMARKS.values()}:
        if quality is None or quality.directory is None:
            evidence = "run directory of the row" if quality is None else "accuracy run of the result"
            finding = unshown(evidence, "missing", "accuracy run, which is the evaluation")
        elif named != quality.evaluation:
            finding = unshown("quality_eval_id", named, f"{quality.evaluation}, the evaluation of the accuracy run")
        elif not quality.passed:
            reasons = shortened_list(quality.reasons, 3)
            finding = compared(COMPLETED, False, reasons, "a run that passes", text=f"accuracy run {quality.directory}")
        else:
            return Evaluation(RECOMPUTED)
        return Evaluation(DECLARED_ONLY, None, (finding,))
    entry, path = registries.quality_evals.get(named), declared.fields.get(QUALITY_RESULTS)
    if entry is None:
        finding = unshown("quality_eval_id", named or "missing", "a registered evaluation")
    elif path is None:
        finding = unshown(f"results file of {named}", "missing", "a JSON file, given with --quality-results")
    else:
        try:
            results = read_results(Path(path), entry, declared.fields.get(QUALITY_BASELINE))
        except HarnessError as error:
            finding = unshown(f"results file of {named}", error.message, f"complete results of {named}")
            finding = replace(finding, files=(Path(path),), fix=error.fix)
        else:
            facts = asdict(results) | {"change_percent": results.change}
            found_in = (
                replace(finding, files=(Path(path),), numbers=facts) for finding in _compare(results, row, needed)
            )
            return Evaluation(ATTACHED, results, tuple(found_in))
    return Evaluation(DECLARED_ONLY, None, (finding,))


def _compare(results: QualityResults, row: Mapping[str, Any], needed: bool) -> Iterator[Finding]:
    """Compare a results file with the declaration, and with its hash at the time when the row was stored."""
    stored, change = row.get("quality_results_sha256"), f"{results.change:+.2f}%"
    if stored not in (None, results.sha256):
        required = f"{str(stored)[:64]} (from the row)"
        yield compared(COMPLETED, False, results.sha256, required, text="SHA-256 of the results file")
    subject = f"change of {results.metric} in the results file"
    fix = f"declare the change that the file shows: quality_delta_summary: {results.metric} {change}"
    declared, rounding = declared_change(row["quality_delta_summary"] or "", results.metric) or (None, 0)
    if declared is None:
        required = "a declared change in quality_delta_summary"
        yield compared(
            COMPLETED, False, change, required, text=subject, severity="error" if needed else "warning", fix=fix
        )
    elif results.change < declared - rounding - 1e-9:
        required = f"at least {declared:+g}%, as declared in quality_delta_summary"
        yield compared(COMPLETED, False, change, required, text=subject, fix=fix)
    if results.value < MIN_SCORE * results.baseline:
        yield compared("gate/review", False, change, "at least -1% without a review", text=subject)
    engine = results.engine or ""
    if row["mechanism"] == "kv_quantization" and engine.startswith("vllm") and "kv_cache_dtype" not in engine:
        yield compared(
            "gate/review", False, engine, "kv_cache_dtype", text="options of the evaluation in the results file"
        )
