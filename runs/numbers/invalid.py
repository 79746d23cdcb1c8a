"""Why a run is not valid or not official, in sentences that say what to do."""

import math

from runs.benchmark import Benchmark
from runs.loadgen.detail_log import DetailLog
from runs.numbers.numbers import LatencyNumbers, Numbers
from runs.numbers.rederive import Derived
from runs.rounds import Round, round_of

# LoadGen issues 1.1 × min_duration × target_qps samples; the same margin again keeps the next run clear.
TARGET_MARGIN = 1.1
_ENDED_EARLY = "the schedule ended early: look for errors, for max_* settings and for performance_issue_unique"


def invalid_reasons(detail: DetailLog, reported: Numbers | None, derived: Derived | None) -> list[str]:
    """Why a performance run is INVALID; empty when it is VALID.

    Stricter than LoadGen: error records make a run invalid as well.
    """
    reasons: list[str] = []
    if detail.error_count:
        reasons.append(errors_found(detail))
    if reported is None:
        return [*reasons, f"LoadGen finished, but {detail.path.name} holds no result: run the leg again"]
    if detail.flag("result_min_duration_met") is False:
        reasons.append(_too_short(detail, reported, derived))
    if detail.flag("result_min_queries_met") is False:
        reasons.append(_too_few(detail, derived))
    if detail.flag("result_perf_constraints_met") is False:
        reasons += _over_limit(detail, reported)
    if detail.flag("early_stopping_met") is False:
        reasons += _early_stopping(detail, derived)
    if detail.validity != "VALID" and not reasons:
        said = " ".join(str(detail.get("result_invalid_reason", "no reason given")).split())
        reasons.append(f"LoadGen says {detail.validity}: {said}")
    return reasons


def errors_found(detail: DetailLog) -> str:
    """The error records of a log that has some."""
    first = detail.errors[0]
    plural = "s" if detail.error_count > 1 else ""
    return f"{detail.error_count} error record{plural} in {detail.path.name}, first (line {first.line_number}): {first}"


def _too_short(detail: DetailLog, reported: Numbers, derived: Derived | None) -> str:
    needed_s = detail.integer("effective_min_duration_ms") / 1000
    took = "not long enough for"
    if derived is not None:
        took = f"{derived.duration_ns / 1e9:.4g} s of"
    elif detail.scenario == "Offline" and reported.latency_ns is not None:
        took = f"{reported.latency_ns.max / 1e9:.4g} s of"
    text = f"ran {took} the required {needed_s:g} s: "
    if detail.scenario == "Offline":
        rate = reported.samples_per_second or 0.0
        wanted = math.ceil(TARGET_MARGIN * rate * 100) / 100  # user.conf takes no exponents
        return text + (
            f"raise Offline target_qps in user.conf to at least {wanted:.2f} "
            f"(1.1 × the measured {rate:.2f} samples/s; it was {detail.number('effective_target_qps'):g})"
        )
    if detail.scenario == "Server":
        return text + _ENDED_EARLY
    mean_ms = 0.0 if reported.latency_ns is None else reported.latency_ns.mean / 1e6
    target_ms = int(mean_ms / TARGET_MARGIN)
    advice = f"lower SingleStream target_latency in user.conf to at most {target_ms} (ms, whole; "
    if target_ms < 1:  # than which LoadGen takes no smaller one
        queries = math.ceil(TARGET_MARGIN * needed_s * 1e3 / mean_ms) if mean_ms > 0 else 0
        advice = f"raise SingleStream min_query_count in user.conf to at least {queries:,} ("
    return text + f"{advice}the measured mean is {mean_ms:.4g} ms), so that LoadGen prepares enough queries"


def _too_few(detail: DetailLog, derived: Derived | None) -> str:
    needed = detail.integer("effective_min_query_count")
    if detail.scenario == "Offline":
        samples = detail.integer("effective_min_sample_count")
        had = "" if derived is None else f"{derived.sample_count:,} samples, "
        return f"{had}at least {samples:,} samples are needed: the run was cut short"
    had = f"{detail.integer('result_query_count'):,} queries, min_query_count is {needed:,}"
    if detail.scenario == "Server":
        return f"{had}: {_ENDED_EARLY}"
    return f"{had}: lower SingleStream target_latency in user.conf, so that LoadGen prepares enough queries"


def _over_limit(detail: DetailLog, reported: Numbers) -> list[str]:
    target_qps = detail.number("effective_target_qps")
    advice = f"lower Server target_qps in user.conf (it was {target_qps:g})"
    checks: list[tuple[str, LatencyNumbers | None, str]] = [
        ("TTFT", reported.ttft_ns, "requested_server_ttft_latency"),
        ("TPOT", reported.tpot_ns, "requested_server_tpot_latency"),
    ]
    if reported.ttft_ns is None:
        checks = [("latency", reported.latency_ns, "effective_target_latency_ns")]
    return [
        f"p99 {name} {_time(numbers.p99)} > {_time(limit_ns)} limit: {advice}"
        for name, numbers, key in checks
        if numbers is not None and numbers.p99 > (limit_ns := detail.integer(key))
    ]


def _time(value_ns: int) -> str:
    return f"{value_ns / 1e9:.3f} s" if abs(value_ns) >= 1_000_000_000 else f"{value_ns / 1e6:.2f} ms"


def _early_stopping(detail: DetailLog, derived: Derived | None) -> list[str]:
    if derived is not None and not derived.early_stopping.met:
        verdicts = derived.early_stopping.verdicts
        needed = derived.early_stopping.queries_needed
        if derived.query_count < needed:
            return [
                f"early stopping: the query count {derived.query_count:,} is too small, "
                f"at least {needed:,} queries are needed: raise min_query_count or min_duration in user.conf"
            ]
        return [
            f"early stopping ({'latency' if name == 'latency' else name.upper()}): {verdict}: "
            "lower Server target_qps in user.conf"
            for name, verdict in verdicts.items()
            if not verdict.met
        ]
    texts = [detail.get(f"early_stopping_{part}result") for part in ("tpot_", "ttft_", "")]
    said = " ".join(" ".join(text.split()) for text in texts if isinstance(text, str) and "unsuccess" in text)
    return [f"early stopping: {said or 'too few queries, or too many of them late'}"]


def not_official(detail: DetailLog, benchmark: Benchmark, in_round: Round) -> list[str]:
    """What in the settings in force keeps a leg from being official for `benchmark`, one sentence each."""
    notes: list[str] = []
    key = benchmark.loadgen_key
    min_duration_ms = detail.integer("effective_min_duration_ms")
    official_ms = benchmark.min_duration_ms
    performance = detail.mode == "PerformanceOnly"
    if performance and min_duration_ms < official_ms:
        notes.append(f"min_duration was {min_duration_ms / 1000:g} s, official is {official_ms / 1000:g} s")
    needed = benchmark.samples("performance" if performance else "accuracy")
    samples = min(detail.integer("qsl_reported_total_count"), detail.integer("effective_performance_sample_count"))
    if samples != needed:
        notes.append(f"{samples:,} samples were in use, {key} has {needed:,}")
    if detail.seeds != in_round.seeds:
        notes.append(f"the seeds in force are those of {round_of(detail.seeds) or 'no round'}, not of {in_round}")
    if not detail.uses_token_latencies:
        notes.append(f"token latencies were off, {key} needs use_token_latencies = 1")
    elif detail.scenario == "Server" and benchmark.limits:
        for name, limit_ms in (("ttft", benchmark.limits.ttft_ms), ("tpot", benchmark.limits.tpot_ms)):
            used_ms = detail.integer(f"requested_server_{name}_latency") / 1e6
            if used_ms != limit_ms:
                notes.append(f"the {name.upper()} limit was {used_ms:g} ms, {key} has {limit_ms} ms")
    return notes
