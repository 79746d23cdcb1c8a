"""The verdict on one result, and the files verify_performance.json and verify_performance.txt."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compliance.judge.check import Need, check_of, decides, judge
from compliance.judge.finding import Finding, compared
from compliance.judge.text import finding_lines, not_judged_lines
from compliance.judge.verdict import LOGS, Verdict
from compliance.results.attestation_check import attested
from compliance.results.find_results import ResultRuns
from compliance.results.log_arithmetic import log_contradictions, mean_output_tokens
from compliance.results.official_rules import round_of_seeds, tokens_as_in_accuracy
from compliance.results.run_evidence import RunEvidence
from compliance.results.run_verdict import RunVerdict, judge_run
from compliance.results.same_system import LOGGED_PAIR, RECORDED_PAIR, unlike
from compliance.results.scoring import ScoreSources, expect_scoring, with_scorer
from runs.attestation.attestation import read_attestation
from runs.errors import ExecutionError, HarnessError, SetupError
from runs.files.writing import write_atomic, write_json
from runs.harness import PROGRAM
from runs.loadgen.detail_log import OF_ROUNDS
from runs.numbers.numbers import reported_numbers
from runs.record.finished_run import ACCURACY, PERFORMANCE, log_hashes
from runs.record.layout import RunDir
from runs.rounds import Round
from runs.wording import printable, shortened_list

TEXT_NAME = "verify_performance.txt"
RECORD_NAME = "verify_performance.json"
SHOWN_REASONS = 3


@dataclass
class ResultVerdict(Verdict):
    """The verdict on one result. Its own findings are on both runs, or on changed files that explain an error."""

    schema_version = 2

    directories: list[str]
    parts: list[RunVerdict] = field(default_factory=list)

    @property
    def members(self) -> Sequence[Verdict]:
        return self.parts

    @property
    def no_verdict(self) -> bool:
        """True if no verdict is possible because rules or inputs are missing. The logs may still be correct."""
        return isinstance(self.error, SetupError)

    def part(self, mode: str) -> RunVerdict | None:
        """Return the verdict on the performance or the accuracy run."""
        return next((part for part in self.parts if part.mode == mode), None)

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        findings = [finding.as_json() for one in (*self.parts, self) for finding in one.findings]
        return super().record(strict=strict) | {
            "findings": findings,
            "reasons": self.reasons,
            "not_official": self.unofficial,
            "held_to_official_rules": [part.held_official for part in self.parts],
            "directories": self.directories,
            "parts": [part.as_json() for part in self.parts],
        }


@dataclass(frozen=True)
class ResultEvidence:
    """Both runs of a result."""

    performance: RunEvidence | None
    accuracy: RunEvidence | None

    def absent(self, need: Need) -> str:
        """Return the reason why an input is missing; empty if it is available."""
        run_of = {PERFORMANCE: self.performance, ACCURACY: self.accuracy}
        lacking = [mode for mode, run in run_of.items() if run is None or run.mode != mode]
        return "a performance run and an accuracy run are needed" if need == "both" and lacking else ""

    @property
    def both(self) -> tuple[RunEvidence, RunEvidence]:
        assert self.performance is not None  # see `needs` of the checks
        assert self.accuracy is not None
        return self.performance, self.accuracy


def verify_result(
    result: ResultRuns, *, official: bool = False, sources: ScoreSources | None = None, in_round: Round | None = None
) -> ResultVerdict:
    """Return the verdict on one result. A damaged file causes a verdict with an error, not an exception.

    Args:
        official: True if the official rules count even if the manifest marks the run as not eligible for submission.
        sources: Dataset and model for rescoring.
        in_round: Round whose seeds, limits and sample counts apply. Default: the round that the seeds name.
    """
    verdict = ResultVerdict([str(path) for path in result.directories], error=result.error, outcome_policy=LOGS)
    if result.error is not None:
        if verdict.no_verdict:
            for directory in result.directories:
                with contextlib.suppress(HarnessError):
                    finished = RunEvidence(RunDir(directory))
                    if not finished.detail.unknown_version(OF_ROUNDS):
                        verdict.findings += log_contradictions(finished.detail, finished.summary)
        return verdict
    try:
        from_seeds = in_round is None
        in_round = in_round or _round_of(result)
        with with_scorer(sources) as (scored_with, _):
            expect_scoring(result.runs, scored_with)
            runs = [
                None if finished is None else RunEvidence.of(finished, scored_with, in_round)
                for finished in (result.run(PERFORMANCE), result.run(ACCURACY))
            ]
            verdict.parts += (judge_run(run, official=official) for run in runs if run is not None)
            together = judge(ResultEvidence(*runs), RESULT_CHECKS)
            verdict.findings, verdict.not_judged = together.findings, together.not_judged
            verdict.applied = frozenset(together.applied)
    except HarnessError as error:
        verdict.error = error
    except OSError as error:
        verdict.error = ExecutionError(f"{error.filename}: {error.strerror}")
    for part in verdict.parts:
        part.round, part.round_from_seeds = None if in_round is None else in_round.name, from_seeds
        part.notes += _statement(part)
    if verdict.error is not None:
        verdict.findings += _changed(result)
    elif not all(part.claims_official for part in verdict.parts):
        for part in verdict.parts:
            if part.claims_official:
                part.notes.append("the result is not eligible for submission, because the other run is not")
    return verdict


def _round_of(result: ResultRuns) -> Round | None:
    """Return the round that the seeds in the logs name, those of the performance run first; None: no known round."""
    runs = filter(None, map(result.run, (PERFORMANCE, ACCURACY)))
    return next(filter(None, (round_of_seeds(run.detail) for run in runs)), None)


def _statement(part: RunVerdict) -> Iterator[str]:
    """Yield notes: the attestation that the files of a run match, and the files that it does not list."""
    run = RunDir(Path(part.directory))
    if not run.seal.is_file() or any(finding.rule == "attested" for finding in part.findings):
        return
    with contextlib.suppress(HarnessError):
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


def _changed(result: ResultRuns) -> Iterator[Finding]:
    """Yield findings on files that changed after a run ended. Such changes may explain an error."""
    for run in result.runs:
        with contextlib.suppress(HarnessError, OSError):
            if run.manifest is not None:
                yield from attested(run.dir)


@decides(
    "result",
    ("one-system", "error", "[rules] accuracy of each result", "configuration of both runs",
     "repeat both runs in one configuration"),
    needs=("both",),
)  # fmt: skip
def _one_system(evidence: ResultEvidence) -> Iterator[Finding]:
    """Compare system, model and dataset of both runs, as far as the files show them."""
    questions = RECORDED_PAIR if all(run.manifest is not None for run in evidence.both) else LOGGED_PAIR
    different, roots = (
        [question for question, *_ in unlike(evidence.both, *questions)],
        [run.dir.root for run in evidence.both],
    )
    for question in questions:
        performance_text, accuracy_text = (question.scope.text(run.facts) for run in evidence.both)
        value, same = (
            f"{performance_text} in the performance run, {accuracy_text} in the accuracy run",
            question not in different,
        )
        name = question.text
        yield compared(question.rule, same, value, "equal in both runs", *roots, fact=name, text=name)


@decides("plausible", needs=("both",), also=("perf-tokens-accuracy",))
def _tokens_of_both(evidence: ResultEvidence) -> Iterator[Finding]:
    """Compare the output tokens per sample of the performance run with accuracy.txt."""
    performance, accuracy = evidence.both
    if performance.detail.uses_token_latencies and accuracy.stated_text is not None:
        tokens = mean_output_tokens(performance.detail, reported_numbers(performance.detail))
        yield from tokens_as_in_accuracy(
            tokens, performance.dir.detail, accuracy.stated_text, accuracy.dir.accuracy_text.name
        )


RESULT_CHECKS = (check_of(_one_system), check_of(_tokens_of_both))


def result_text(verdict: ResultVerdict) -> str:
    """Return the verdict as text: the official lines, then runs, numbers and findings."""
    performance = verdict.part("performance")
    lines = ["Verifying performance."]
    for name in ("reference", "test"):
        score = getattr(performance, f"{name}_score") if performance else None
        lines.append(f"{name} score = {'none' if score is None else f'{score:.8g}'}")
    lines.append(_verdict_line(verdict))
    lines += [f"not eligible for submission: {reason}" for reason in verdict.unofficial]
    if not verdict.parts or verdict.error is not None:
        lines += ["", *(f"given: {path}" for path in verdict.directories)]
    for part in verdict.parts:
        lines += ["", *_part_lines(part)]
    if verdict.findings:
        lines += ["", "Both runs" if verdict.parts else "Logs", *finding_lines(verdict, verdict.findings)]
    return printable("\n".join(lines) + "\n", lines=True)


def _verdict_line(verdict: ResultVerdict) -> str:
    if verdict.outcome == "PASS":
        without = next((part for part in verdict.parts if not part.has_target), None)
        return "TEST PASS" if without is None else f"no target applies: {without.details['label']}"
    text = shortened_list(verdict.reasons or ["no run was given"], SHOWN_REASONS)
    return f"{'NO VERDICT' if verdict.no_verdict else 'TEST FAIL'}: {' '.join(text.split())}"


def _part_lines(part: RunVerdict) -> list[str]:
    score = "score: 1 / p90 latency, in 1/s" if part.scenario == "SingleStream" else "score: samples/s"
    score = f"; {score}" if part.mode == "performance" else ""
    named = f" of round {part.round}" if part.round else ""
    named += " (the round of the seeds; --round R applies another)" if part.round and part.round_from_seeds else ""
    held_to = (
        f"the official rules{named}"
        if part.held_official
        else "those for any run; the manifest marks this run as not eligible for submission"
    )
    lines = [
        f"{part.mode.capitalize()}: {part.directory}",
        f"  rule: {part.rule}{score}",
        f"  rules applied: {held_to}",
        f"  {part.scenario}, {part.loadgen_key}, LoadGen {part.loadgen_version}",
    ]
    if scores_from := part.details.get("scores_from"):
        lines.append(f"  scores {'recomputed' if part.scored_again else 'read'} from {scores_from}")
    lines += [f"  {line}" for line in part.lines]
    # Findings on scores are already in `part.lines`.
    lines += finding_lines(part, (one for one in part.findings if "metric" not in one.numbers))
    lines += not_judged_lines(part)
    lines += [f"  note: {text}" for text in part.notes]
    return lines


def write_verdict(verdict: ResultVerdict, folder: Path) -> Path:
    """Write the verdict on a result, and return the path of its text.

    Raises:
        SetupError: If the directory cannot be written.
    """
    return write_judged(verdict.record() | logs_judged(verdict), result_text(verdict), folder)


def write_judged(record: dict[str, Any], text: str, folder: Path) -> Path:
    """Write the JSON of a verdict, then its text. A text therefore never exists without its JSON.

    Raises:
        SetupError: If the directory cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Remove the earlier verdict first, so that it cannot remain if writing fails.
        (folder / TEXT_NAME).unlink(missing_ok=True)
        write_json(folder / RECORD_NAME, record)
        write_atomic(folder / TEXT_NAME, text)
    except OSError as error:
        raise SetupError(
            f"the verdict {record['verdict']} on {', '.join(record['directories'])} cannot be written to {folder}: "
            f"{error.strerror}",
            "give a writable directory: --output DIR",
        ) from error
    return folder / TEXT_NAME


def logs_judged(verdict: ResultVerdict) -> dict[str, Any]:
    """Return the hashes of the checked files for the JSON. Unreadable files are left out."""
    hashes: dict[str, dict[str, str]] = {}
    for directory in verdict.directories:
        with contextlib.suppress(OSError):
            hashes[directory] = log_hashes(RunDir(Path(directory)))
    return {"log_sha256": hashes}
