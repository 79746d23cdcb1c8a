"""Comparison of the client's reports with its events and with each other.

The expected values (derive.py) have the form of the compared file. Whole numbers and percentiles, which are observed
values, must be equal. Means, deviations, rates and TPOT are rounded doubles, so they may differ by ROUNDING.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from compliance.mlperf_endpoints.derive import (
    COMPLETED,
    COUNTERS,
    EMPTY,
    FIELDS,
    REASON,
    ROUNDING,
    SERIES,
    WINDOW,
    ApproximateFloat,
    Metrics,
    summary_of,
)
from runs.mlperf_endpoints.folder import EndpointsRun, LoadPattern, Series, Snapshot, Summary

Difference = tuple[str, Any, Any]  # path of a number in the file, reported value, expected value


def reported_differences(reported: Any, expected: Any, name: str = "") -> Iterator[Difference]:
    """Yield the reported values that differ from the expected ones."""
    if isinstance(expected, Mapping) and isinstance(reported, Mapping):
        for key, value in expected.items():
            yield from reported_differences(reported.get(key), value, f"{name}.{key}" if name else key)
    elif not _agree(reported, expected):
        yield name, reported, expected


def _agree(reported: Any, expected: Any) -> bool:
    if isinstance(expected, list | tuple) and isinstance(reported, list | tuple):
        return len(reported) == len(expected) and all(map(_agree, reported, expected))
    if isinstance(expected, float) and isinstance(reported, int | float):
        within = expected.within if isinstance(expected, ApproximateFloat) else ROUNDING
        return math.isclose(reported, expected, rel_tol=within, abs_tol=within)
    return bool(reported == expected)


def windowed(run: EndpointsRun, metrics: Metrics) -> bool:
    """Return whether the client computes QPS and TPS over the window of LoadGen's Server scenario."""
    pattern = run.config.settings.load_pattern if run.config else LoadPattern()
    enabled = pattern.type == "poisson" and pattern.use_legacy_loadgen_qps_metrics
    return enabled and metrics[WINDOW] > 0 and metrics[COMPLETED] >= 2


def reported_metrics(snapshot: Snapshot) -> Metrics:
    """Return the metrics of final_snapshot.json by name."""
    return {
        stat.name: stat.model_dump(exclude={"type", "name", "value"}) if stat.type == "series" else stat.value or 0
        for stat in snapshot.metrics
        if (stat.type == "series") == (stat.name in SERIES)
    }


def compare_summary(run: EndpointsRun, summary: Summary, derived: Metrics) -> Iterator[Difference]:
    """Compare result_summary.json with the events, and numbers that events lack with final_snapshot.json."""
    metrics, series, counts_reasons = derived, {}, False
    if (snapshot := run.snapshot) is not None:
        empty, reported = dict.fromkeys(COUNTERS, 0) | dict.fromkeys(FIELDS.values(), EMPTY), reported_metrics(snapshot)
        metrics, counts_reasons = empty | reported | derived, f"{REASON}stop" in reported
        complete = snapshot.state == "complete" and snapshot.n_pending_tasks == 0
        series = {"state": snapshot.state, "complete": complete}
    expected = (
        summary_of(metrics, windowed=windowed(run, metrics))
        | series
        | {"run_config": expected_run_config(run, summary)}
    )
    if not (summary.finish_reason_counts or counts_reasons):  # Earlier clients do not count finish reasons.
        del expected["finish_reason_counts"]
    yield from reported_differences(summary.model_dump(), expected)


# Settings in the run_config of result_summary.json.
_CONFIGURED = ("load_pattern", "warmup", "scheduler_random_seed", "dataloader_random_seed")


def expected_run_config(run: EndpointsRun, summary: Summary) -> dict[str, Any]:
    """Return the expected run_config of result_summary.json from config.yaml, which omits null values."""
    settings = run.raw_config.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    runtime = settings.get("runtime")
    configured = settings | (runtime if isinstance(runtime, dict) else {})
    return {
        section: {key: configured[section].get(key) for key in reported}
        if isinstance(reported, dict) and isinstance(configured[section], dict)
        else configured[section]
        for section, reported in (
            dict.fromkeys(_CONFIGURED) | summary.run_config if summary.run_config is not None else {}
        ).items()
        if section in configured
    }


# report.txt ---------------------------------------------------------------------------------------------------------

_SECTIONS = {
    "TTFT": ("ttft", "ms", 1e-6),
    "TPOT": ("tpot", "ms", 1e-6),
    "Latency": ("latency", "ms", 1e-6),
    "Input sequence lengths": ("input_sequence_lengths", "tokens", 1.0),
    "Output sequence lengths": ("output_sequence_lengths", "tokens", 1.0),
}
_TITLES = ("Summary", "End of Summary", "Latency Breakdowns", "End of Report")
_PARTS = ("Histogram", "Percentiles", "Early-stopping")  # parts of a section of statistics, each after an empty line
_OTHER_LABELS = {"Git SHA", "Run config", "Test started at", "WARNING"}
_STATISTICS = {"Min": "min", "Max": "max", "Median": "median", "Avg.": "avg", "Std Dev.": "std_dev"}


def compare_report(text: str, summary: Summary) -> Iterator[Difference]:
    """Compare report.txt with result_summary.json, to two decimals.

    The sections of statistics may have no other lines. Other sections are ignored: later releases of the client write
    some, and before the statistics the client also reports accuracy.
    """
    lines = list(_report_of(summary))
    reported, expected = _by_place(_known_lines(text, lines)), _by_place(lines)
    more = {place: None for place in reported if place not in expected and place.startswith(tuple(_SECTIONS))}
    yield from reported_differences(reported, expected | more)


def _known_lines(text: str, expected: Sequence[str]) -> Iterator[str]:
    """Yield the lines of report.txt without the sections that `expected` does not have.

    Such a section begins with a title, a label or a heading that is not expected, or after the empty line that ends a
    part of a section of statistics. It ends before the next expected line, part or section.
    """
    general = list(takewhile(lambda line: line.rstrip(":") not in _SECTIONS, expected))
    labels = {line.partition(":")[0] for line in general}
    written, parts = set[str](), list[str]()
    is_known = is_general = True
    was_empty = False
    for raw in text.splitlines():
        line, is_indented = raw.strip(), raw[:1].isspace()
        label = line.partition(":")[0]
        if line.startswith("---"):
            is_known, is_general = line.strip("- ") in _TITLES, is_general and "Latency" not in line
        elif is_general and line in general and (is_known or not is_indented):
            is_known = True
            general.remove(line)
            written.add(line)
            yield line
        elif is_general and line and not is_indented:
            is_known = label in _OTHER_LABELS or (is_known and label in labels)
        elif line and not is_indented:
            is_known, parts = label in _SECTIONS, list(_PARTS) if label in _SECTIONS else parts
        elif line and was_empty:
            part = next((part for part in parts if label.startswith(part)), None)
            is_known, parts = part is not None, parts[parts.index(part) + 1 :] if part else parts
        if line and is_known and line not in written and not line.startswith("---"):
            yield line
        was_empty = not line


def _by_place(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the values behind each label, by section and part of it, without the bars of histograms."""
    names: dict[str, list[str]] = {}
    section = part = ""
    for line in lines:
        label, colon, value = re.sub(r"[)\]] \|#*", ")", line).strip().partition(":")
        if colon and not value:
            section, part = (label, "") if label in _SECTIONS else (section, section and label.partition(" ")[0])
        elif label and not label.startswith("---"):
            place = f"{section} {part} {label}" if colon else f"{section} {part}"
            names.setdefault(place.strip(), []).append(value.strip() or label)
    return names


def _report_of(summary: Summary) -> Iterator[str]:
    """Yield the lines of report.txt that follow from the summary."""
    yield f"Version: {summary.version}"
    for name, value in (summary.run_config or {}).items():
        if value is not None:
            text = ", ".join(f"{key}={value}" for key, value in value.items()) if isinstance(value, dict) else value
            yield f"{name}: {text}"
    for state in ("issued", "completed", "failed"):
        yield f"Total samples {state}: {getattr(summary, f'n_samples_{state}')}"
    duration_s = None if summary.duration_ns is None else summary.duration_ns / 1e9
    for label, number, unit in (
        ("Duration", duration_s, " seconds"),
        ("QPS", summary.qps, ""),
        ("TPS", summary.tps, ""),
    ):
        yield f"{label}: " + ("N/A" if number is None else f"{number:.2f}{unit}")
    for section, (name, unit, scale) in _SECTIONS.items():
        series: Series = getattr(summary, name)
        if series.percentiles or series.early_stopping_percentiles is not None:
            yield f"{section}:"
            yield from _section(series, unit, scale)


def _section(series: Series, unit: str, scale: float) -> Iterator[str]:
    def shown(value: Any) -> str:
        return "N/A" if value is None else f"{value * scale:.2f}"

    for label, name in _STATISTICS.items():
        yield f"{label}: {shown(getattr(series, name))} {unit}"
    yield "Histogram:"
    for (low, high), count in zip(series.histogram.buckets, series.histogram.counts, strict=False):
        yield f"[{shown(low)}, {shown(high)}) {count}"
    for heading, values in (
        ("Percentiles:", series.percentiles), ("Early-stopping:", series.early_stopping_percentiles)
    ):  # fmt: skip
        yield heading
        yield from (f"{share}: {shown(value)} {unit}" for share, value in (values or {}).items())
