"""The verdict on one run folder: what its files say against one another and against its events.

A check whose input is missing says so in `not_judged`; the others are made all the same. A damaged file is the
verdict's error, behind what was found in the others.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compliance.endpoints.audit import AuditFolder, has_audit, judge_audit
from compliance.endpoints.compare import is_windowed
from compliance.endpoints.derive import (
    COMPLETED,
    DURATION,
    FAILED,
    ISSUED,
    LATENCY,
    OUTPUT,
    TPOT,
    TTFT,
    WINDOW,
    numbers,
    over_window,
    rates,
)
from compliance.endpoints.folder_rules import (
    KEEP,
    Case,
    failures,
    honest_tokens,
    order_of_events,
    reported_numbers,
    whole,
)
from compliance.endpoints.load import judge_load
from compliance.endpoints.rules import accuracy, asked, measured, rescored
from compliance.finding import Finding, Outcome, Verdict
from runs.endpoints.events import MAX_EVENTS_BYTES
from runs.endpoints.folder import (
    AUDIT,
    AUDIT_TOLD_BY,
    CACHED,
    EVENTS,
    FILES,
    REFERENCE,
    SUMMARY,
    EndpointsRun,
    read_folder,
)
from runs.errors import ExitCode, HarnessError, SetupError
from runs.files import sha256_of
from runs.wording import milliseconds, printable, shortened_list


@dataclass
class FolderVerdict(Verdict):
    """What was found in a run folder."""

    directory: str
    official_asked: bool = False
    run: EndpointsRun | None = field(default=None, repr=False)  # None: it could not be read
    numbers: dict[str, Any] = field(default_factory=dict)  # derived again
    lines: list[str] = field(default_factory=list)  # the same for people
    measured: dict[str, float] = field(default_factory=dict)  # as legs have them: samples_per_second, ttft_p99_ms

    def counts(self, finding: Finding) -> bool:
        """Whether a finding bears on the verdict."""
        return finding.kind != "official" or self.official_asked

    @property
    def contradictions(self) -> list[Finding]:
        """Files that cannot all be true."""
        return [finding for finding in self.of("error") if finding.kind == "contradiction"]

    @property
    def outcome(self) -> Outcome:
        """ERROR: the files are damaged, or contradict each other. Official rules count where they are asked for."""
        if self.error is not None or self.contradictions:
            return "ERROR"
        there = {finding.severity for finding in self.findings if self.counts(finding)}
        return "FAIL" if "error" in there else "FLAG" if "warning" in there else "PASS"

    def exit_code(self, *, strict: bool = False) -> ExitCode:
        if self.contradictions:
            return ExitCode.FAILED
        return super().exit_code(strict=strict)

    @property
    def reasons(self) -> list[str]:
        """Why it is no PASS, the gravest first."""
        told = [f"the files contradict each other: {finding.sentence}" for finding in self.contradictions]
        told += [] if self.error is None else [self.error.message]
        return told + [one.sentence for one in self.of("error") if self.counts(one) and one not in self.contradictions]

    def record(self, *, strict: bool = False) -> dict[str, Any]:
        return super().record(strict=strict) | {
            "client": "MLPerf Endpoints",
            "reasons": self.reasons,
            "directories": [self.directory],
            "held_to_official_rules": [self.official_asked],
            "numbers": self.numbers,
        }


def judge_folder(
    path: Path, *, official: bool = False, model_path: str | None = None, dataset_path: Path | None = None
) -> FolderVerdict:
    """Judge a run folder; what is damaged ends in the verdict, not in an exception.

    Args:
        official: the rules of a submission count too.
        model_path: whose tokenizer counts tokens.
        dataset_path: for scores.
    """
    verdict = FolderVerdict(str(path), official)
    try:
        verdict.run = read_folder(path)
    except HarnessError as error:
        verdict.error = error
        return verdict
    case = Case(verdict.run, model_path, dataset_path)
    if case.run.only_audit:
        case.leave("a measured run", "the folder holds an audit alone")
    for decide in (_audit,) if case.run.only_audit else JUDGES:
        try:
            verdict.findings += decide(case)
        except HarnessError as error:
            verdict.error = verdict.error or error
            case.leave(error.path.name if error.path else "numbers", error.message)
    verdict.not_judged = case.not_judged
    with suppress(HarnessError):
        if case.metrics:
            verdict.numbers = numbers(case.metrics)
            verdict.lines = list(_lines(case))
            verdict.measured = dict(_measured(case))
    if verdict.error is None and (lacking := {EVENTS, SUMMARY} & set(case.run.missing)):
        name = sorted(lacking)[0]
        verdict.error = SetupError(f"{path / name} is missing: there is nothing to hold the numbers against", KEEP)
    return verdict


def folder_hashes(path: Path) -> dict[str, str]:
    """SHA-256 of the files that a verdict is about; what cannot be read is left out."""
    found = {}
    for name in (*FILES, *AUDIT_TOLD_BY):
        with suppress(HarnessError, OSError):
            found[name] = sha256_of(path / name, max_bytes=MAX_EVENTS_BYTES)
    return found


def _load(case: Case) -> Iterator[Finding]:
    if case.load is None:
        case.leave("load", "the folder has no measured phase that could be replayed")
    else:
        yield from judge_load(case.load)


def _audit(case: Case) -> Iterator[Finding]:
    if has_audit(case.run):
        yield from judge_audit(AuditFolder(case.run))
        for name in (REFERENCE, CACHED):
            leg = Case(EndpointsRun(case.run.root / AUDIT / name), case.model_path)
            for decide in (whole, order_of_events, reported_numbers):
                yield from decide(leg)
            for what, whys in leg.not_judged.items():
                case.leave(f"{what} of the audit's {name}", "; ".join(whys))


# All rules on a folder, in the order in which they are told.
JUDGES: tuple[Callable[[Case], Iterable[Finding]], ...] = (
    *(whole, order_of_events, reported_numbers, failures, honest_tokens),
    *(_load, _audit),
    *(rescored, asked, measured, accuracy),
)


def _measured(case: Case) -> Iterator[tuple[str, float]]:
    tokens = case.metrics[OUTPUT].get("total") if OUTPUT in case.metrics else None
    both = rates(case.metrics, tokens, over_window(case.metrics, is_windowed(case.run)))
    for name, rate in zip(("samples_per_second", "tokens_per_second"), both, strict=True):
        if rate is not None:
            yield name, rate
    for name, metric in (("ttft", TTFT), ("tpot", TPOT), ("latency", LATENCY)):
        if grid := case.metrics.get(metric, {}).get("percentiles"):
            yield from ((f"{name}_p{share}_ms", grid[f"{share}.0"] / 1e6) for share in (50, 90, 99))


def _lines(case: Case) -> Iterator[str]:
    """The numbers for people."""
    run, metrics, by_window = case.run, case.metrics, over_window(case.metrics, is_windowed(case.run))
    pattern = run.config.settings.load_pattern.asked if run.config else ""
    model = run.config.model_params.name if run.config else ""
    streaming = "streaming" if case.derived is not None and case.derived.streaming else "not streaming"
    yield f"{pattern or 'load unknown'}, {streaming}, model {model or 'unknown'}"
    yield f"samples: {metrics[ISSUED]:,} issued, {metrics[COMPLETED]:,} completed, of which {metrics[FAILED]:,} failed"
    reported = run.summary.output_sequence_lengths.total if run.summary is not None else None
    tokens = metrics[OUTPUT].get("total") if OUTPUT in metrics else reported
    for name, over in (("duration", False), ("window of LoadGen's Server", True)):
        qps, tps = rates(metrics, tokens, over)
        span_s = metrics[WINDOW if over else DURATION] / 1e9
        mark = ", reported" if over == by_window else ""
        rate = "none" if qps is None else f"{qps:.6g}/s"
        yield f"{name} {span_s:.2f} s{mark}: QPS {rate}" + (f", TPS {tps:.6g}" if tps is not None else "")
    for label, metric in (("TTFT", TTFT), ("TPOT", TPOT), ("latency", LATENCY)):
        if grid := metrics.get(metric, {}).get("percentiles"):
            yield f"{label}: " + ", ".join(f"p{p} {milliseconds(grid[f'{p}.0'] / 1e6)}" for p in (50, 90, 99)) + " ms"


def as_text(verdict: FolderVerdict) -> str:
    """For people: the outcome, the numbers, and every finding."""
    reasons = " ".join(shortened_list(verdict.reasons, 3).split())
    lines = [f"{verdict.outcome}: {reasons}" if reasons else verdict.outcome]
    lines += [f"run folder of MLPerf Endpoints: {verdict.directory}", *(f"  {line}" for line in verdict.lines)]
    for finding in verdict.of("error", "warning", "note", "pass"):
        broken = finding.severity in ("error", "warning")
        official = f"not official: {finding.rule}: {finding.sentence}"
        lines.append(f"  {finding if verdict.counts(finding) or not broken else official}")
    lines += [f"  not judged: {what}: {why}" for what, whys in verdict.not_judged.items() for why in whys]
    return printable("\n".join(lines) + "\n", lines=True)
