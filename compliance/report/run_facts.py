"""The facts of one run in tables: load, samples, times, machine, software and stages, as texts with units."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from compliance.report.ceiling import ceiling_rows
from runs.numbers.result import RunNumbers
from runs.record.manifest import Manifest
from runs.record.requests_log import RequestTable
from runs.wording import duration, milliseconds, per_second, two_digits

_GIB = 2**30

Rows = list[tuple[str, Any]]


def run_facts(
    manifest: Manifest, result: RunNumbers, requests: RequestTable, tokens_per_second: float | None
) -> list[tuple[str, Rows]]:
    """Return the titles and rows of the tables below the charts. Empty tables are left out."""
    stages = manifest.observed.start_stages or {}
    tables: list[tuple[str, Rows]] = [
        ("Load", _load_rows(result)),
        ("Samples", _sample_rows(requests)),
        ("Upper bounds of the devices", list(ceiling_rows(manifest, requests, tokens_per_second))),
        ("Time of the queries, by vLLM's statistics", list(_query_time_rows(manifest))),
        ("What ran", _run_rows(manifest)),
        ("Trial: measured during warm-up", _trial_rows(manifest)),
        ("Stages of the run", [(name, f"{seconds:.1f} s") for name, seconds in stages.items()]),
    ]
    return [(title, rows) for title, rows in tables if rows]


def _load_rows(result: RunNumbers) -> Rows:
    load = result.load
    if load is None:
        return []
    return [
        ("offered", per_second(load.offered_per_second)),
        ("completed", per_second(load.completed_per_second)),
        ("open on average", f"{two_digits(load.mean_open)} queries"),
        ("kept up with the load", "yes" if load.kept_up else "no"),
    ]


def _sample_rows(requests: RequestTable) -> Rows:
    rows: Rows = [("samples", f"{len(requests):,}")]
    rows += [
        (name, f"{values.mean():,.1f} per sample, from {values.min():,} to {values.max():,}")
        for name, values in (("input tokens", requests.prompt_tokens), ("output tokens", requests.output_tokens))
    ]
    ended = Counter(requests.finish_reason).most_common()
    rows.append(("finish reasons", ", ".join(f"{reason} {count:,}" for reason, count in ended)))
    if requests.replica is not None and (count := int(requests.replica.max()) + 1) > 1:
        tokens = np.bincount(requests.replica, weights=requests.output_tokens, minlength=count)
        busiest = f"{int(tokens.argmax())} has {tokens.max() / max(tokens.mean(), 1):.3f} × the mean"
        rows.append(
            ("output tokens of replicas", f"{', '.join(f'{count:,.0f}' for count in tokens)}; replica {busiest}")
        )
    return rows


def _query_time_rows(manifest: Manifest) -> Iterator[tuple[str, str]]:
    times = manifest.observed.query_times
    total_s = times.queued_s + times.prefill_s + times.decode_s if times else 0.0
    if times is None or not total_s:
        return
    for name, part_s in (
        ("waiting for vLLM", times.queued_s),
        ("prefill", times.prefill_s),
        ("decode", times.decode_s),
    ):
        yield name, f"{part_s / total_s:.1%}, {milliseconds(1e3 * part_s / times.queries)} ms per query"


def _run_rows(manifest: Manifest) -> Rows:
    observed, plan = manifest.observed, manifest.plan
    host, names = observed.host, [str(accelerator.get("name")) for accelerator in observed.accelerators]
    took_s = ((manifest.end_time_ns or manifest.start_time_ns) - manifest.start_time_ns) / 1e9
    return [
        ("label", manifest.asked.get("label")),
        ("host", f"{host.hostname}, {host.system}"),
        ("processor", f"{host.cpu}, {host.cores_usable} cores usable"),
        ("memory", f"{host.memory_bytes / _GIB:.1f} GiB"),
        ("accelerators", f"{len(names)} × {', '.join(dict.fromkeys(names))}" if names else "none"),
        ("engine", plan.engine),
        ("versions of the engine", manifest.engine.versions),
        ("model", manifest.model.name),
        ("dataset", f"{plan.sample_count:,} rows, SHA-256 {plan.dataset_sha256[:16]}…"),
        ("LoadGen", observed.loadgen.version),
        ("harness", f"{observed.harness.version} {(observed.harness.git_commit or '')[:12]}"),
        ("duration", f"{duration(took_s)}, including engine start and verification"),
    ]


def _trial_rows(manifest: Manifest) -> Rows:
    trial = manifest.trial
    if trial is None:
        return []
    return [
        ("queries at a time", trial.queries_at_a_time),
        ("duration", f"{trial.seconds:.3g} s"),
        ("rate", per_second(trial.queries_per_second)),
        ("settings that follow", trial.settings),
    ]
