"""P-5: do all clocks of a leg tell of one time? Each reading of one, and between which others it has to lie."""

import contextlib
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from compliance.finding import Finding, fail, warn
from compliance.signoff.evidence import Evidence
from compliance.signoff.limits import (
    LENGTH_LATE_S,
    LENGTH_SHARE_LATE,
    LENGTH_TOLD_S,
    SUMMER_TIME_CHANGES_S,
    WHOLE_SECOND_S,
    WINDOW_EARLY_S,
    WINDOW_LATE_S,
    WINDOW_SLACK_S,
    WINDOW_SLACK_SHARE,
    ZONE_MOST_S,
    ZONE_STEP_S,
)
from runs.loadgen.detail_log import power_time
from runs.record.engine_log import START_STAGES
from runs.record.manifest import Manifest
from runs.record.observed import CONTENTION, loop_lag_of
from runs.record.progress import PHASES
from runs.record.requests_log import RequestTable

_FIRST = PHASES["importing"]  # which begins before the leg's record


class Reading(NamedTuple):
    """One reading, in s since 1970: all that it can mean (a date without a year, a local time), and its bounds.

    From `told_s` on, a slow disk or a busy machine explains it: a person has to ask.
    """

    name: str
    file: Path
    can_mean_s: list[float]
    low_s: float
    high_s: float
    told_s: float = math.inf


def clocks(evidence: Evidence, manifest: Manifest, table: RequestTable) -> Iterator[Finding]:
    """Every reading that does not fit, or is not there."""
    for name, file, can_mean_s, low_s, high_s, told_s in _readings(evidence, manifest, table):
        most_s = min(high_s, told_s)
        if not can_mean_s:
            yield fail("P-1/missing_raw", f"{name} is missing or no time", file)
        elif not any(low_s <= moment_s <= most_s for moment_s in can_mean_s):
            nearest_s = min(can_mean_s, key=lambda moment_s: abs(moment_s - low_s))
            text = f"{name} is at {nearest_s:.3f}, and not between {low_s:.3f} and {most_s:.3f}"
            make = warn if low_s <= nearest_s <= high_s else fail
            yield make("P-5/clock", text, file, moment_s=nearest_s, low_s=low_s, high_s=most_s)


def _readings(evidence: Evidence, manifest: Manifest, table: RequestTable) -> Iterator[Reading]:
    run, detail = evidence.run, evidence.detail
    start_s, end_s = (manifest.start_time_ns or 0) / 1e9, (manifest.end_time_ns or 0) / 1e9
    first_s, last_s = int(table.issue_ns.min()) / 1e9, int(table.complete_ns.max()) / 1e9
    zone_s = zone_of(evidence)
    begin, end = (power_time(detail.get(key)) for key in ("power_begin", "power_end"))
    leg_s = start_s - WHOLE_SECOND_S, end_s + WHOLE_SECOND_S
    yield Reading("the first query", run.requests, [first_s], start_s, end_s)
    yield Reading("the last answer", run.requests, [last_s], first_s, end_s)
    yield Reading("power_begin", run.detail, _moment(begin), first_s - WINDOW_LATE_S, first_s + WINDOW_EARLY_S)
    yield Reading("power_end", run.detail, _moment(end), last_s - WINDOW_EARLY_S, last_s + WINDOW_LATE_S)
    date_s = _date_s(evidence)
    date = [] if date_s is None else [date_s + zone_s if abs(zone_s) <= ZONE_MOST_S else date_s]
    yield Reading("test_datetime", run.detail, date, leg_s[0], first_s + WHOLE_SECOND_S)
    if isinstance(beat_ns := evidence.progress.get("time_ns"), int):
        yield Reading("the heartbeat", run.progress, [beat_ns / 1e9], last_s - WHOLE_SECOND_S, leg_s[1])
    stages = {name: lasted_s for name, lasted_s in manifest.observed.get(START_STAGES, {}).items() if name != _FIRST}
    for name, lasted_s in (
        ("the sum of its stages", sum(stages.values())),
        *((f"the start of replica {one['replica']}", one["start_s"]) for one in manifest.replicas if manifest.current),
    ):
        yield Reading(name, run.manifest, [start_s + lasted_s], *leg_s)
    if (lag := loop_lag_of(manifest.observed)) is not None:
        yield Reading("the loop's lag", run.manifest, [start_s + lag.worst_ms / 1e3], *leg_s)
    yield from _lengths(evidence, manifest, first_s, last_s)
    year = datetime.fromtimestamp(start_s, UTC).year
    for stamp in evidence.engine_log.first_and_last:
        yield Reading("a stamp of the engine", run.engine_log, moments_of(stamp, year, zone_s), *leg_s)


def _lengths(evidence: Evidence, manifest: Manifest, first_s: float, last_s: float) -> Iterator[Reading]:
    """How long LoadGen ran, as it is counted in several places: from the first query to the last answer, and hardly
    longer. Times that were made shorter are found by any that was left."""
    run, observed, detail, beat = evidence.run, manifest.observed, evidence.detail, evidence.progress
    took_s = last_s - first_s
    slack_s, told_s = WINDOW_SLACK_S + WINDOW_SLACK_SHARE * took_s, LENGTH_TOLD_S + LENGTH_SHARE_LATE * took_s
    late_s = LENGTH_LATE_S + LENGTH_SHARE_LATE * took_s
    # From its start, before it makes the queries and loads the samples, to its end.
    ran = [] if detail.ended_ms is None else [first_s + detail.ended_ms / 1e3]
    yield Reading("LoadGen's clock", run.detail, ran, last_s - WINDOW_EARLY_S, last_s + late_s, last_s + told_s)
    # Both of one moment.
    if isinstance(beat_ns := beat.get("time_ns"), int) and isinstance(elapsed_s := beat.get("elapsed_s"), float):
        beat_s, name = beat_ns / 1e9, "the heartbeat's count"
        bounds = beat_s - slack_s, beat_s + late_s, beat_s + told_s
        yield Reading(name, run.progress, [first_s + elapsed_s], *bounds)
    # Which also wait for LoadGen's logs to be written. Too short ones have rules of their own, or count coarsely.
    lag, window_s = loop_lag_of(observed), (observed.get(CONTENTION) or {}).get("window_s")
    looked_s = lag.moments * lag.interval_ms / 1e3 if lag else None
    running_s = observed.get(START_STAGES, {}).get(PHASES["running"])
    for name, length_s, low_s, high_s in (
        ("the window of CPU times", window_s, first_s, math.inf),  # B-4 has bounds of it
        ("the number of looks at the loop", looked_s, first_s, last_s + late_s),
        ("the stage of running", running_s, last_s - slack_s, last_s + late_s),
    ):
        if length_s is not None:
            yield Reading(name, run.manifest, [first_s + length_s], low_s, high_s, last_s + told_s)


def _moment(moment: datetime | None) -> list[float]:
    return [] if moment is None else [moment.timestamp()]


def zone_of(evidence: Evidence) -> int:
    """How far the machine's local time is behind UTC, in s: LoadGen prints its date shortly before the first query."""
    date_s = _date_s(evidence)
    if date_s is None or evidence.requests is None or not len(evidence.requests):
        return 0
    first_s = float(evidence.requests.issue_ns.min()) / 1e9
    return math.floor((first_s + WHOLE_SECOND_S - date_s) / ZONE_STEP_S) * ZONE_STEP_S


def _date_s(evidence: Evidence) -> float | None:
    """A local time, though it ends with a Z."""
    return _parsed(evidence.detail.get("test_datetime"), "%Y-%m-%dT%H:%M:%SZ")


def moments_of(stamp: tuple[str, str, str], year: int, zone_s: int) -> list[float]:
    """What a stamp of the engine's log can mean, in s: it has no year (a leg may run over New Year, or be in another
    one by its own clock), and the clock may have been changed while the leg ran."""
    month, day, clock = stamp
    found = [_parsed(f"{one}-{month}-{day} {clock}", "%Y-%m-%d %H:%M:%S") for one in (year - 1, year, year + 1)]
    return [moment_s + zone_s + change_s for moment_s in found if moment_s for change_s in SUMMER_TIME_CHANGES_S]


def _parsed(text: object, form: str) -> float | None:
    """A printed time in s, as if it were UTC."""
    with contextlib.suppress(ValueError):
        return datetime.strptime(f"{text}+0000", f"{form}%z").timestamp()
    return None
