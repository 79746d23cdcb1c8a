"""Do the client's reports agree with its events, and with one another?

What is expected is derived once (derive.py) and has the form of the file that it is compared with. Whole numbers, and
percentiles, which are single observed values, agree exactly. Means, deviations, sums of squares and rates are quotients
of such numbers in the client's doubles; so is every TPOT, and sums of these depend on the order of adding, which no
file tells: they agree up to ROUNDING.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from compliance.endpoints.derive import COUNTERS, EMPTY, FIELDS, ROUNDING, SERIES, Metrics, Near, summary_of
from runs.endpoints.folder import EndpointsRun, Series, Snapshot, Summary

POISSON = "poisson"


@dataclass(frozen=True)
class Difference:
    """One number that does not fit."""

    name: str
    reported: Any
    expected: Any

    def __str__(self) -> str:
        return f"{self.name}: {_shown(self.reported)} reported, {_shown(self.expected)} derived again"


def _shown(value: Any) -> str:
    return "nothing" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)[:60]


def differences(reported: Any, expected: Any, name: str = "") -> Iterator[Difference]:
    """Everything that is expected and reported otherwise, by its path in the file."""
    if isinstance(expected, Mapping) and isinstance(reported, Mapping):
        for key, value in expected.items():
            yield from differences(reported.get(key), value, f"{name}.{key}" if name else key)
    elif not _agree(reported, expected):
        yield Difference(name, reported, expected)


def _agree(reported: Any, expected: Any) -> bool:
    if isinstance(expected, list | tuple) and isinstance(reported, list | tuple):
        return len(reported) == len(expected) and all(map(_agree, reported, expected))
    if isinstance(expected, float) and isinstance(reported, int | float):
        within = expected.within if isinstance(expected, Near) else ROUNDING
        return math.isclose(reported, expected, rel_tol=within, abs_tol=within)
    return bool(reported == expected)


def is_windowed(run: EndpointsRun) -> bool:
    """Whether the client was asked for QPS and TPS over the window of LoadGen's Server."""
    pattern = run.config.settings.load_pattern if run.config else None
    return pattern is not None and pattern.type == POISSON and pattern.use_legacy_loadgen_qps_metrics


def reported_metrics(snapshot: Snapshot) -> Metrics:
    """The metrics of final_snapshot.json by name."""
    return {
        stat.name: stat.model_dump(exclude={"type", "name", "value"}) if stat.type == "series" else stat.value or 0
        for stat in snapshot.metrics
        if (stat.type == "series") == (stat.name in SERIES)
    }


def compare_summary(run: EndpointsRun, summary: Summary, derived: Metrics) -> Iterator[Difference]:
    """result_summary.json against the events; what these do not tell, against final_snapshot.json."""
    metrics, others = derived, {}
    if (snapshot := run.snapshot) is not None:
        empty = dict.fromkeys(COUNTERS, 0) | dict.fromkeys(FIELDS.values(), EMPTY)
        metrics = empty | reported_metrics(snapshot) | derived
        complete = snapshot.state == "complete" and snapshot.n_pending_tasks == 0
        others = {"state": snapshot.state, "complete": complete}
    expected = summary_of(metrics, windowed=is_windowed(run)) | others | {"run_config": _run_config(run, summary)}
    if not summary.finish_reason_counts:  # an earlier client's
        del expected["finish_reason_counts"]
    yield from differences(summary.model_dump(), expected)


def _run_config(run: EndpointsRun, summary: Summary) -> dict[str, Any]:
    """What result_summary.json has of the configuration, as config.yaml has it, which leaves out what is null."""
    settings = run.raw_config.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    runtime = settings.get("runtime")
    asked = settings | (runtime if isinstance(runtime, dict) else {})
    return {
        section: {key: asked[section].get(key) for key in said}
        if isinstance(said, dict) and isinstance(asked[section], dict)
        else asked[section]
        for section, said in (summary.run_config or {}).items()
        if section in asked
    }


# report.txt ---------------------------------------------------------------------------------------------------------

_SECTIONS = {
    "TTFT": ("ttft", "ms", 1e-6),
    "TPOT": ("tpot", "ms", 1e-6),
    "Latency": ("latency", "ms", 1e-6),
    "Input sequence lengths": ("input_sequence_lengths", "tokens", 1.0),
    "Output sequence lengths": ("output_sequence_lengths", "tokens", 1.0),
}
_STATISTICS = {"Min": "min", "Max": "max", "Median": "median", "Avg.": "avg", "Std Dev.": "std_dev"}
_RUN_CONFIG = "Run config"
_PARTS = {"Histogram": "histogram", "Percentiles": "percentiles", "Early-stopping": "early_stopping_percentiles"}
_LABELLED = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9. _]*): (\S.*)")
_BUCKET = re.compile(r"\s*\[(\S+, \S+)[)\]] \|(#*) (\d+)")


def compare_report(text: str, summary: Summary) -> Iterator[Difference]:
    """report.txt against result_summary.json, to the two decimals that it has."""
    reported, expected = _lines_of_text(text), dict(_lines_of(summary))
    more = {name: None for name in reported if name not in expected and name.startswith(tuple(_SECTIONS))}
    yield from differences(reported, expected | more)


def _lines_of(summary: Summary) -> Iterator[tuple[str, list[str]]]:
    """The values of each label, by section, part of it, and label."""
    yield "Version", [summary.version]
    for what in ("issued", "completed", "failed"):
        yield f"Total samples {what}", [str(getattr(summary, f"n_samples_{what}"))]
    ns = summary.duration_ns
    yield "Duration", ["N/A" if ns is None else f"{ns / 1e9:.2f} seconds"]
    for label, value in (("QPS", summary.qps), ("TPS", summary.tps)):
        yield label, ["N/A" if value is None else f"{value:.2f}"]
    for name, said in (summary.run_config or {}).items():
        if said is not None:
            inner = ", ".join(f"{key}={value}" for key, value in said.items()) if isinstance(said, dict) else str(said)
            yield f"{_RUN_CONFIG} {name}", [inner]
    for section, (name, unit, scale) in _SECTIONS.items():
        part: Series = getattr(summary, name)
        if part.percentiles or part.early_stopping_percentiles is not None:
            yield from _lines_of_section(section, part, unit, scale)


def _lines_of_section(section: str, part: Series, unit: str, scale: float) -> Iterator[tuple[str, list[str]]]:
    def shown(value: Any) -> str:
        return "N/A" if value is None else f"{value * scale:.2f}"

    for label, name in _STATISTICS.items():
        yield f"{section} {label}", [f"{shown(getattr(part, name))} {unit}"]
    buckets = zip(part.histogram.buckets, part.histogram.counts, strict=False)
    if lines := [f"{shown(low)}, {shown(high)} {count}" for (low, high), count in buckets]:
        yield f"{section} histogram", lines
    for kind in ("percentiles", "early_stopping_percentiles"):
        for share, value in (getattr(part, kind) or {}).items():
            yield f"{section} {kind} {share}", [f"{shown(value)} {unit}"]


def _lines_of_text(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    section, part = "", ""
    for line in text.splitlines():
        head = line.strip().rstrip(":")
        if line.startswith("---"):
            section, part = "", ""
        elif line == f"{head}:" and (head in _SECTIONS or head in (_RUN_CONFIG, "Accuracy")):
            section, part = head, ""
        elif line.endswith(":") and (kind := next((_PARTS[word] for word in _PARTS if head.startswith(word)), None)):
            part = kind
        elif match := _BUCKET.fullmatch(line):
            found.setdefault(f"{section} {part}", []).append(f"{match[1]} {match[3]}")
        elif match := _LABELLED.fullmatch(line):
            place = (section, part, match[1]) if line.startswith(" ") else (match[1],)
            found.setdefault(" ".join(filter(None, place)), []).append(match[2].strip())
    return found
