"""Points of a submission tree: the files of each point compared with one another, and the points with each other.

A tree has no events, so that the numbers of result_summary.json are compared with themselves.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, compared
from compliance.mlperf_endpoints.derive import COMPLETED, DURATION, FIELDS, WINDOW, windowed_rates
from compliance.mlperf_endpoints.folder_rules import UNCHANGED, unfit
from compliance.mlperf_endpoints.summary_comparison import expected_run_config, reported_differences, windowed
from compliance.mlperf_endpoints.tree import POINT, SUMMARY
from runs.files.yaml_file import read_yaml
from runs.mlperf_endpoints.folder import EndpointsPoint, Series, Summary
from runs.mlperf_endpoints.layout import CONFIG

CLOSE = 1e-6
# The share of the asked concurrency that was open on average, from the start to the last response.
MIN_OPEN = 0.5


@decides(
    "contradiction",
    ("endpoints-point-settings", "error", OURS, "settings of a point", UNCHANGED),
    ("endpoints-point-numbers", "error", OURS, "numbers of a point's result_summary.json", UNCHANGED),
    ("endpoints-point-open", "warning", OURS, "samples open on average", UNCHANGED),
    ("endpoints-point-copies", "error", OURS, "points with the same numbers as another point", "run each point once"),
)
def judge_points(root: Path, places: Sequence[Path]) -> Iterator[Finding]:
    """Compare the files of each point, and the points of the tree."""
    seen: Counter[tuple[Any, ...]] = Counter()
    for place in places:
        point = EndpointsPoint(place)
        wrong = [f"{name}: {value}, {CONFIG}: {wanted}" for name, value, wanted in _settings(point)]
        files = [point.path(name) for name in (POINT, SUMMARY, CONFIG) if point.has(name)]
        yield compared("endpoints-point-settings", not wrong, "; ".join(wrong) or "equal", "equal", *files)
        if (summary := point.summary) is None:
            continue
        seen[summary.duration_ns, summary.latency.total] += 1
        wrong = [text for text, holds in _numbers(point, summary) if holds]
        yield compared("endpoints-point-numbers", not wrong, "; ".join(wrong) or "equal", "equal", *files)
        pattern = None if point.config is None else point.config.settings.load_pattern
        if pattern is not None and pattern.type == "concurrency" and pattern.target_concurrency and summary.duration_ns:
            mean, most = (summary.latency.total or 0) / summary.duration_ns, pattern.target_concurrency
            right, limit = MIN_OPEN * most <= mean <= most * (1 + CLOSE), f"{MIN_OPEN * most:g} to {most}"
            yield compared("endpoints-point-open", right, f"{mean:.3f}", limit, *files)
    copies = sum(count - 1 for count in seen.values())
    yield compared("endpoints-point-copies", not copies, f"{copies}", "0", root)


def _settings(point: EndpointsPoint) -> Iterator[tuple[str, Any, Any]]:
    """What another file or the directory's name has, and config.yaml."""
    config, summary = point.config, point.summary
    if config is None:
        return
    if summary is not None:
        yield from reported_differences(summary.run_config or {}, expected_run_config(point, summary), "run_config")
    runtime, pattern, least_ms = (
        config.settings.runtime,
        config.settings.load_pattern,
        point.time_settings.min_duration_ms,
    )
    declared = read_yaml(point.path(POINT), "") if point.has(POINT) else {}
    expected: dict[str, Any] = {
        "runtime_settings": {
            "load_pattern": pattern.type,
            **({} if least_ms is None else {"min_duration_ms": least_ms}),
            "runtime": {
                "scheduler_rng_seed": runtime.scheduler_random_seed,
                "sample_index_rng_seed": runtime.dataloader_random_seed,
            },
        },
    }
    if pattern.type == "concurrency":
        expected["concurrency"] = pattern.target_concurrency
        yield from reported_differences(point.root.name, f"r{pattern.target_concurrency}", "directory")
    yield from reported_differences({**expected, **declared}, expected, POINT)
    name, served = str(declared.get("model_name", "")), _letters(config.model_params.name)
    for where, model in ((f"{POINT}.model_name", name), ("directory", point.root.parent.name)):
        if model and _letters(model) not in served and served not in _letters(model):
            yield where, model, config.model_params.name


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.rpartition("/")[2].lower()))


def _numbers(point: EndpointsPoint, summary: Summary) -> Iterator[tuple[str, bool]]:
    """Yield each impossible relation of numbers, and True if the summary has it."""
    done, failed, sent = summary.n_samples_completed, summary.n_samples_failed, summary.n_samples_issued
    yield f"samples: {sent} issued, {done} completed, {failed} failed", not failed <= done <= sent
    spans = {DURATION: summary.duration_ns or 0, WINDOW: summary.legacy_loadgen_window_duration_ns or 0}
    metrics = spans | {COMPLETED: done}
    expected = windowed_rates(metrics, summary.output_sequence_lengths.total, windowed(point, metrics))
    for name, reported, wanted in zip(("qps", "tps"), (summary.qps, summary.tps), expected, strict=True):
        yield f"{name}: {reported}, recomputed from count and duration: {wanted}", not _close(reported, wanted)
    for name in FIELDS:
        series: Series = getattr(summary, name)
        count = sum(series.histogram.counts)
        stat = series.model_dump() | {"count": count, "histogram": []}
        yield from ((f"{name}: {text}", bool(count) and holds) for text, holds in unfit(stat).items())
        mean = series.total / count if count and series.total is not None else None
        yield f"{name}.avg: {series.avg}, total / count: {mean}", not _close(series.avg, mean)
    yield "latency: the number of values is not n_samples_completed", sum(summary.latency.histogram.counts) != done
    first, latency = summary.ttft, summary.latency
    if sum(first.histogram.counts) == done:
        pairs = [(value, latency.percentiles.get(share)) for share, value in first.percentiles.items()]
        yield (
            "latency below TTFT",
            any(ttft is not None and latency is not None and latency < ttft for ttft, latency in pairs),
        )


def _close(reported: float | None, wanted: float | None) -> bool:
    return reported is None or wanted is None or math.isclose(reported, wanted, rel_tol=CLOSE)
