"""The rules on a performance run, besides those of tables, and the rules that accuracy runs have as well."""

import math
from collections.abc import Iterator
from dataclasses import replace

from compliance.evidence.log_arithmetic import log_contradictions
from compliance.evidence.logged_responses import as_recorded
from compliance.evidence.run_evidence import RunEvidence
from compliance.judge.check import check, decides
from compliance.judge.finding import Finding, compared, fail
from compliance.judge.rule import OURS, RERUN
from runs.loadgen.detail_log import DetailLog
from runs.numbers.numbers import Numbers, rates_by_unit, time_texts
from runs.record.finished_run import PERFORMANCE

_AUDIT_SETTINGS = ("performance_issue_same", "performance_issue_unique", "accuracy_log_sampling_target")
# Where the summary prints a scenario's score.
_SUMMARY_SCORE = {
    "Offline": "samples per second",
    "Server": "completed samples per second",
    "SingleStream": "90.00 percentile latency (ns)",
}


def error_records(rule: str, detail: DetailLog) -> Finding:
    """Whether LoadGen logged errors, by the rule of the kind of run."""
    said = "none" if not detail.error_count else f"{detail.error_count}, first {detail.errors[0]}"
    text = "LoadGen's error records"
    found = compared(rule, text, not detail.error_count, said, "none", detail.path, decided_by=("num_errors",))
    return replace(found, line=detail.errors[0].line_number) if detail.errors else found


def rule_of(run: RunEvidence, name: str) -> str:
    """The ID of a rule that runs of both modes have, for the mode that the run's directory claims."""
    return f"{'perf' if (run.claimed_mode or run.mode) == PERFORMANCE else 'accuracy'}-{name}"


@decides(
    "result",
    ("perf-mode", "error", "[rules] performance mode", "a performance log comes from a performance run", RERUN),
    ("accuracy-mode", "error", "[rules] accuracy mode", "an accuracy log comes from an accuracy run", RERUN),
    needs=("log",),
)  # fmt: skip
def mode(run: RunEvidence) -> Iterator[Finding]:
    """Is the log one of a run in the mode that its directory claims?"""
    if run.claimed_mode is not None:
        found, wanted, key = run.detail.mode, run.claimed_mode, "effective_test_mode"
        rule, said = rule_of(run, "mode"), f"{key} is {found}"
        yield compared(rule, "", found == wanted, said, wanted, run.detail.path, decided_by=(key,))


@decides(
    "result",
    ("perf-errors", "error", "[checker] performance_check.loadgen_errors_check", "no error records", RERUN),
    ("accuracy-errors", "error", "[checker] accuracy_check.loadgen_errors_check", "no error records", RERUN),
    needs=("log",),
)  # fmt: skip
def errors(run: RunEvidence) -> Iterator[Finding]:
    """Has LoadGen logged an error?"""
    yield error_records(rule_of(run, "errors"), run.detail)


@decides(
    "result",
    *((rule, "error", "compliance/README.md: remove audit.config afterwards",
       "no audit settings in a normal run", "remove audit.config and rerun")
      for rule in ("perf-audit-settings", "accuracy-audit-settings")),
    needs=("log",),
)  # fmt: skip
def audit_settings(run: RunEvidence) -> Iterator[Finding]:
    """Is the log one of a normal run, of whichever benchmark?"""
    detail = run.detail
    effective = [name for name in _AUDIT_SETTINGS if detail.effective(name, 0)]
    audit = [f"effective_{name} is {detail.effective(name)}" for name in effective]
    if any("audit config" in str(record.value).lower() for record in detail.warnings):
        audit.append("LoadGen found an audit configuration")
    found, keys = "; ".join(audit) or "none", [f"effective_{name}" for name in (effective or _AUDIT_SETTINGS)]
    rule, text = rule_of(run, "audit-settings"), "audit settings"
    yield compared(rule, text, not audit, found, "none", detail.path, decided_by=keys)


@decides(
    "contradiction", needs=("log",), also=("log-settings", "log-order", "log-arithmetic", "log-clock", "log-summary")
)
def contradictions(run: RunEvidence) -> Iterator[Finding]:
    """Do the numbers of both logs stand together?"""
    yield from log_contradictions(run.detail, run.summary)


@decides("contradiction", needs=("log", "record"), also=("log-order", "log-records"))
def as_derived(run: RunEvidence) -> Iterator[Finding]:
    """Do LoadGen's numbers and its order of issue follow from the request log?"""
    for item in run.result.disagreements:
        if item.about != "summary":  # see log_contradictions
            yield fail("log-order" if item.about == "order" else "log-records", str(item), run.dir.detail)


@decides(
    "result",
    ("perf-validity", "error", "[rules] results are valid", "LoadGen calls the result VALID",
     "see `main.py verify` for the reason, correct user.conf and rerun"),
    needs=("log",),
)  # fmt: skip
def validity(run: RunEvidence) -> Iterator[Finding]:
    """Without this there is no performance result, official or not."""
    reasons = run.invalid_because
    said = "; ".join(reasons) or f"LoadGen says {run.detail.validity}"
    required, keys = "VALID, without error records", ("result_validity",)
    yield compared("perf-validity", "validity", not reasons, said, required, run.detail.path, decided_by=keys)


@decides(
    "result",
    ("perf-cut-short", "error", OURS, "no max_duration and no max_query_count",
     "remove the setting and rerun"),
    needs=("log",),
)  # fmt: skip
def cut_short(run: RunEvidence) -> Iterator[Finding]:
    """Was a setting there that may end a run early?"""
    for name in ("max_duration_ms", "max_query_count"):
        value = run.detail.effective(name, 0)
        required, keys = "0: a run is not cut short", (f"effective_{name}",)
        yield compared("perf-cut-short", name, not value, f"{value}", required, run.detail.path, decided_by=keys)


@decides(
    "contradiction",
    ("log-answers", "error", "[loadgen]", "a run that logs no responses has none in its log", RERUN),
    needs=("log",),
)  # fmt: skip
def foreign_accuracy_log(run: RunEvidence) -> Iterator[Finding]:
    """A normal performance run leaves an empty list; one that logs some responses, as TEST06 does, those it gave."""
    detail, path = run.detail, run.dir.accuracy_log
    samples = detail.effective("accuracy_log_sampling_target", 0) or detail.effective("accuracy_log_probability", 0)
    entries = run.entries if path.is_file() else []
    if samples:
        yield from as_recorded(run, entries)
    elif entries:
        text = f"{path.name} holds {len(entries)} responses, but by its settings this run logged none"
        yield fail("log-answers", text, path, answers=len(entries))


@decides("contradiction", needs=("numbers",), also=("log-summary",))
def summary_score(run: RunEvidence) -> Iterator[Finding]:
    """Has the summary a score? Without the request log the reported one is compared with it."""
    if run.result.derived is None and printed_score(run) is None:
        path = run.dir.summary
        yield fail("log-summary", f"{path.name} has no {_SUMMARY_SCORE[run.detail.scenario]!r}", path)


def printed_score(run: RunEvidence) -> float | None:
    """The score as the summary prints it."""
    try:
        printed = float(run.summary.get(_SUMMARY_SCORE[run.detail.scenario]) or "nan")
    except ValueError:
        return None
    if run.detail.scenario == "SingleStream" and printed:
        printed = 1e9 / printed
    return None if math.isnan(printed) else printed


def score_of(scenario: str, numbers: Numbers | None) -> float | None:
    """Samples/s; of SingleStream the inverse of its p90 latency, which it is measured by."""
    if numbers is None:
        return None
    if scenario == "SingleStream":
        return 1e9 / numbers.latency_ns.p90 if numbers.latency_ns and numbers.latency_ns.p90 else None
    return numbers.samples_per_second


def number_lines(numbers: Numbers) -> Iterator[str]:
    """The numbers for people."""
    row = numbers.flat("mean", "p50", "p90", "p99", "p99_9")
    rates = {unit: f"{value:g}" for unit, value in rates_by_unit(row).items()}
    yield from (f"{name:<10}{text}" for name, text in (rates | time_texts(row)).items())


# A new check is added here. CLAIM: where it is violated, nothing else is judged. Of the others, those on a run of any
# benchmark, and those on one of a benchmark that runs here; in the order of the findings.
CLAIM = (check(mode, rules=("perf-mode",)),)
OF_ANY = (
    check(errors, rules=("perf-errors",)),
    check(validity),
    check(audit_settings, rules=("perf-audit-settings",)),
    check(contradictions),
)
OF_OURS = tuple(map(check, (as_derived, foreign_accuracy_log, cut_short, summary_score)))
