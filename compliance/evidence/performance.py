"""The performance part of a result: its rules, checked on the logs."""

import math
from collections.abc import Iterator

from compliance.evidence.input_checks import add_model_on_record, official_inputs
from compliance.evidence.leg_record import record_contradictions, result_record
from compliance.evidence.log_arithmetic import PRINTED, detail_contradictions, duration_ns, mean_output_tokens
from compliance.evidence.logged_answers import as_recorded
from compliance.evidence.part import Part
from compliance.evidence.plausibility import performance_plausible
from compliance.finding import RERUN, Finding, applied, decides, fail
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.early_stopping import PERCENTILE, min_queries
from runs.loadgen.summary_log import SummaryLog
from runs.numbers.compare import Disagreement
from runs.numbers.numbers import LatencyNumbers, Numbers
from runs.numbers.result import Result, result_of
from runs.record.leg import PERFORMANCE, FinishedLeg
from runs.rounds import ROUNDS, round_of

# Where the summary prints a scenario's score.
_SUMMARY_SCORE = {
    "Offline": "samples per second",
    "Server": "completed samples per second",
    "SingleStream": "90.00 percentile latency (ns)",
}


def verify_performance(leg: FinishedLeg) -> Part:
    """Judge a performance leg.

    Raises:
        InputError: a log is damaged. ExecutionError: LoadGen did not finish.
    """
    result, summary = result_of(leg, scenario=leg.scenario), leg.summary
    part = _part(leg, result)
    part.findings += [_disagreement(item, leg) for item in result.disagreements]
    part.findings += detail_contradictions(leg.detail, result.reported)
    part.findings += record_contradictions(leg, None)
    part.findings += result_record(leg, result)
    part.findings += _foreign_accuracy_log(leg)
    part.findings += _result_checks(leg, result)
    part.findings += performance_plausible(leg)
    if result.reported is not None:
        part.findings += _official_checks(leg, result.reported)
        part.findings += official_inputs(leg)
        add_model_on_record(part, leg)
        _score(part, leg.detail, result, summary)
        part.lines += _number_lines(result.reported)
    part.notes += _notes(leg, result)
    part.details = result.model_dump(mode="json")
    return part


def _part(leg: FinishedLeg, result: Result) -> Part:
    source = f"per-sample times in {'the trace' if result.derived_from == 'trace' else 'requests.jsonl'}"
    return Part(
        mode="performance",
        directory=str(leg.run.root),
        scenario=leg.scenario,
        loadgen_key=leg.benchmark.loadgen_key,
        loadgen_version=result.loadgen_version,
        claims_official=leg.claims_official,
        declared_unofficial=leg.manifest.unofficial_reasons if leg.manifest else [],
        rule="the reported score (test score) agrees with the one from "
        + (f"the {source}" if result.derived else "the summary, there being no per-sample times")
        + " (reference score), LoadGen's verdict is VALID, and every check below passes",
    )


def _disagreement(item: Disagreement, leg: FinishedLeg) -> Finding:
    """A number, the order of issue, or the summary, that does not fit the detail log."""
    if item.about == "summary":
        return fail("log-summary", str(item.reported), leg.run.summary, leg.run.detail)
    return fail("log-order" if item.about == "order" else "log-records", str(item), leg.run.detail)


@decides(
    "result",
    ("perf-validity", "error", "[rules] results are valid", "LoadGen calls the result VALID",
     "see `main.py verify` for the reason, correct user.conf and run the leg again"),
    ("perf-audit-settings", "error", "[rules] audits are runs of their own", "no audit settings in a normal run",
     "remove audit.config and run the leg again"),
    ("perf-cut-short", "error", "[rules] a run is not cut short", "no max_duration and no max_query_count",
     "remove the setting and run the leg again"),
)  # fmt: skip
def _result_checks(leg: FinishedLeg, result: Result) -> Iterator[Finding]:
    """Without these there is no performance result, official or not."""
    detail = leg.detail
    said = "; ".join(result.reasons) or f"LoadGen says {detail.validity}"
    valid = result.verdict == "VALID"
    yield applied("perf-validity", "validity", valid, said, "VALID, without error records", detail.path)
    audit = [
        f"{name} = {int(value)}"
        for name in ("performance_issue_same", "performance_issue_unique", "accuracy_log_sampling_target")
        if (value := detail.effective(name, 0))
    ]
    if any("audit config" in str(record.value).lower() for record in detail.warnings):
        audit.append("LoadGen found an audit configuration")
    said, required = "; ".join(audit) or "no audit settings", "a normal run, without audit settings"
    yield applied("perf-audit-settings", "no audit", not audit, said, required, detail.path)
    for name in ("max_duration_ms", "max_query_count"):
        value = detail.effective(name, 0)
        if value:
            yield applied("perf-cut-short", name, False, f"{value}", "0: a run is not cut short", detail.path)


@decides(
    "official",
    ("perf-benchmark-scenario", "error", "[rules] scenarios", "the benchmark has this scenario",
     "run a scenario of the benchmark"),
    ("perf-min-duration", "error", "[checker] performance_check.min_duration_check", "min_duration is 600 s or more",
     "set min_duration = 600000 and run the leg again"),
    ("perf-duration", "error", "[rules] minimum duration", "the run took 600 s or more",
     "raise Offline target_qps or lower SingleStream target_latency, and run again"),
    ("perf-samples", "error", "[checker] performance_check.min_query_count_check",
     "Offline's query has the whole data set", "do not lower min_query_count"),
    ("perf-percentile", "error", "[loadgen] mlperf.conf", "the percentile is the scenario's",
     "leave target_latency_percentile alone"),
    ("perf-queries", "error", "[rules] early stopping", "there are queries enough for early stopping", "run longer"),
    ("perf-equal-issue", "error", "[rules] equal issue", "each sample is issued equally often",
     "leave sample_concatenate_permutation alone"),
    ("perf-token-latencies", "error", "[checker] performance_check.llm_check", "token latencies are in use",
     "leave use_token_latencies alone"),
    ("perf-output-tokens", "error", "[rules] generation settings",
     "no more output tokens a sample than the benchmark generates", "generate at most that many tokens"),
)  # fmt: skip
def _official_checks(leg: FinishedLeg, numbers: Numbers) -> Iterator[Finding]:
    """What the benchmark demands of an official result beyond LoadGen's own verdict."""
    detail, benchmark = leg.detail, leg.benchmark

    def check(rule: str, name: str, passed: bool, found: str, required: str) -> Finding:
        return applied(rule, name, passed, found, required, detail.path)

    known, said = leg.scenario in benchmark.scenarios, f"{leg.scenario} of {benchmark.loadgen_key}"
    yield check("perf-benchmark-scenario", "scenario", known, said, " or ".join(benchmark.scenarios))
    asked_ms = detail.integer("effective_min_duration_ms")
    needed_ms = benchmark.min_duration_ms
    long, required = asked_ms >= needed_ms, f"at least {needed_ms:,} ms"
    yield check("perf-min-duration", "min_duration", long, f"{asked_ms:,} ms", required)
    took_ns = duration_ns(detail, numbers)
    if took_ns is not None:
        enough = took_ns >= needed_ms * 1e6 * (1 - PRINTED)
        required = f"at least {needed_ms / 1000:g} s"
        yield check("perf-duration", "duration", enough, f"{took_ns / 1e9:.2f} s", required)
    yield from sample_set_checks(leg)
    yield seeds_check(detail, "perf-seeds")
    if detail.scenario == "Offline":
        samples = detail.integer("generated_samples_per_query")
        passed = samples >= benchmark.performance_samples
        required = f"at least {benchmark.performance_samples:,}"
        yield check("perf-samples", "samples", passed, f"{samples:,} in the query", required)
    else:
        share = PERCENTILE[detail.scenario]
        used = detail.number("effective_target_latency_percentile")
        yield check("perf-percentile", "percentile", math.isclose(used, share), f"{used:g}", f"{share:g}")
        needed = min_queries(0 if detail.scenario == "Server" else 1, share)
        count = detail.integer("result_query_count")
        required = f"at least {needed:,} (early stopping)"
        yield check("perf-queries", "queries", count >= needed, f"{count:,}", required)
    permuted = detail.effective("sample_concatenate_permutation")
    said = f"sample_concatenate_permutation {str(permuted).lower()}"
    yield check("perf-equal-issue", "equal issue", permuted is True, said, "true")
    settings = leg.manifest.loadgen_settings if leg.manifest else {}
    on = detail.uses_token_latencies and not settings.get("infer_token_latencies")
    required = "on (use_token_latencies), and not inferred"
    yield check("perf-token-latencies", "token latencies", on, "on" if on else "off", required)
    mean = mean_output_tokens(detail, numbers) if on else None
    if mean is not None:
        most = benchmark.sampling["performance"].max_tokens
        few = mean <= most * (1 + 4 * PRINTED)
        said, required = f"{mean:.2f} a sample on average", f"at most {most}"
        yield check("perf-output-tokens", "output tokens", few, said, required)
    if detail.scenario == "Server" and on:
        yield from _limit_checks(leg, numbers)


@decides(
    "official",
    ("perf-ttft", "error", "[checker] performance_check.llm_check; Interactive: [loadgen] mlperf.conf",
     "p99 TTFT is below the scenario's limit", "lower target_qps"),
    ("perf-tpot", "error", "[checker] performance_check.llm_check; Interactive: [loadgen] mlperf.conf",
     "p99 TPOT is below the scenario's limit", "lower target_qps"),
    ("perf-limits", "error", "[loadgen] mlperf.conf", "LoadGen judged by the scenario's limits",
     "leave ttft_latency and tpot_latency alone"),
)  # fmt: skip
def _limit_checks(leg: FinishedLeg, numbers: Numbers) -> Iterator[Finding]:
    detail, official = leg.detail, leg.benchmark.limits
    limits: list[tuple[str, int, LatencyNumbers | None]] = []
    if official is not None:
        limits = [("ttft", official.ttft_ms, numbers.ttft_ns), ("tpot", official.tpot_ms, numbers.tpot_ns)]
    for name, limit_ms, values in limits:
        if values is None:
            continue
        # The official checker wants less than the limit, LoadGen no more than it.
        yield applied(
            f"perf-{name}",
            f"p99 {name.upper()}",
            values.p99 < limit_ms * 1_000_000,
            f"{values.p99 / 1e6:.2f} ms",
            f"below {limit_ms} ms",
            detail.path,
        )
        asked_ms = detail.integer(f"requested_server_{name}_latency") / 1e6
        yield applied(
            "perf-limits",
            f"{name.upper()} limit in force",
            asked_ms <= limit_ms,
            f"{asked_ms:g} ms",
            f"{limit_ms} ms, which early stopping is judged by",
            detail.path,
        )


@decides(
    "official",
    ("perf-data-set", "error", "[rules] data set", "the whole data set was in use", RERUN),
    ("perf-sample-count", "error", "[checker] performance_check.performance_sample_count_check",
     "performance_sample_count is the data set's size", "leave performance_sample_count_override alone"),
    ("accuracy-samples", "error", "[checker] accuracy_check.dataset_check", "the whole data set was answered", RERUN),
)  # fmt: skip
def sample_set_checks(leg: FinishedLeg) -> Iterator[Finding]:
    """The data set's size and how much of it was in use; asked of both kinds of legs."""
    detail = leg.detail
    performance = detail.mode == PERFORMANCE
    needed = leg.benchmark.samples("performance" if performance else "accuracy")
    total = detail.integer("qsl_reported_total_count")
    rule = "perf-data-set" if performance else "accuracy-samples"
    yield applied(rule, "data set", total == needed, f"{total:,} samples", f"{needed:,}", detail.path)
    if performance:
        size, name = detail.integer("effective_performance_sample_count"), "performance_sample_count"
        required = f"at least {needed:,}"
        yield applied("perf-sample-count", name, size >= needed, f"{size:,}", required, detail.path)


@decides(
    "official",
    ("perf-seeds", "error", "[checker] performance_check.seeds_check", "the seeds are the round's",
     "run with the LoadGen of the round, or name the round with --round"),
    ("accuracy-seeds", "error", "[rules] seeds of the round", "the seeds are the round's",
     "run with the LoadGen of the round"),
)  # fmt: skip
def seeds_check(detail: DetailLog, rule: str) -> Finding:
    """Are the seeds those of a round?"""
    found = round_of(detail.seeds)
    said, required = f"of {found or 'no known round'}", f"of a round ({', '.join(ROUNDS)})"
    return applied(rule, "seeds", found is not None, said, required, detail.path)


def _score(part: Part, detail: DetailLog, result: Result, summary: SummaryLog) -> None:
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


def _notes(leg: FinishedLeg, result: Result) -> Iterator[str]:
    yield from result.notes
    if leg.manifest is None:
        yield "no manifest.json: nothing tells which model, data set and engine options were used"


def _number_lines(numbers: Numbers) -> Iterator[str]:
    for name, value in (("samples/s", numbers.samples_per_second), ("tokens/s", numbers.tokens_per_second)):
        if value is not None:
            yield f"{name:<10}{value:g}"
    for name, values in (("latency", numbers.latency_ns), ("TTFT", numbers.ttft_ns), ("TPOT", numbers.tpot_ns)):
        if values is not None:
            shown = (("mean", "mean"), ("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p99.9", "p99_9"))
            yield f"{name:<10}" + "  ".join(f"{label} {getattr(values, key) / 1e6:.3f} ms" for label, key in shown)
