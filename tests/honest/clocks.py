"""The moments and time zones in which honest results were made."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from runs.record.layout import RunDir
from tests.honest.pair import Pair, Variation, close, manifest_of
from tests.signoff.forge.faults import set_detail, set_manifest
from tests.signoff.forge.rebuilt_faults import rebuild
from tests.signoff.forge.record_faults import each_record, shift_requests
from tests.support.editing import reseal

_STAMP, _DATE = "%m-%d-%Y %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%SZ"
HOUR_S = 3600


def run_at(run: RunDir, start: datetime, zone_s: int = 0) -> None:
    """The leg as if it had started then (in UTC), on a machine of that time zone, in which LoadGen prints its date."""
    before = manifest_of(run)
    by_ns = int(start.timestamp() * 1e9) - before["start_time_ns"]
    local_s = time.localtime(before["start_time_ns"] / 1e9).tm_gmtoff
    shift_requests(run, by_ns)
    for name in ("start_time_ns", "end_time_ns"):
        set_manifest(run, name, before[name] + by_ns)
    values = {record["key"]: record["value"] for record in _records(run)}
    for key, form, more_s in (
        ("test_datetime", _DATE, zone_s - local_s),
        ("power_begin", _STAMP, 0),
        ("power_end", _STAMP, 0),
    ):
        moment = datetime.strptime(values[key], form) + timedelta(microseconds=by_ns / 1e3, seconds=more_s)
        set_detail(run, key, moment.strftime(form) if form == _DATE else moment.strftime(form)[:-3])
    close(run)


def _records(run: RunDir) -> list[dict[str, Any]]:
    return [orjson.loads(line.partition(b" ")[2]) for line in run.detail.read_bytes().splitlines()]


def _both_at(start: datetime, zone_s: int = 0, apart: timedelta = timedelta(minutes=10)) -> Variation:
    def variation(pair: Pair) -> None:
        run_at(pair.performance, start, zone_s)
        run_at(pair.accuracy, start + apart, zone_s)

    return variation


def utc(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=UTC)  # type: ignore[misc, arg-type]


def zone(hours: float) -> int:
    return int(hours * HOUR_S)


_BEFORE_MIDNIGHT = (23, 59, 59)
CLOCKS: dict[str, Variation] = {
    "new-year": _both_at(utc(2026, 12, 31, *_BEFORE_MIDNIGHT)),
    "accuracy-leg-in-the-next-year": _both_at(utc(2026, 12, 31, 23, 50), apart=timedelta(minutes=30)),
    "zone-east": _both_at(utc(2026, 11, 22, 12), zone(14)),
    "leap-day": _both_at(utc(2028, 2, 28, *_BEFORE_MIDNIGHT)),
    "after-2038": _both_at(utc(2038, 1, 19, 3, 14, 7)),
    "clock-never-set": _both_at(utc(1970, 1, 1, 0, 1)),
    "legs-a-week-apart": _both_at(utc(2026, 11, 15, 8), apart=timedelta(days=6)),
    "accuracy-before-performance": _both_at(utc(2026, 11, 22, 8), apart=timedelta(hours=-3)),
    "legs-right-after-each-other": _both_at(utc(2026, 11, 22, 8), apart=timedelta(seconds=30)),
}  # fmt: skip


def _stepped(by_ms: float) -> Variation:
    """The machine's clock was set by some milliseconds in the middle of each leg; LoadGen's and ours read it alike."""

    def variation(pair: Pair) -> None:
        for run in pair.legs:
            _step(run, by_ms)
            if run == pair.performance:
                rebuild(run, 1)
            reseal(run)

    return variation


def _step(run: RunDir, by_ms: float) -> None:
    moments = sorted(orjson.loads(line)["complete_ns"] for line in run.requests.read_bytes().splitlines())
    at_ns, by_ns = moments[len(moments) // 2], int(by_ms * 1e6)
    # By the same clock LoadGen's Server waits for the next query, so there only answers on their way differ.
    waits = manifest_of(run)["plan"]["loadgen_scenario"] == "Server"

    def edit(one: dict[str, Any]) -> dict[str, Any]:
        names = ("issue_ns", "first_token_ns", "complete_ns")
        if waits and one["issue_ns"] > at_ns:
            return one
        return one | {name: one[name] + by_ns for name in names if one[name] is not None and one[name] > at_ns}

    each_record(run, edit)
    if waits:
        return
    power_end = {record["key"]: record["value"] for record in _records(run)}["power_end"]
    moment = datetime.strptime(power_end, _STAMP) + timedelta(milliseconds=by_ms)
    set_detail(run, "power_end", moment.strftime(_STAMP)[:-3])
    set_manifest(run, "end_time_ns", manifest_of(run)["end_time_ns"] + by_ns)


STEPPED: dict[str, Variation] = {f"clock-set-by-{by_ms}-ms": _stepped(by_ms) for by_ms in (-3, 4, -0.5)}
