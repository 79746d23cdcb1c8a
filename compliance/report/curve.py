"""Throughput against latency over concurrency: runs of the MLPerf Endpoints client, with our own legs over HTTP."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from compliance.report.pictures import CurvePoint, Picture, curve
from runs.endpoints.folder import read_folder
from runs.numbers.numbers import LatencyNumbers
from runs.numbers.result import Result
from runs.record.manifest import Manifest

_P90 = "90.0"


def point_of_folder(folder: Path, name: str) -> CurvePoint | None:
    """A run of the client, with its own numbers; None if it counted no tokens.

    Raises:
        InputError: the folder cannot be read.
    """
    run = read_folder(folder)
    summary, config = run.summary, run.config
    if summary is None or config is None or not summary.tps:
        return None
    pattern = config.settings.load_pattern
    rate = f"{pattern.target_qps:g}/s" if pattern.target_qps else "Offline"
    load = str(pattern.target_concurrency) if pattern.target_concurrency else rate
    ttft, tpot = (part.percentiles.get(_P90) for part in (summary.ttft, summary.tpot))
    return CurvePoint(name, load, float(summary.tps), _ms(ttft), _ms(tpot), holds=not summary.n_samples_failed)


def point_of_leg(manifest: Manifest, result: Result, name: str) -> CurvePoint | None:
    """A performance leg over HTTP; None for every other."""
    numbers, asked = result.reported, result.in_force
    if not manifest.plan.engine_record.is_server or numbers is None or not numbers.tokens_per_second:
        return None
    load = result.scenario if result.scenario in ("Offline", "SingleStream") else f"{asked.target_qps:g}/s"
    ttft, tpot = (_p90(part) for part in (numbers.ttft_ns, numbers.tpot_ns))
    limits = _ms(asked.ttft_limit_ns), _ms(asked.tpot_limit_ns)
    valid = result.verdict == "VALID"
    return CurvePoint(name, load, numbers.tokens_per_second, _ms(ttft), _ms(tpot), limits, holds=valid, ours=True)


def _p90(numbers: LatencyNumbers | None) -> float | None:
    return None if numbers is None else numbers.p90


def _ms(ns: float | None) -> float | None:
    return None if not ns else ns / 1e6


def curves(points: Sequence[CurvePoint]) -> Iterator[Picture]:
    """Tokens/s against TTFT, TPOT and the rate of a user, if at least two points have it."""
    for label, name, limit in (
        ("P90 TTFT, ms", "ttft_ms", 0),
        ("P90 TPOT, ms", "tpot_ms", 1),
        ("tokens/s of a user: 1,000 / P90 TPOT", "tokens_per_user", None),
    ):
        there = [(point, x) for point in points if (x := getattr(point, name)) is not None]
        if len(there) > 1:
            limits = {} if limit is None else {point.limits_ms[limit] for point, _ in there}
            yield curve(label, there, sorted(one for one in limits if one), more_is_better=limit is None)
