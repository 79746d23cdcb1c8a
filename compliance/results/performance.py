"""Rules on a performance run, and rules on runs of both modes."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from compliance.judge.rule import OURS, RERUN, check_of, decides
from compliance.judge.verdict import Finding, compared, stated
from compliance.results.log_contradictions import log_contradictions
from compliance.results.logged_responses import as_recorded
from compliance.results.run_evidence import RunEvidence
from runs.loadgen.detail_log import DetailLog
from runs.numbers.log_comparison import TOLERANCE_FROM
from runs.numbers.numbers import Numbers, rates_by_unit, supported, time_texts
from runs.record.finished_run import PERFORMANCE

_AUDIT_SETTINGS = ("performance_issue_same", "performance_issue_unique", "accuracy_log_sampling_target")
# Names of the scores in the summary, by scenario.
_SUMMARY_SCORE = {
    "Offline": "samples per second",
    "Server": "completed samples per second",
    "SingleStream": "90.00 percentile latency (ns)",
}


def error_records(rule: str, detail: DetailLog) -> Finding:
    """Check that LoadGen logged no errors."""
    value = "none" if not detail.error_count else f"{detail.error_count}, the first is {detail.errors[0]}"
    finding = compared(rule, not detail.error_count, value, "none", detail.path, decided_by=("num_errors",))
    return replace(finding, line=detail.errors[0].line_number) if detail.errors else finding


def rule_of(run: RunEvidence, name: str) -> str:
    """Return the ID of a rule that exists for both modes. Its prefix is the claimed mode of the run."""
    return f"{'perf' if run.claimed_mode == PERFORMANCE else 'accuracy'}-{name}"


@decides(
    "result",
    ("perf-mode", "error", "[rules] performance mode", "LoadGen mode of the performance log", RERUN),
    ("accuracy-mode", "error", "[rules] accuracy mode", "LoadGen mode of the accuracy log", RERUN),
    needs=("log",),
)  # fmt: skip
def mode(run: RunEvidence) -> Iterator[Finding]:
    """Check that the mode of the log is the mode that its directory claims."""
    if run.directory_mode is not None:
        effective, wanted, key = run.detail.mode, run.directory_mode, "effective_test_mode"
        yield compared(rule_of(run, "mode"), effective == wanted, effective, wanted, run.detail.path, decided_by=(key,))


@decides(
    "result",
    ("perf-errors", "error", "[checker] performance_check.loadgen_errors_check", "error records of LoadGen", RERUN),
    ("accuracy-errors", "error", "[checker] accuracy_check.loadgen_errors_check", "error records of LoadGen", RERUN),
    needs=("log",),
)  # fmt: skip
def errors(run: RunEvidence) -> Iterator[Finding]:
    """Check that LoadGen logged no error."""
    yield error_records(rule_of(run, "errors"), run.detail)


@decides(
    "result",
    *((rule, "error", "compliance/README.md: remove audit.config afterwards",
       "audit settings", "remove audit.config and rerun")
      for rule in ("perf-audit-settings", "accuracy-audit-settings")),
    needs=("log",),
)  # fmt: skip
def audit_settings(run: RunEvidence) -> Iterator[Finding]:
    """Check that no audit setting took effect."""
    detail = run.detail
    effective = [name for name in _AUDIT_SETTINGS if detail.effective(name, 0)]
    audit = [f"effective_{name} is {detail.effective(name)}" for name in effective]
    if any("audit config" in str(record.value).lower() for record in detail.warnings):
        audit.append("LoadGen found an audit configuration")
    value, keys = "; ".join(audit) or "none", [f"effective_{name}" for name in (effective or _AUDIT_SETTINGS)]
    yield compared(rule_of(run, "audit-settings"), not audit, value, "none", detail.path, decided_by=keys)


@decides(
    "contradiction", needs=("log",), also=("log-settings", "log-order", "log-arithmetic", "log-clock", "log-summary")
)
def detail_against_summary(run: RunEvidence) -> Iterator[Finding]:
    """Check that the numbers of the detail log and the summary agree."""
    yield from log_contradictions(run.detail, run.summary)


@decides("contradiction", needs=("log", "record"), also=("log-order", "log-records"))
def as_derived(run: RunEvidence) -> Iterator[Finding]:
    """Compare LoadGen's numbers and its order of issue with the request log."""
    by_trace = run.result.derived_from == "trace"
    files = (run.dir.trace if by_trace else run.dir.requests, run.dir.detail)
    for item in run.result.disagreements:
        if item.about == "summary":  # see log_contradictions
            continue
        text, line = str(item), None
        if item.unit == "ns" and item.tolerance:
            text += f" (tolerance: {TOLERANCE_FROM})"
        if item.seq is not None and run.requests is not None:
            seq = int(run.requests.seq[item.seq])
            text += f"; sample {run.requests.sample_index[item.seq]} (seq {seq})"
            line = None if by_trace else _line_of(run.dir.requests, seq)
        yield stated("log-order" if item.about == "order" else "log-records", text, *files, line=line)


def _line_of(requests: Path, seq: int) -> int | None:
    """Return the line of a response in the request log."""
    pattern = re.compile(rb'"seq"\s*:\s*%d\b' % seq)
    with requests.open("rb") as lines:
        return next((number for number, line in enumerate(lines, start=1) if pattern.search(line)), None)


@decides(
    "result",
    ("perf-validity", "error", "[rules] results are valid", "validity of the result",
     "correct the settings that the reason names in user.conf, and rerun"),
    needs=("log",),
)  # fmt: skip
def validity(run: RunEvidence) -> Iterator[Finding]:
    """Check that LoadGen's verdict is VALID. Every performance result needs this verdict."""
    reasons = run.invalid_because
    reason = "; ".join(reasons) or f"LoadGen reports {run.detail.validity}"
    required, keys = "VALID, without error records", ("result_validity",)
    yield compared("perf-validity", not reasons, reason, required, run.detail.path, decided_by=keys, text="validity")


@decides(
    "result",
    ("perf-cut-short", "error", OURS, "settings that may end a run early",
     "remove max_duration and max_query_count from user.conf, and rerun"),
    needs=("log",),
)  # fmt: skip
def cut_short(run: RunEvidence) -> Iterator[Finding]:
    """Check that no setting may end the run early."""
    for name in ("max_duration_ms", "max_query_count"):
        value = run.detail.effective(name, 0)
        required, keys = "0 (no limit)", (f"effective_{name}",)
        yield compared("perf-cut-short", not value, f"{value}", required, run.detail.path, decided_by=keys, text=name)


@decides(
    "contradiction",
    ("log-answers", "error", "[loadgen]", "responses in the log of a run that logs none", RERUN),
    needs=("log",),
)  # fmt: skip
def foreign_accuracy_log(run: RunEvidence) -> Iterator[Finding]:
    """Check that the accuracy log is empty. If the settings log responses (TEST06), they must be those of this run."""
    detail, path = run.detail, run.dir.accuracy_log
    samples = detail.effective("accuracy_log_sampling_target", 0) or detail.effective("accuracy_log_probability", 0)
    entries = run.entries if path.is_file() else []
    if samples:
        yield from as_recorded(run, entries)
    elif entries:
        logged, required = f"{path.name} has {len(entries)} responses", "the settings of this run log none"
        yield stated("log-answers", "", path, found=logged, required=required, answers=len(entries))


@decides("contradiction", needs=("numbers",), also=("log-summary",))
def summary_score(run: RunEvidence) -> Iterator[Finding]:
    """Check that the summary has a score. Without a request log, the score is compared with LoadGen's result."""
    if run.result.derived is None and printed_score(run) is None:
        path = run.dir.summary
        yield stated("log-summary", f"{path.name}: the line {_SUMMARY_SCORE[run.detail.scenario]!r} is missing", path)


def printed_score(run: RunEvidence) -> float | None:
    """Return the score that the summary prints."""
    try:
        printed = float(run.summary.get(_SUMMARY_SCORE[run.detail.scenario]) or "nan")
    except ValueError:
        return None
    if run.detail.scenario == "SingleStream" and printed:
        printed = 1e9 / printed
    return None if math.isnan(printed) else printed


def score_of(scenario: str, numbers: Numbers | None) -> float | None:
    """Return the score in samples/s. In SingleStream, the score is the inverse of the p90 latency."""
    if numbers is None:
        return None
    if scenario == "SingleStream":
        return 1e9 / numbers.latency_ns.p90 if numbers.latency_ns and numbers.latency_ns.p90 else None
    return numbers.samples_per_second


def number_lines(numbers: Numbers, samples: int | None) -> Iterator[str]:
    """Yield the numbers as lines of text; of percentiles, those that this many samples support."""
    row = numbers.flat(*supported(samples, "mean", "p50", "p90", "p99", "p99_9"))
    rates = {unit: f"{value:g}" for unit, value in rates_by_unit(row).items()}
    yield from (f"{name:<10}{text}" for name, text in (rates | time_texts(row)).items())


# Lists of checks, in the order of the findings. CLAIM: if one of its rules is violated, no other check is applied.
# OF_ANY: for runs of any benchmark. OF_OURS: for runs of the benchmarks that this harness supports.
CLAIM = (check_of(mode, rules=("perf-mode",)),)
OF_ANY = (
    check_of(errors, rules=("perf-errors",)),
    check_of(validity),
    check_of(audit_settings, rules=("perf-audit-settings",)),
    check_of(detail_against_summary),
)
OF_OURS = tuple(map(check_of, (as_derived, foreign_accuracy_log, cut_short, summary_score)))
