"""Contradictions between a performance summary and the detail log, beyond those `runs.loadgen.summary_log` looks for.

`runs.loadgen.summary_log.cross_check` compares the fields that it finds. Here: are all of LoadGen's fields there,
under their names, each of them as often as it stands there; the settings; the text on early stopping.
"""

import math
import re
from collections.abc import Iterator

from compliance.finding import Finding, fail
from runs.errors import InputError
from runs.loadgen.detail_log import DetailLog
from runs.loadgen.summary_log import SummaryLog
from runs.numbers.numbers import LATENCIES, PERCENTILE_NAMES, Numbers, latency_keys
from runs.reading import read_record

_SPOKEN = {"latency_ns": "latency", "ttft_ns": "first token latency", "tpot_ns": "time per output token"}
_SETTINGS = {
    "max_async_queries": "max_async_queries",
    "max_duration (ms)": "max_duration_ms",
    "max_query_count": "max_query_count",
    "accuracy_log_rng_seed": "accuracy_log_rng_seed",
    "accuracy_log_probability": "accuracy_log_probability",
    "accuracy_log_sampling_target": "accuracy_log_sampling_target",
    "print_timestamps": "print_timestamps",
    "performance_sample_count": "performance_sample_count",
    "accuracy_sample_count": "accuracy_sample_count",
}
# SingleStream's headline: `90.0th percentile latency (ns)`, `90.0th first token percentile latency (ns)`.
_HEADLINE = re.compile(r"(?P<percentile>[\d.]+)th (?P<first>first token )?percentile latency \(ns\)")


def summary_contradictions(summary: SummaryLog, detail: DetailLog, numbers: Numbers | None) -> Iterator[Finding]:
    """What differs; nothing where both tell the same story. `numbers` are those of the detail log.

    Raises:
        InputError: the end of the summary, LoadGen's counts of warnings and errors, is missing.
    """
    if summary.joined:
        yield fail("log-summary", "the summary holds several summaries", summary.path)
    if numbers is not None:
        for sentence in _differences(summary, detail, numbers):
            yield fail("log-summary", sentence, summary.path, detail.path)


def _differences(summary: SummaryLog, detail: DetailLog, numbers: Numbers) -> Iterator[str]:
    if summary.error_count is None or summary.warning_count is None:
        raise InputError(
            f"{summary.path} is cut off: its end, the number of warnings and errors, is missing",
            "give LoadGen's own summary, whole",
            path=summary.path,
        )
    yield from _percentile_names(summary, numbers)
    yield from _headline(summary, detail)
    for name, setting in _SETTINGS.items():
        known = detail.effective(setting)
        yield from _compare(summary, name, None if known is None else float(known), f"effective_{setting}", 1e-5)
    yield from _compare(summary, "target_qps", detail.get("effective_target_qps"), "effective_target_qps", 1e-5)
    if detail.scenario == "Offline":  # here both logs have the same six digits
        yield from _compare(summary, "samples per second", numbers.samples_per_second, "samples/s", 1e-9)
        yield from _compare(summary, "tokens per second", numbers.tokens_per_second, "tokens/s", 1e-9)
    else:
        name = "completed tokens per second"
        yield from _compare(summary, name, numbers.tokens_per_second, "tokens/s", 1e-5, 0.0051)
    name = "tps w/o loadgen overhead"
    yield from _compare(summary, name, numbers.tokens_per_second_without_overhead, "tokens/s", 1e-5, 0.0051)
    yield from _early_stopping(summary, detail)


def _compare(
    summary: SummaryLog, name: str, known: float | None, where: str, share: float, absolute: float = 0.0
) -> Iterator[str]:
    """Every value under `name`: LoadGen prints some twice."""
    if known is None or not math.isfinite(known):
        return
    for key, said in summary.fields:
        if key != name:
            continue
        try:
            value = float(said)
        except ValueError:
            value = math.nan
        if not abs(value - known) <= absolute + share * abs(known):
            yield f"the summary's {name!r} is {said[:40]}, the detail log's {where} {known:.10g}"


def _percentile_names(summary: SummaryLog, numbers: Numbers) -> Iterator[str]:
    names = {key for key, _ in summary.fields}
    for measure in LATENCIES:
        if getattr(numbers, measure) is None:
            continue
        for statistic, _ in latency_keys(measure):
            first = f"{PERCENTILE_NAMES[statistic]} percentile" if statistic in PERCENTILE_NAMES else statistic
            name = f"{first} {_SPOKEN[measure]} (ns)"
            if name not in names:
                yield f"the summary has no {name!r}"


def _headline(summary: SummaryLog, detail: DetailLog) -> Iterator[str]:
    for key, said in summary.fields:
        found = _HEADLINE.fullmatch(key)
        if found is None:
            continue
        name = "first_token_" if found["first"] else ""
        try:
            percentile = f"{float(found['percentile']):.2f}"
        except ValueError:
            percentile = found["percentile"]
        known = detail.get(f"result_{name}{percentile}_percentile_latency_ns")
        if said != str(known):
            yield f"the summary's {key!r} is {said[:40]}, the detail log has {known}"


def _early_stopping(summary: SummaryLog, detail: DetailLog) -> Iterator[str]:
    try:
        text = " ".join(read_record(summary.path, "give LoadGen's own summary").decode().split())
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {summary.path}: {error}", "give LoadGen's own summary") from error
    for key in ("early_stopping_result", "early_stopping_ttft_result", "early_stopping_tpot_result"):
        known = detail.get(key)
        if isinstance(known, str) and " ".join(known.split()) not in text:
            yield f"the summary does not have the detail log's {key}: {' '.join(known.split())[:120]}"
