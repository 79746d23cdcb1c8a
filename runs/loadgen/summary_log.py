"""Parser of `mlperf_log_summary.txt`, and its comparison with the detail log.

Names and spacing in the summary differ between versions of LoadGen. Results come from the detail log.
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from runs.errors import InputError, names_its_file
from runs.files.reading import SUMMARY_LOG, read_record
from runs.loadgen.detail_log import DetailLog
from runs.numbers.numbers import PERCENTILE_NAMES, RATE_KEYS, TOKENS_PER_NS, latency_keys


class Contradiction(NamedTuple):
    """Values in LoadGen's logs that exclude each other."""

    found: str  # a whole sentence if `required` is empty
    keys: tuple[str, ...]  # keys of the log records
    required: str = ""


_COUNT = re.compile(r"^\s*(?P<count>no|\d+) (?P<what>warning|error)s? encountered", re.IGNORECASE)
# Spelling of older versions → current spelling.
_RENAMED = {"time to output token": "time per output token"}
# Settings with the same name in the detail log, after `effective_`.
_AS_IN_DETAIL = (
    "target_qps", "samples_per_query", "min_query_count", "max_query_count", "max_async_queries", "print_timestamps",
    "performance_sample_count", "accuracy_sample_count", "performance_issue_unique", "performance_issue_same",
    "performance_issue_same_index", "qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed",
    "accuracy_log_rng_seed", "accuracy_log_probability", "accuracy_log_sampling_target",
)  # fmt: skip
_LIMITS = {f"{name} (ns)": f"requested_server_{name}" for name in ("ttft_latency", "tpot_latency")}
_EARLY_STOPPING = ("early_stopping_result", "early_stopping_ttft_result", "early_stopping_tpot_result")
_ONCE = frozenset({"sut name", "scenario", "mode", "result is"})
# Beginnings of the prose lines that LoadGen prints between the fields.
_NO_FIELDS = ("WARNING", "Check ")


@dataclass
class SummaryLog:
    """The content of a summary: `fields` in order, with normalized names (lower case, single spaces)."""

    path: Path
    text: str = ""
    fields: list[tuple[str, str]] = field(default_factory=list)
    error_count: int | None = None
    warning_count: int | None = None
    counts: int = 0  # number of lines with a count of warnings or errors

    def get(self, name: str) -> str | None:
        """Return the first value of a normalized name."""
        return next((value for key, value in self.fields if key == name), None)

    @property
    def joined(self) -> bool:
        """True if the file contains multiple summaries."""
        names = [name for name, _ in self.fields if name in _ONCE]
        return len(set(names)) < len(names) or self.counts > 2

    @property
    def verdict(self) -> str | None:
        """VALID or INVALID; None in an accuracy run."""
        value = self.get("result is")
        return value if value in ("VALID", "INVALID") else None


@names_its_file
def read_summary(path: Path) -> SummaryLog:
    """Parse a summary.

    Raises:
        InputError: If the summary is missing, empty, or not from LoadGen.
    """
    try:
        content = read_record(path, _FIX, max_bytes=SUMMARY_LOG.file_bytes)
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text (byte {error.start})", _FIX) from error
    if not content:
        raise InputError(f"{path} is empty", "rerun, because LoadGen ended before it wrote its results")
    summary = SummaryLog(path, " ".join(text.split()))
    for line in text.splitlines():
        if counted := _COUNT.match(line):
            count = 0 if counted["count"].lower() == "no" else int(counted["count"][:18])
            summary.counts += 1
            if counted["what"].lower() == "error":
                summary.error_count = count
            else:
                summary.warning_count = count
            continue
        name, _, value = (part.strip() for part in line.partition(":"))
        if name and value and "*" not in name and not line.startswith(_NO_FIELDS):
            summary.fields.append((_normalize(name), value))
    if summary.error_count is None and summary.verdict is None:
        raise InputError(f"{path} has neither a verdict nor LoadGen's count of errors", _FIX)
    return summary


_FIX = "give a mlperf_log_summary.txt that LoadGen wrote"


def _normalize(name: str) -> str:
    name = re.sub(r"\s+", " ", name).strip().lower()
    for old, new in _RENAMED.items():
        name = name.replace(old, new)
    return name


def cross_check(summary: SummaryLog, detail: DetailLog) -> list[Contradiction]:
    """Return the contradictions between a summary and a detail log.

    Raises:
        InputError: If the end of a performance run's summary is missing.
    """
    contradictions = [Contradiction("the file contains multiple summaries", ())] if summary.joined else []
    if summary.verdict != detail.validity:
        difference = f"the summary's verdict is {summary.verdict}; the detail log's {detail.validity}"
        contradictions.append(Contradiction(difference, ("result is", "result_validity")))
    if summary.error_count is not None and summary.error_count != detail.error_count:
        difference = f"the summary counts {summary.error_count} errors; the detail log has {detail.error_count}"
        contradictions.append(Contradiction(difference, ("num_errors",)))
    if summary.warning_count == 0 and detail.warning_count:
        difference = f"the summary counts no warnings; the detail log has {detail.warning_count}"
        contradictions.append(Contradiction(difference, ("is_warning",)))
    if not detail.has_results:
        return contradictions
    if summary.error_count is None or summary.warning_count is None:
        text = f"{summary.path} is cut off: its end, the number of warnings and errors, is missing"
        raise InputError(text, "give the complete mlperf_log_summary.txt that LoadGen wrote", path=summary.path)
    keys = _comparable(detail)
    for name, text in summary.fields:
        headline = _headline_key(name, detail.scenario)
        key = headline or keys.get(name, "")
        logged = detail.get(key)
        # The summary has this number in tokens per second.
        logged = logged * 1e9 if key == TOKENS_PER_NS and isinstance(logged, int | float) else logged
        is_different = bool(headline) if logged is None else not _same(text, logged, *_tolerance(key, detail))
        if is_different:
            difference = f"the summary's {name!r} is {text[:40]}; the detail log's {key} {str(logged)[:40]}"
            contradictions.append(Contradiction(difference, (name, key)))
    names = {name for name, _ in summary.fields}
    statistics = _statistics(detail.scenario).items()
    missing = [(name, key) for name, key in statistics if key in detail.values and name not in names]
    contradictions += [Contradiction(f"the summary has no {name!r}", (key,)) for name, key in missing]
    for key in _EARLY_STOPPING:
        text = " ".join(str(detail.get(key, "")).split())
        if text not in summary.text:
            sentence = f"the summary does not have the detail log's {key}: {text[:120]}"
            contradictions.append(Contradiction(sentence, (key,)))
    return contradictions


def _tolerance(key: str, detail: DetailLog) -> tuple[float, float]:
    """Return the absolute and relative tolerance. The detail log has six digits; rates in the summary have two decimals
    (Offline: six digits).
    """
    if key not in RATE_KEYS.get(detail.scenario, {}).values():
        return 0.0, 1e-5
    return (0.0, 1e-9) if detail.scenario == "Offline" else (0.0051, 1e-5)


def _same(text: str, logged: object, absolute: float, relative: float) -> bool:
    if isinstance(logged, bool):
        return text.lower() in (("yes", "1", "true") if logged else ("no", "0", "false"))
    if isinstance(logged, str):
        return text == logged
    if not isinstance(logged, int | float) or not _NUMBER.fullmatch(text):
        return False
    if isinstance(logged, int) and text.lstrip("-").isdecimal():
        return int(text[:40]) == logged
    number = float(text)
    if math.isnan(number) or math.isnan(logged):
        return math.isnan(number) and math.isnan(logged)
    return abs(number - logged) <= absolute + relative * abs(logged)


def _headline_key(name: str, scenario: str = "") -> str:
    """Return the key of SingleStream's `90.0th percentile latency (ns)` or `90.0th first token percentile latency
    (ns)`.
    """
    match = _HEADLINE.fullmatch(name)
    if not match:
        return ""
    template = (
        "first_token_{}_percentile_" if match[2] else "{}_percentile_" + "per_query_" * (scenario == "MultiStream")
    )
    return f"result_{template.format(f'{float(match[1]):.2f}')}latency_ns"


_NUMBER = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]+)?|nan|inf)")  # number as C++ prints it
_HEADLINE = re.compile(r"(\d+(?:\.\d+)?)th (first token )?percentile latency \(ns\)")
_RATES = {
    "samples per second": "samples_per_second",
    "tokens per second": "tokens_per_second",
    "completed samples per second": "samples_per_second",
    "completed tokens per second": "tokens_per_second",
    "scheduled samples per second": "scheduled_samples_per_second",
    "qps w/ loadgen overhead": "samples_per_second",
    "qps w/o loadgen overhead": "samples_per_second_without_overhead",
    "tps w/ loadgen overhead": "tokens_per_second_with_overhead",
    "tps w/o loadgen overhead": "tokens_per_second_without_overhead",
}
_SPOKEN = {"latency_ns": "latency", "ttft_ns": "first token latency", "tpot_ns": "time per output token"}


def _statistics(scenario: str) -> dict[str, str]:
    return {
        f"{f'{PERCENTILE_NAMES[name]} percentile' if name in PERCENTILE_NAMES else name} {words} (ns)": key
        for measure, words in _SPOKEN.items()
        for name, key in latency_keys(measure, scenario)
    }


def _comparable(detail: DetailLog) -> dict[str, str]:
    """Return the keys in the detail log by normalized name in the summary."""
    rates = RATE_KEYS.get(detail.scenario, {})
    return {
        "scenario": "effective_scenario",
        "mode": "effective_test_mode",
        "performance constraints satisfied": "result_perf_constraints_met",
        "min duration satisfied": "result_min_duration_met",
        "min queries satisfied": "result_min_queries_met",
        "early stopping satisfied": "early_stopping_met",
        "min_duration (ms)": "effective_min_duration_ms",
        "max_duration (ms)": "effective_max_duration_ms",
        **{name: f"effective_{name}" for name in _AS_IN_DETAIL},
        **(_LIMITS if detail.scenario != "Offline" else {}),
        **{name: rates[rate] for name, rate in _RATES.items() if rate in rates},
        **_statistics(detail.scenario),
    }
