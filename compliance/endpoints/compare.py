"""Do the client's reports agree with its events, and with one another?

Whole numbers, and percentiles, which are single observed values, agree exactly. Means, deviations, sums of squares and
rates are quotients of such numbers in the client's doubles; so is every TPOT, and sums of these depend on the order of
adding, which no file tells: ROUNDING is far above what either does, and far below what anybody could gain by it.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from compliance.endpoints.derive import EARLY_STOPPING, FIELDS, OUTPUT, Derived, series
from runs.endpoints.folder import EndpointsRun, Histogram, Series, Snapshot, Stat, Summary

ROUNDING = 1e-9
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


def close(reported: Any, expected: Any) -> bool:
    """Equal up to ROUNDING; nothing agrees with nothing only."""
    if reported is None or expected is None or isinstance(reported, str) or isinstance(expected, str):
        return bool(reported == expected)
    return math.isclose(reported, expected, rel_tol=ROUNDING, abs_tol=ROUNDING)


def differing(pairs: Iterable[tuple[str, Any, Any]], *, exact: bool = True) -> Iterator[Difference]:
    for name, reported, expected in pairs:
        if not (reported == expected if exact else close(reported, expected)):
            yield Difference(name, reported, expected)


# One series ---------------------------------------------------------------------------------------------------------


def of_stat(stat: Stat) -> Series:
    """The summary's form of a series of the snapshot."""
    if not stat.count or stat.total is None or stat.sum_sq is None:
        return Series(early_stopping_percentiles=stat.early_stopping_percentiles)
    spread = 0.0
    if stat.count > 1:
        spread = (stat.sum_sq - stat.total * stat.total / stat.count) / (stat.count - 1)
    return Series(
        total=stat.total,
        min=stat.min,
        max=stat.max,
        median=stat.percentiles.get("50.0"),
        avg=stat.total / stat.count,
        std_dev=math.sqrt(max(spread, 0.0)),
        percentiles=stat.percentiles,
        early_stopping_percentiles=stat.early_stopping_percentiles,
        histogram=Histogram(
            buckets=[bucket for bucket, _ in stat.histogram], counts=[count for _, count in stat.histogram]
        ),
    )


def compare_series(name: str, reported: Series, expected: Series, *, spread: float = ROUNDING) -> Iterator[Difference]:
    """`spread`: how far deviations may differ, as a share."""
    whole = isinstance(expected.total, int)
    firm = [(part, getattr(reported, part), getattr(expected, part)) for part in ("total", "min", "max", "median")]
    for kind in ("percentiles", "early_stopping_percentiles"):
        theirs, ours = getattr(reported, kind), getattr(expected, kind)
        if theirs is None or ours is None:
            firm.append((kind, theirs, ours))
            continue
        firm += [(f"{kind}.{share}", theirs.get(share), ours[share]) for share in ours]
    yield from differing(((f"{name}.{part}", one, other) for part, one, other in firm), exact=whole)
    yield from differing([(f"{name}.avg", reported.avg, expected.avg)], exact=False)
    one, other = reported.std_dev, expected.std_dev
    if one is None or other is None or not math.isclose(one, other, rel_tol=spread, abs_tol=spread):
        yield from differing([(f"{name}.std_dev", one, other)])
    theirs, ours = reported.histogram, expected.histogram
    yield from differing([(f"{name}.histogram.counts", theirs.counts, ours.counts)])
    edges = [[edge for bucket in part.buckets for edge in bucket] for part in (theirs, ours)]
    if len(edges[0]) != len(edges[1]) or not all(map(close, *edges)):
        yield Difference(f"{name}.histogram.buckets", "other edges", "equal steps of the logarithm")


def _spread_of(total: Any, squares: float, count: int, deviation: float | None) -> float:
    """How far the deviation of doubles may be off: the difference of two large numbers, of which each is rounded."""
    if isinstance(total, int) or not deviation or count < 2:
        return ROUNDING
    return ROUNDING + ROUNDING * squares / ((count - 1) * deviation * deviation)


# The files ----------------------------------------------------------------------------------------------------------


def windowed(run: EndpointsRun, found: Derived | None) -> bool:
    """Whether QPS and TPS are over the window of LoadGen's Server."""
    pattern = run.config.settings.load_pattern if run.config else None
    asked = pattern is not None and pattern.type == POISSON and pattern.use_legacy_loadgen_qps_metrics
    if found is None:
        return asked and run.summary is not None and run.summary.legacy_loadgen_window_duration_ns is not None
    return asked and found.window_ns > 0 and found.completed >= 2


def compare_summary(run: EndpointsRun, summary: Summary, found: Derived) -> Iterator[Difference]:
    """result_summary.json against the events."""
    counters, by_window = found.counters, windowed(run, found)
    yield from differing(
        [
            ("n_samples_issued", summary.n_samples_issued, counters["tracked_samples_issued"]),
            ("n_samples_completed", summary.n_samples_completed, found.completed),
            ("n_samples_failed", summary.n_samples_failed, found.failed),
            ("duration_ns", summary.duration_ns, found.duration_ns or None),
            (
                "legacy_loadgen_window_duration_ns",
                summary.legacy_loadgen_window_duration_ns,
                found.window_ns if by_window else None,
            ),
        ]
    )
    prefix = "tracked_finish_reason_"
    yield from differing(
        (f"finish_reason_counts.{name.removeprefix(prefix)}", summary.finish_reason_counts.get(name[len(prefix) :]), n)
        for name, n in counters.items()
        if name.startswith(prefix) and summary.finish_reason_counts
    )
    known = found.values.get(OUTPUT)
    # Without a recount the summary's own total: its rate must follow from it.
    tokens = summary.output_sequence_lengths.total if known is None else int(known.sum())
    qps, tps = found.rates(by_window, tokens if summary.output_sequence_lengths.total is not None else None)
    yield from differing([("qps", summary.qps, qps), ("tps", summary.tps, tps)], exact=False)
    for name, metric in FIELDS.items():
        if metric in found.values:
            yield from _measured(run, name, getattr(summary, name), metric, found)


def _measured(run: EndpointsRun, name: str, reported: Series, metric: str, found: Derived) -> Iterator[Difference]:
    early = run.config is None or run.config.settings.early_stopping.enabled
    values = found.values[metric]
    expected, squares = series(values, early_stopping=early and metric in EARLY_STOPPING)
    spread = _spread_of(expected.total, squares, len(values), expected.std_dev)
    yield from compare_series(name, reported, expected, spread=spread)


def compare_snapshot(run: EndpointsRun, snapshot: Snapshot, found: Derived) -> Iterator[Difference]:
    """final_snapshot.json against the events."""
    counters = {stat.name: stat.value for stat in snapshot.metrics if stat.type == "counter"}
    yield from differing((name, counters.get(name), value) for name, value in found.counters.items())
    stats = {stat.name: stat for stat in snapshot.metrics if stat.type == "series"}
    for metric, values in found.values.items():
        if (stat := stats.get(metric)) is None:
            yield Difference(metric, None, f"{len(values)} values")
            continue
        yield from differing([(f"{metric}.count", stat.count, len(values))])
        yield from _measured(run, metric, of_stat(stat), metric, found)
        if len(values):
            _, squares = series(values, early_stopping=False)
            yield from differing([(f"{metric}.sum_sq", stat.sum_sq, squares)], exact=False)


def compare_reports(summary: Summary, snapshot: Snapshot) -> Iterator[Difference]:
    """result_summary.json against final_snapshot.json, of which it is made."""
    complete = snapshot.state == "complete" and snapshot.n_pending_tasks == 0
    yield from differing([("state", summary.state, snapshot.state), ("complete", summary.complete, complete)])
    stats = {stat.name: stat for stat in snapshot.metrics if stat.type == "series"}
    for name, metric in FIELDS.items():
        expected = of_stat(stats[metric]) if metric in stats else Series()
        yield from compare_series(name, getattr(summary, name), expected)


def compare_configuration(run: EndpointsRun, summary: Summary) -> Iterator[Difference]:
    """What result_summary.json says of the configuration, against config.yaml."""
    settings = run.raw_config.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    runtime = settings.get("runtime")
    ours: Mapping[str, Any] = settings | (runtime if isinstance(runtime, dict) else {})
    for section, said in (summary.run_config or {}).items():
        asked = ours.get(section)
        if isinstance(said, dict) and isinstance(asked, dict):  # config.yaml leaves out what is null
            pairs = [(f"run_config.{section}.{key}", value, asked.get(key)) for key, value in said.items()]
            yield from differing(pairs)
        elif section in ours:
            yield from differing([(f"run_config.{section}", said, asked)])


# report.txt ---------------------------------------------------------------------------------------------------------

Key = tuple[str, str, str]  # section, part of it, label
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
    said, expected = _report_of_text(text), dict(_report_of(summary))
    for key in {**expected, **{key: [] for key in said if key[0] in _SECTIONS}}:
        one, other = said.get(key, []), expected.get(key, [])
        if one != other:
            name = " ".join(filter(None, key))
            yield Difference(name, "; ".join(one) or None, "; ".join(other) or None)


def _report_of(summary: Summary) -> Iterator[tuple[Key, list[str]]]:
    yield ("", "", "Version"), [summary.version]
    for what in ("issued", "completed", "failed"):
        yield ("", "", f"Total samples {what}"), [str(getattr(summary, f"n_samples_{what}"))]
    ns = summary.duration_ns
    yield ("", "", "Duration"), ["N/A" if ns is None else f"{ns / 1e9:.2f} seconds"]
    for label, value in (("QPS", summary.qps), ("TPS", summary.tps)):
        yield ("", "", label), ["N/A" if value is None else f"{value:.2f}"]
    for section, said in (summary.run_config or {}).items():
        if said is not None:
            inner = ", ".join(f"{key}={value}" for key, value in said.items()) if isinstance(said, dict) else str(said)
            yield (_RUN_CONFIG, "", section), [inner]
    for section, (name, unit, scale) in _SECTIONS.items():
        part: Series = getattr(summary, name)
        if not part.percentiles and part.early_stopping_percentiles is None:
            continue
        yield from _section(section, part, unit, scale)


def _section(section: str, part: Series, unit: str, scale: float) -> Iterator[tuple[Key, list[str]]]:
    def shown(value: Any) -> str:
        return "N/A" if value is None else f"{value * scale:.2f}"

    for label, name in _STATISTICS.items():
        yield (section, "", label), [f"{shown(getattr(part, name))} {unit}"]
    buckets = zip(part.histogram.buckets, part.histogram.counts, strict=False)
    if lines := [f"{shown(low)}, {shown(high)} {count}" for (low, high), count in buckets]:
        yield (section, "histogram", ""), lines
    for kind in ("percentiles", "early_stopping_percentiles"):
        for share, value in (getattr(part, kind) or {}).items():
            yield (section, kind, share), [f"{shown(value)} {unit}"]


def _report_of_text(text: str) -> dict[Key, list[str]]:
    """The values under their labels."""
    found: dict[Key, list[str]] = {}
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
            found.setdefault((section, part, ""), []).append(f"{match[1]} {match[3]}")
        elif match := _LABELLED.fullmatch(line):
            own = section if line.startswith(" ") else ""
            found.setdefault((own, part if own else "", match[1]), []).append(match[2].strip())
    return found
