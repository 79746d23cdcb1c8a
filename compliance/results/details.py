"""What `verify` adds to verdicts on runs and results: identities, scores, numbers and notes."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from compliance.accuracy.accuracy_verdict import score_line
from compliance.judge.record import record
from compliance.judge.verdict import Finding, Verdict
from compliance.results import performance
from compliance.results.result import Result
from compliance.results.run_evidence import MODE_NAMES, RunEvidence
from runs.attestation.attestation import read_attestation
from runs.errors import HarnessError, SetupError
from runs.harness import PROGRAM
from runs.record.finished_run import log_hashes
from runs.record.layout import RunDir
from runs.wording import printable

TEXT_NAME = "verify_performance.txt"
RECORD_NAME = "verify_performance.json"


@dataclass
class RunDetails:
    """What `verify` states of one run besides the findings."""

    mode: str  # performance or accuracy
    directory: str
    scenario: str
    loadgen_key: str
    loadgen_version: str
    claims_official: bool
    rule: str = ""  # sentence with the rule that decides the verdict
    notes: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # numbers as lines of text
    values: dict[str, Any] = field(default_factory=dict)  # numbers for programs
    reference_score: float | None = None
    test_score: float | None = None
    round: str | None = None  # round whose rules apply; None: the seeds name no supported round
    round_from_seeds: bool = False
    scored_again: bool = False  # False: the scores come from accuracy.txt

    def as_json(self, verdict: "RunVerdict", common: dict[str, Any]) -> dict[str, Any]:
        fields = asdict(self)
        del fields["round_from_seeds"], fields["scored_again"]
        return fields | {
            "details": fields.pop("values"),
            "declared_unofficial": list(verdict.declared),
            "findings": common["findings"],
            "not_judged": common["not_judged"],
            "error": None,
        }


@dataclass
class ResultDetails:
    """What `verify` states of a result besides the findings. The findings of the verdict itself are on both runs."""

    directories: list[str]

    def as_json(self, verdict: "ResultVerdict", common: dict[str, Any]) -> dict[str, Any]:
        return common | {
            "schema_version": 2,
            "reasons": verdict.reasons,
            "not_official": verdict.unofficial,
            "held_to_official_rules": [part.counts_official for part in verdict.parts],
            "directories": self.directories,
            "parts": [record(part) for part in verdict.parts],
        }

    def hashes(self) -> dict[str, Any]:
        """Return the hashes of the verified files for the JSON. Unreadable files are left out."""
        hashes: dict[str, dict[str, str]] = {}
        for directory in self.directories:
            with suppress(OSError):
                hashes[directory] = log_hashes(RunDir(Path(directory)))
        return {"log_sha256": hashes}


RunVerdict = Verdict[RunDetails]
ResultVerdict = Verdict[ResultDetails]


def part_of(verdict: ResultVerdict, mode: str) -> RunVerdict | None:
    """Return the verdict on the performance or the accuracy run."""
    return next((part for part in verdict.parts if part.details.mode == mode), None)


def lacks_support(verdict: ResultVerdict) -> bool:
    """Return True if no verdict is possible because rules or inputs are missing. The logs may still be correct."""
    return isinstance(verdict.error, SetupError)


def is_misplaced(part: RunVerdict) -> bool:
    """Return True if the mode of the log differs from the mode that its directory claims."""
    return any(finding.rule in ("perf-mode", "accuracy-mode") for finding in part.violated)


def has_target(part: RunVerdict) -> bool:
    """Return False for an accuracy run whose dataset or model has no reference scores."""
    return all(finding.rule != "accuracy-no-target" for finding in part.violated)


def rule_findings(part: RunVerdict) -> list[Finding]:
    """Return the findings on rules, met or violated, without contradictions."""
    return [finding for finding in part.findings if finding.kind != "contradiction"]


def run_details(run: RunEvidence, verdict: RunVerdict) -> RunDetails:
    """Return the details of a run.

    Raises:
        HarnessError: If a file is damaged, or no scores are available.
    """
    details = RunDetails(
        mode=run.kind,
        directory=str(run.dir.root),
        scenario=run.scenario,
        loadgen_key=run.benchmark.loadgen_key,
        loadgen_version=str(run.detail.get("loadgen_version", "")),
        claims_official=run.claims_official,
    )
    if run.kind != MODE_NAMES.get(run.mode):
        details.rule = "the mode of the log must be the mode that its directory claims"
    elif run.is_performance:
        _add_numbers(details, run)
    else:
        _add_scores(details, run)
    return details


def result_details(result: Result, verdict: ResultVerdict) -> ResultDetails:
    """Return the details of a result, and add notes on both runs to the details of the runs."""
    for part in verdict.parts:
        part.details.round = None if result.in_round is None else result.in_round.name
        part.details.round_from_seeds = result.requested_round is None
        part.details.notes += _attestation_notes(part)
    if verdict.error is None and not all(part.details.claims_official for part in verdict.parts):
        for part in verdict.parts:
            if part.details.claims_official:
                part.details.notes.append("the result is not eligible for submission, because the other run is not")
    return ResultDetails([str(path) for path in result.directories])


def _attestation_notes(part: RunVerdict) -> Iterator[str]:
    """Yield notes: the attestation that the files of a run match, and the files that it does not list."""
    run = RunDir(Path(part.details.directory))
    if not run.seal.is_file() or any(finding.rule == "attested" for finding in part.findings):
        return
    with suppress(HarnessError):
        statement = read_attestation(run)
        yield (
            f"the files match {run.seal.name} {statement.digest}, signed by {statement.key}; the key is not checked, "
            f"anyone can sign with a new key; to check it: `{PROGRAM} signoff --scope harness --ref {run.root} "
            "--key HEX`, or --ledger DIR"
        )
        own_files = {run.seal.name, run.time_stamp.name, TEXT_NAME, RECORD_NAME}
        beside = sorted(path.name for path in run.root.iterdir() if path.is_file() and path.name not in own_files)
        if added := [printable(name, 40) for name in beside if name not in statement.files]:
            more = f" and {len(added) - 4} more" if len(added) > 4 else ""
            yield f"files that {run.seal.name} does not list were not checked: {', '.join(added[:4])}{more}"


def _add_numbers(details: RunDetails, run: RunEvidence) -> None:
    result, scenario = run.result, run.detail.scenario
    source = f"per-sample times in {'the trace' if result.derived_from == 'trace' else 'requests.jsonl'}"
    if not result.derived:
        source = "summary, because per-sample times are missing"
    details.rule = (
        f"the reported score (test score) must agree with the score from the {source} (reference score), "
        "LoadGen's verdict must be VALID, and every rule below must be met"
    )
    if result.reported is not None:
        details.test_score = performance.score_of(scenario, result.reported)
        details.reference_score = (
            performance.score_of(scenario, result.derived)
            if result.derived is not None
            else performance.printed_score(run)
        )
        details.lines += performance.number_lines(
            result.reported, result.counts.samples or result.counts.samples_expected
        )
    details.values = result.model_dump(mode="json")


def _add_scores(details: RunDetails, run: RunEvidence) -> None:
    targets = ", ".join(run.benchmark.targets)
    details.rule = f"one response to every sample, no error records, and {targets} meet their targets"
    scored = run.accuracy
    details.scored_again = run.scores.path == run.dir.accuracy_log
    details.values = {
        "scores_from": run.scores.path.name,
        "label": scored.label,
        "metric": scored.metric.name,
        "scores": scored.scores,
        "target": scored.references,
    }
    if scored.targets is None:
        details.lines += [f"{name:<18}{value:g}" for name, value in scored.scores.items()]
    else:
        details.lines.append(f"reference: {scored.label}")
        for finding, reference in zip(scored.findings, (scored.references or {}).values(), strict=True):
            details.lines.append(f"{score_line(finding)}  (reference {reference:.10g})")
    if run.absent("responses") and (run.sources.dataset_path or run.sources.model_path):
        details.notes.append("--dataset-path and --model-path were not used, because the accuracy log is truncated")
