"""Reasons why a run is INVALID, and the changes that help."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runs.loadgen.detail_log import DetailLog
from runs.numbers.load import load_of
from runs.numbers.numbers import PERCENTILE_SHARES, LatencyNumbers, Numbers
from runs.numbers.rederive import Derived
from runs.numbers.unloaded import exceeded, unloaded
from runs.wording import precise

# LoadGen issues 1.1 × min_duration × target_qps samples; this factor adds the same margin again.
TARGET_MARGIN = 1.1
LOWER_RATE = 0.8  # next rate to try, relative to the rate that was too high
_ENDED_EARLY = "the schedule ended early: look for errors, for max_* settings and for performance_issue_unique"


@dataclass(frozen=True)
class SettingAdvice:
    """The user's way to change one of LoadGen's settings: an option or a line of user.conf."""

    scenario: str  # LoadGen's scenario
    options: Mapping[str, Any] | None = None  # requested options of the run; None without a manifest
    default: str = "the run's user.conf"  # name of the settings of a run without --user-conf
    in_campaign: bool = False  # the campaign's file has the rate
    by_audit: bool = False  # an audit chooses the queries, so that the user cannot change their number

    def option(self, key: str, value: str) -> str:
        """Return the option that sets `key`, or a line and its file."""
        if self.options is None:
            return f"{self.scenario} {key} = {value} in user.conf"
        if key == "target_qps" and self.in_campaign:
            return f"`target_qps: {value}` below `{self.options.get('scenario')}:` in the campaign's file"
        if key == "target_qps":
            return f"--target-qps {value}"
        line = f"`*.{self.scenario}.{key} = {value}`"
        if named := self.options.get("user_conf"):
            return f"{line} in {named}"
        return f"{line} in a copy of {self.default}, given with --user-conf"


def invalid_reasons(
    detail: DetailLog,
    reported: Numbers | None,
    derived: Derived | None,
    requested: Mapping[str, Any] | None = None,
    *,
    in_campaign: bool = False,
    by_audit: bool = False,
) -> list[str]:
    """Return why a performance run is INVALID; empty for a VALID run. Unlike in LoadGen, error records make a run
    INVALID.

    Args:
        requested: options of a run of this harness, for the advice.
        in_campaign: a campaign started the run, for the advice.
        by_audit: an audit chose the queries, so that the advice omits their number.
    """
    reasons: list[str] = []
    settings = SettingAdvice(detail.scenario, requested, in_campaign=in_campaign, by_audit=by_audit)
    if detail.error_count:
        reasons.append(errors_found(detail))
    if reported is None:
        return [*reasons, f"LoadGen finished, but {detail.path.name} has no result: rerun"]
    if detail.flag("result_min_duration_met") is False:
        reasons.append(_too_short(detail, reported, derived, settings))
    if detail.flag("result_min_queries_met") is False:
        reasons.append(_too_few(detail, derived, settings))
    late = _over_limit(detail, reported) if detail.flag("result_perf_constraints_met") is False else {}
    if detail.flag("early_stopping_met") is False:
        if derived is None or derived.early_stopping.met:
            reasons.append(_early_stopping_of_loadgen(detail))
        elif derived.query_count < derived.early_stopping.queries_needed:
            reasons.append(_too_few_to_stop(derived, settings))
        else:
            late = _early_stopping(derived) | late
    if late:
        reasons.append(f"{'; '.join(late.values())}: {_rate_advice(detail, reported, derived, settings)}")
    if detail.validity != "VALID" and not reasons:
        reason = " ".join(str(detail.get("result_invalid_reason", "no reason given")).split())
        reasons.append(f"LoadGen reports {detail.validity}: {reason}")
    return reasons


def errors_found(detail: DetailLog) -> str:
    """Return a sentence about the error records of a log."""
    first = detail.errors[0]
    plural = "s" if detail.error_count > 1 else ""
    return f"{detail.error_count} error record{plural} in {detail.path.name}, first (line {first.line_number}): {first}"


def _too_short(detail: DetailLog, reported: Numbers, derived: Derived | None, settings: SettingAdvice) -> str:
    needed_s = detail.integer("effective_min_duration_ms") / 1000
    took = "not long enough for"
    if derived is not None:
        took = f"{derived.duration_ns / 1e9:.4g} s of"
    elif detail.scenario == "Offline" and reported.latency_ns is not None:
        took = f"{reported.latency_ns.max / 1e9:.4g} s of"
    text = f"ran {took} the required {needed_s:g} s: "
    if detail.scenario == "Offline":
        rate = reported.samples_per_second or 0.0
        wanted = math.ceil(TARGET_MARGIN * rate * 100) / 100  # user.conf does not accept exponents
        return text + (
            f"set {settings.option('target_qps', f'{wanted:.2f}')} (or more: 1.1 × the measured {precise(rate)} "
            f"samples/s; it was {detail.number('effective_target_qps'):g})"
        )
    if detail.scenario == "Server":
        return text + _ENDED_EARLY
    mean_ms = 0.0 if reported.latency_ns is None else reported.latency_ns.mean / 1e6
    target_ms = int(mean_ms / TARGET_MARGIN)
    if target_ms >= 1:  # LoadGen accepts whole milliseconds only
        advice = f"set {settings.option('target_latency', str(target_ms))} (or less"
    else:
        queries = math.ceil(TARGET_MARGIN * needed_s * 1e3 / mean_ms) if mean_ms > 0 else 0
        advice = f"set {settings.option('min_query_count', str(queries))} (or more"
    return f"{text}{advice}; the measured mean is {mean_ms:.4g} ms), so that LoadGen prepares enough queries"


def _too_few(detail: DetailLog, derived: Derived | None, settings: SettingAdvice) -> str:
    needed = detail.integer("effective_min_query_count")
    if detail.scenario == "Offline":
        samples = detail.integer("effective_min_sample_count")
        had = "" if derived is None else f"{derived.sample_count:,} samples, "
        return f"{had}at least {samples:,} samples are needed: the run ended early"
    had = f"{detail.integer('result_query_count'):,} queries, min_query_count is {needed:,}"
    if detail.scenario == "Server":
        return f"{had}: {_ENDED_EARLY}"
    expected_ms = detail.number("effective_target_latency_ns") / 1e6
    lower = settings.option("target_latency", str(max(1, int(expected_ms / 2))))
    return f"{had}: set {lower} (or less), so that LoadGen prepares enough queries"


def _rate_advice(detail: DetailLog, reported: Numbers, derived: Derived | None, settings: SettingAdvice) -> str:
    """Return a lower rate, or the limits that no rate meets."""
    load = None if derived is None else load_of(derived.times.scheduled_ns, derived.times.latency_ns)
    mean_open = None if load is None else load.mean_open
    never = [
        exceeded(name, _time(limit_ns), _time(estimate.ns), estimate.queries)
        for name, numbers, limit_ns in _limited(detail, reported)
        if (estimate := unloaded(name, numbers, limit_ns, mean_open)) is not None
    ]
    if never:
        return "; ".join(never)
    offered = detail.number("effective_target_qps")
    rate = LOWER_RATE * min(offered, reported.samples_per_second or offered)
    return (
        f"set {settings.option('target_qps', f'{rate:.4f}'.rstrip('0').rstrip('.'))} (or less; it was {offered:g}); "
        "`main.py tune` finds the highest valid rate"
    )


def _limited(detail: DetailLog, reported: Numbers) -> list[tuple[str, LatencyNumbers, int]]:
    """Return the latencies of a Server run that have a limit, with the limit in ns."""
    names = {"TTFT": (reported.ttft_ns, "requested_server_ttft_latency")}
    names["TPOT"] = (reported.tpot_ns, "requested_server_tpot_latency")
    if reported.ttft_ns is None:
        names = {"latency": (reported.latency_ns, "effective_target_latency_ns")}
    return [(name, numbers, detail.integer(key)) for name, (numbers, key) in names.items() if numbers is not None]


def _over_limit(detail: DetailLog, reported: Numbers) -> dict[str, str]:
    """Return a sentence on each latency that is above its limit, by its name."""
    share = detail.number("effective_target_latency_percentile")
    statistic = next((name for name, percentile_share in PERCENTILE_SHARES.items() if percentile_share == share), None)
    sentences = {
        name: f"p{100 * share:g} {name} {_time(value_ns)} > {_time(limit_ns)} limit"
        for name, numbers, limit_ns in _limited(detail, reported)
        if statistic is not None and (value_ns := getattr(numbers, statistic)) > limit_ns
    }
    return sentences or {"": f"the latencies at p{100 * share:g} are above their limits"}


def _time(value_ns: int) -> str:
    return f"{value_ns / 1e9:.3f} s" if abs(value_ns) >= 1_000_000_000 else f"{value_ns / 1e6:.2f} ms"


def _early_stopping(derived: Derived) -> dict[str, str]:
    """Return a sentence on each latency with too many late queries for early stopping, by its name."""
    names = {name: name if name == "latency" else name.upper() for name in derived.early_stopping.verdicts}
    return {
        names[name]: f"early stopping ({names[name]}): {verdict}"
        for name, verdict in derived.early_stopping.verdicts.items()
        if not verdict.met
    }


def _too_few_to_stop(derived: Derived, settings: SettingAdvice) -> str:
    needed = derived.early_stopping.queries_needed
    advice = "" if settings.by_audit else f": set {settings.option('min_query_count', str(needed))}"
    return (
        f"early stopping: the query count {derived.query_count:,} is too small; "
        f"at least {needed:,} queries are needed{advice}"
    )


def _early_stopping_of_loadgen(detail: DetailLog) -> str:
    texts = [detail.get(f"early_stopping_{part}result") for part in ("tpot_", "ttft_", "")]
    sentence = " ".join(" ".join(text.split()) for text in texts if isinstance(text, str) and "unsuccess" in text)
    return f"early stopping: {sentence or 'too few queries, or too many of them late'}"
