"""The performance part of a result: its rules, checked on the logs."""

import math
from collections.abc import Iterator
from dataclasses import replace

from compliance.evidence.input_checks import add_model_on_record, official_inputs
from compliance.evidence.log_arithmetic import detail_contradictions
from compliance.evidence.logged_answers import as_recorded
from compliance.evidence.official_rules import official_rules
from compliance.evidence.plausibility import performance_plausible
from compliance.evidence.whole_record import record_findings
from compliance.finding import OURS, RERUN, Finding, LegVerdict, applied, decides, fail
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.summary_log import SummaryLog
from runs.numbers.derive_result import result_of
from runs.numbers.numbers import Numbers
from runs.numbers.result import Result
from runs.record.leg import FinishedLeg
from runs.rounds import Round

AUDIT_SETTINGS = ("performance_issue_same", "performance_issue_unique", "accuracy_log_sampling_target")
# Where the summary prints a scenario's score.
_SUMMARY_SCORE = {
    "Offline": "samples per second",
    "Server": "completed samples per second",
    "SingleStream": "90.00 percentile latency (ns)",
}


def verify_performance(leg: FinishedLeg, in_round: Round | None = None) -> LegVerdict:
    """Judge a performance leg, as one of a round if one is named.

    Raises:
        InputError: a log is damaged. ExecutionError: LoadGen did not finish.
    """
    result, summary = result_of(leg, scenario=leg.scenario), leg.summary
    source = f"per-sample times in {'the trace' if result.derived_from == 'trace' else 'requests.jsonl'}"
    if not result.derived:
        source = "summary, there being no per-sample times"
    part = LegVerdict.begin(
        leg,
        f"the reported score (test score) agrees with the one from the {source} (reference score), "
        "LoadGen's verdict is VALID, and every check below passes",
    )
    part.findings.append(_loadgen_errors(leg.detail))
    for item in result.disagreements:  # a number, the order of issue, or the summary, that does not fit the detail log
        if item.about == "summary":
            part.findings.append(fail("log-summary", str(item.reported), leg.run.summary, leg.run.detail))
        else:
            part.findings.append(
                fail("log-order" if item.about == "order" else "log-records", str(item), leg.run.detail)
            )
    part.findings += detail_contradictions(leg.detail, result.reported)
    part.findings += record_findings(leg)
    part.findings += _foreign_accuracy_log(leg)
    part.findings += _result_checks(leg, result)
    if not leg.detail.error_count:
        part.findings += performance_plausible(leg)
    if result.reported is not None:
        part.findings += official_rules(leg, result.reported, in_round)
        part.findings += official_inputs(leg)
        add_model_on_record(part, leg)
        _score(part, leg.detail, result, summary)
        part.lines += _number_lines(result.reported)
    part.notes += result.notes
    if leg.manifest is None:
        part.notes.append("no manifest.json: nothing tells which model, data set and engine options were used")
    part.details = result.model_dump(mode="json")
    return part


@decides(
    "result",
    ("perf-audit-settings", "error", "compliance/README.md: remove audit.config afterwards",
     "no audit settings in a normal run", "remove audit.config and run the leg again"),
)  # fmt: skip
def audit_settings(detail: DetailLog) -> Finding:
    """Is the log one of a normal run, of whichever benchmark?"""
    audit = [f"{name} = {int(value)}" for name in AUDIT_SETTINGS if (value := detail.effective(name, 0))]
    if any("audit config" in str(record.value).lower() for record in detail.warnings):
        audit.append("LoadGen found an audit configuration")
    said, required = "; ".join(audit) or "no audit settings", "a normal run, without audit settings"
    return applied("perf-audit-settings", "no audit", not audit, said, required, detail.path)


@decides(
    "result",
    ("perf-errors", "error", "[checker] performance_check.loadgen_errors_check", "no error records", RERUN),
)  # fmt: skip
def _loadgen_errors(detail: DetailLog) -> Finding:
    said = "none" if not detail.error_count else f"{detail.error_count}, first {detail.errors[0]}"
    found = applied("perf-errors", "LoadGen's error records", not detail.error_count, said, "none", detail.path)
    return replace(found, line=detail.errors[0].line_number) if detail.errors else found


@decides(
    "result",
    ("perf-validity", "error", "[rules] results are valid", "LoadGen calls the result VALID",
     "see `main.py verify` for the reason, correct user.conf and run the leg again"),
    ("perf-cut-short", "error", OURS, "no max_duration and no max_query_count",
     "remove the setting and run the leg again"),
)  # fmt: skip
def _result_checks(leg: FinishedLeg, result: Result) -> Iterator[Finding]:
    """Without these there is no performance result, official or not."""
    detail = leg.detail
    said = "; ".join(result.reasons) or f"LoadGen says {detail.validity}"
    valid = result.verdict == "VALID"
    yield applied("perf-validity", "validity", valid, said, "VALID, without error records", detail.path)
    yield audit_settings(detail)
    for name in ("max_duration_ms", "max_query_count"):
        value = detail.effective(name, 0)
        yield applied("perf-cut-short", name, not value, f"{value}", "0: a run is not cut short", detail.path)


def _score(part: LegVerdict, detail: DetailLog, result: Result, summary: SummaryLog) -> None:
    """Samples/s; of SingleStream the inverse of its p90 latency, which it is measured by."""
    part.test_score = _score_of(detail.scenario, result.reported)
    if result.derived is not None:
        part.reference_score = _score_of(detail.scenario, result.derived)
        return
    try:
        printed = float(summary.get(_SUMMARY_SCORE[detail.scenario]) or "nan")
    except ValueError:
        printed = math.nan
    if detail.scenario == "SingleStream" and printed:
        printed = 1e9 / printed
    if math.isnan(printed):
        text = f"{summary.path.name} has no {_SUMMARY_SCORE[detail.scenario]!r}"
        part.findings.append(fail("log-summary", text, summary.path))
    else:
        part.reference_score = printed


def _score_of(scenario: str, numbers: Numbers | None) -> float | None:
    if numbers is None:
        return None
    if scenario == "SingleStream":
        return 1e9 / numbers.latency_ns.p90 if numbers.latency_ns and numbers.latency_ns.p90 else None
    return numbers.samples_per_second


@decides(
    "contradiction",
    ("log-answers", "error", "[loadgen]", "a run that logs no answers has none in its log", RERUN),
)  # fmt: skip
def _foreign_accuracy_log(leg: FinishedLeg) -> Iterator[Finding]:
    """A normal performance run leaves an empty list; one that logs some answers, as TEST06 does, those it gave."""
    detail, path = leg.detail, leg.run.accuracy_log
    samples = detail.effective("accuracy_log_sampling_target", 0) or detail.effective("accuracy_log_probability", 0)
    entries = leg.entries if path.is_file() else []
    if samples:
        yield from as_recorded(leg, entries)
    elif entries:
        text = f"{path.name} holds {len(entries)} answers, but by its settings this run logged none"
        yield fail("log-answers", text, path, answers=len(entries))


def _number_lines(numbers: Numbers) -> Iterator[str]:
    for name, value in (("samples/s", numbers.samples_per_second), ("tokens/s", numbers.tokens_per_second)):
        if value is not None:
            yield f"{name:<10}{value:g}"
    for name, values in (("latency", numbers.latency_ns), ("TTFT", numbers.ttft_ns), ("TPOT", numbers.tpot_ns)):
        if values is not None:
            shown = (("mean", "mean"), ("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p99.9", "p99_9"))
            yield f"{name:<10}" + "  ".join(f"{label} {getattr(values, key) / 1e6:.3f} ms" for label, key in shown)
