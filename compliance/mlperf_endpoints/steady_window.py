"""The steady-state window of a run, recomputed from its events as the client's detector does.

A super-pass is one pass over the dataset, in the order of issue. A window is a range of super-passes whose TPOT is
steady: p50 and p90 have a small coefficient of variation and no trend. Its numbers are the official result of a point
if the window is long enough. [endpoints] §4.4; mlcommons/endpoints, metrics/steady_state_diagnostics.py
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compliance.mlperf_endpoints.derive import ROUNDING
from runs.mlperf_endpoints.events import NO_TIME, EventColumn

MIN_SUPER_PASSES = 4
MAX_CROPPED_SHARE, CROP_BAND = 0.5, 0.05  # limits of the leading super-passes that are dropped
MAX_VARIATION = 0.08  # coefficient of variation of a steady series
MAX_P_VALUE, MIN_DRIFT = 0.05, 0.05  # a trend is significant, and at least this share of the median
NORMAL_95 = 1.96  # two-sided 95% of the normal distribution
PRECISION = 0.05  # relative precision of the mean that decides the number of super-passes
FLOOR_S, LATENCIES = 600.0, 5.0  # shortest window, also in multiples of the p90 latency
SHIFT = 0.05  # relative change of the mean TPOT after the window that counts as an anomaly
NS = 1e9

WINDOWABLE, SHORT, FEW_PASSES, PARTIAL = (
    "windowable", "insufficient_duration", "insufficient_passes", "partial_dataset"
)  # fmt: skip
STEADY, UP, DOWN, ANOMALY, NOT_FOUND = "STEADY STATE", "drifting_up", "drifting_down", "anomaly", "not found"
PLATEAU, DRIFTING = "Plateau", {1: "Drifting Up", -1: "Drifting Down"}
WATCHED = (("tpot", 0.5), ("tpot", 0.9), ("ttft", 0.5), ("ttft", 0.9))  # series and percentiles whose drift is reported
GATED = WATCHED[:2]

FloatColumn = NDArray[np.float64]


@dataclass(frozen=True)
class SuperPass:
    """The samples of one pass over the dataset. Times are in ns and sorted."""

    ttft: FloatColumn
    tpot: FloatColumn
    latency: FloatColumn
    tokens: int  # tokens after the first chunk
    first_issue_ns: int
    last_issue_ns: int

    @property
    def span_s(self) -> float:
        return (self.last_issue_ns - self.first_issue_ns) / NS


@dataclass(frozen=True)
class SteadyWindow:
    """A range of super-passes, counted after the dropped ones."""

    start: int
    end: int  # exclusive
    samples: int  # samples with a first token
    duration_s: float  # span of the issue times
    required_s: float
    passes_for_precision: int  # k*
    system_tps: float
    per_user_tps: float
    percentiles_ns: dict[str, dict[str, float]]  # ttft and tpot → p50, p90


@dataclass(frozen=True)
class SteadyState:
    """The result of the detector, and its status by the rules."""

    size: int  # samples of a super-pass
    super_passes: int
    cropped: int  # leading super-passes that are dropped
    is_long_enough: bool  # True: a window is long enough for the detector, which always requires 600 s
    window: SteadyWindow | None
    drifts: dict[str, int]  # watched series, such as tpot_p90 → 1: it rises after the window's start, -1: it falls
    state: dict[str, str]  # TPOT in the window
    anomaly: dict[str, float] | None
    status: str
    verdict: str

    @property
    def declared(self) -> dict[str, Any]:
        """The block `steady_state` of point.yaml, in which the last super-pass is inclusive."""
        window = self.window
        extent = {} if window is None else {
            "super_pass_start": self.cropped + window.start,
            "super_pass_end": self.cropped + window.end - 1,
            "super_pass_size": self.size,
            "n_samples": window.samples,
            "duration_s": round(window.duration_s, 3),
        }  # fmt: skip
        return {"status": self.status, "verdict": self.verdict, "window": extent, "state": self.state} | (
            {} if self.anomaly is None else {"anomaly": self.anomaly}
        )

    @property
    def reported(self) -> dict[str, Any]:
        """The numbers of the client's block in result_summary.json, for a run with a window."""
        window = self.window
        rising = [name for name, direction in self.drifts.items() if direction > 0]
        common = {
            "superpass_size": self.size, "n_super_passes": self.super_passes,
            "n_post_warmup": self.super_passes - self.cropped, "found": self.is_long_enough, "drifting_up": rising,
        }  # fmt: skip
        return common if window is None else common | {
            "window": {"sp_lo": window.start, "sp_hi": window.end, "n_samples": window.samples},
            "tps": {"per_user": window.per_user_tps, "system": window.system_tps},
            **window.percentiles_ns,
        }  # fmt: skip


def super_passes(
    size: int, issued_ns: EventColumn, first_ns: EventColumn, complete_ns: EventColumn, later_tokens: EventColumn
) -> list[SuperPass]:
    """Split the samples of a run, in the order of issue, into passes over the dataset.

    Args:
        size: Rows of the dataset.
        later_tokens: Tokens after the first chunk of each response.
    """
    passes = []
    for start in range(0, len(issued_ns), size):
        part = slice(start, start + size)
        issued, first, complete, tokens = issued_ns[part], first_ns[part], complete_ns[part], later_tokens[part]
        has_first, has_end = first != NO_TIME, complete != NO_TIME
        counted = has_first & has_end & (tokens > 0)
        passes.append(
            SuperPass(
                np.sort((first - issued)[has_first].astype(float)),
                np.sort((complete - first)[counted] / tokens[counted]),
                np.sort((complete - issued)[has_end].astype(float)),
                int(tokens[counted].sum()),
                int(issued.min()),
                int(issued.max()),
            )
        )
    return passes


def detect_steady_state(passes: Sequence[SuperPass], size: int, required_s: float) -> SteadyState:
    """Find the steady-state window.

    Args:
        passes: All super-passes of the run.
        size: Samples of a super-pass, which are the rows of the dataset.
        required_s: Minimum duration of the point by the rules.
    """
    cropped = _cropped(passes)
    later = passes[cropped:]
    ranges = _steady_ranges(later)
    windows = [_window(later, *bounds) for bounds in ranges]
    chosen = next((number for number, window in enumerate(windows) if window.duration_s >= window.required_s), None)
    is_long_enough = chosen is not None
    if chosen is None and windows:  # the longest range shows how much is missing
        chosen = max(range(len(windows)), key=lambda number: windows[number].duration_s)
    window = None if chosen is None else windows[chosen]
    drifts = _drifts(later[0 if window is None else window.start :])
    anomaly = None if chosen is None else _anomaly(later, ranges, chosen)
    total = sum(len(super_pass.latency) for super_pass in passes)
    if total < size:
        status = PARTIAL
    elif window is None:
        status = FEW_PASSES
    else:
        status = WINDOWABLE if is_long_enough and window.duration_s >= required_s else SHORT
    if not is_long_enough:
        verdict = NOT_FOUND
    elif anomaly is not None:
        verdict = ANOMALY
    else:
        rising, falling = (sign in drifts.values() for sign in (1, -1))
        verdict = UP if rising else DOWN if falling else STEADY
    state = {} if window is None else {f"tpot_p{share * 100:.0f}": PLATEAU for _, share in GATED}
    return SteadyState(size, len(passes), cropped, is_long_enough, window, drifts, state, anomaly, status, verdict)


def _percentile(ordered: FloatColumn, share: float) -> float:
    return float(ordered[int(share * (len(ordered) - 1))])


def _series(passes: Sequence[SuperPass], name: str, share: float) -> FloatColumn:
    """Return the percentile of each super-pass that has values."""
    columns = [getattr(part, name) for part in passes]
    return np.array([_percentile(column, share) for column in columns if len(column)])


def _cropped(passes: Sequence[SuperPass]) -> int:
    """Return the number of leading super-passes that are not yet steady."""
    values = _series(passes, "tpot", 0.5).tolist()
    if len(values) < MIN_SUPER_PASSES:
        return 1
    steady, count = median(values[len(values) // 2 :]), 0
    while count < max(1, int(len(values) * MAX_CROPPED_SHARE)) and abs(values[count] - steady) > CROP_BAND * steady:
        count += 1
    return max(1, count)


def _steady_ranges(passes: Sequence[SuperPass]) -> list[tuple[int, int]]:
    """Return the ranges of super-passes, each grown from its start until it is not steady."""
    gated = [[_percentile(part.tpot, share) if len(part.tpot) else math.nan for part in passes] for _, share in GATED]
    ranges, start = [], 0
    while start <= len(passes) - MIN_SUPER_PASSES:
        end = start + MIN_SUPER_PASSES - 1
        while end < len(passes) and all(_is_steady(np.array(series[start : end + 1])) for series in gated):
            end += 1
        if end - start >= MIN_SUPER_PASSES:
            ranges.append((start, end))
            start = end
        else:
            start += 1
    return ranges


def _is_steady(values: FloatColumn) -> bool:
    if np.isnan(values).any():
        return False
    return (trend(values) == 0 or abs(drift_share(values)) < MIN_DRIFT) and variation(values) <= MAX_VARIATION


def variation(values: FloatColumn) -> float:
    """Return the coefficient of variation, by the standard deviation of the population."""
    mean = float(values.mean())
    return float(values.std()) / abs(mean) if len(values) > 1 and mean else 0.0


def drift_share(values: FloatColumn) -> float:
    """Return the change along the line of least squares, from the first to the last value, divided by the median."""
    if len(values) < 2:
        return 0.0
    places = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float((places * (values - values.mean())).sum() / (places**2).sum())
    return slope * (len(values) - 1) / (float(np.median(values)) or ROUNDING)


def trend(values: FloatColumn) -> int:
    """Return 1 if the values rise significantly, -1 if they fall, otherwise 0.

    The test is that of Mann and Kendall. Its variance is corrected for autocorrelation by Hamed and Rao.
    """
    count = len(values)
    if count < MIN_SUPER_PASSES:
        return 0
    score = int(np.triu(np.sign(values[None, :] - values[:, None])).sum())
    ties = np.unique(values, return_counts=True)[1]
    variance = (count * (count - 1) * (2 * count + 5) - int((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    variance *= _autocorrelation_factor(values)
    if variance <= 0:
        return int(np.sign(score))
    z = (score - np.sign(score)) / math.sqrt(variance)
    return int(np.sign(score)) if math.erfc(abs(z) / math.sqrt(2)) < MAX_P_VALUE else 0


def _autocorrelation_factor(values: FloatColumn) -> float:
    count = len(values)
    ranks = np.empty(count)
    ranks[np.argsort(values, kind="stable")] = np.arange(1, count + 1)
    ranks -= ranks.mean()
    power, total = float((ranks**2).sum()), 0.0
    for lag in range(1, count):
        share = float((ranks[lag:] * ranks[:-lag]).sum()) / power
        if abs(share) > NORMAL_95 / math.sqrt(count):
            total += (count - lag) * (count - lag - 1) * (count - lag - 2) * share
    factor = 1 + 2 / (count * (count - 1) * (count - 2)) * total
    return factor if factor > 0 else 1.0


def _window(passes: Sequence[SuperPass], start: int, end: int) -> SteadyWindow:
    part = passes[start:end]
    duration_s = (
        max(super_pass.last_issue_ns for super_pass in part) - min(super_pass.first_issue_ns for super_pass in part)
    ) / NS
    spans = [super_pass.span_s for super_pass in part if super_pass.span_s > 0]
    needed = math.ceil((NORMAL_95 * variation(_series(part, "tpot", 0.5)) / PRECISION) ** 2)
    needed = max(MIN_SUPER_PASSES, needed)
    pooled = {
        name: np.sort(np.concatenate([getattr(super_pass, name) for super_pass in part])) for name in ("ttft", "tpot")
    }
    latency = np.sort(np.concatenate([super_pass.latency for super_pass in part]))
    precise_s = needed * median(spans) if needed > MIN_SUPER_PASSES and spans else 0.0
    mean_tpot = float(pooled["tpot"].mean())
    return SteadyWindow(
        start,
        end,
        len(pooled["ttft"]),
        duration_s,
        max(FLOOR_S, LATENCIES * _percentile(latency, 0.9) / NS, precise_s),
        needed,
        sum(super_pass.tokens for super_pass in part) / duration_s if duration_s else 0.0,
        NS / mean_tpot if mean_tpot else 0.0,
        {
            name: {f"p{share * 100:.0f}": _percentile(column, share) for share in (0.5, 0.9)}
            for name, column in pooled.items()
            if len(column)
        },
    )


def _drifts(passes: Sequence[SuperPass]) -> dict[str, int]:
    series = {f"{name}_p{share * 100:.0f}": _series(passes, name, share) for name, share in WATCHED}
    return {name: direction for name, values in series.items() if (direction := trend(values))}


def _anomaly(passes: Sequence[SuperPass], ranges: Sequence[tuple[int, int]], chosen: int) -> dict[str, float] | None:
    """Return the shift of the TPOT in a range after the window, if a test for a change point confirms it."""

    def mean(bounds: tuple[int, int]) -> float:
        return float(np.concatenate([super_pass.tpot for super_pass in passes[bounds[0] : bounds[1]]]).mean())

    level = mean(ranges[chosen])
    changes = [mean(bounds) / level - 1 for bounds in ranges[chosen + 1 :]]
    shift = next((change for change in changes if abs(change) > SHIFT), None)
    place = _change_point(np.array([super_pass.tpot.mean() if len(super_pass.tpot) else 0.0 for super_pass in passes]))
    return None if shift is None or place is None else {"super_pass": place, "delta_pct": round(100 * shift, 3)}


def _change_point(values: FloatColumn) -> int | None:
    """Return the size of the first part by the test of Pettitt; None if the change is not significant."""
    count = len(values)
    if count < MIN_SUPER_PASSES:
        return None
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    statistics = np.abs(2 * np.cumsum(ranks)[:-1] - np.arange(1, count) * (count + 1))
    highest = float(statistics.max())
    p_value = 2 * math.exp(-6 * highest**2 / (count**3 + count**2))
    return int(statistics.argmax()) + 1 if p_value < MAX_P_VALUE else None
