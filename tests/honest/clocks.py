"""The moments at which honest results were made, and clocks that were set meanwhile."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from runs.record.layout import RunDir
from tests.honest.pair import Pair, Variation, close, manifest_of
from tests.signoff.forge.faults import set_detail, set_manifest
from tests.signoff.forge.rebuilt_faults import rebuild
from tests.signoff.forge.record_faults import each_record, shift_requests
from tests.support.editing import reseal

_STAMP = "%m-%d-%Y %H:%M:%S.%f"


def run_at(run: RunDir, start: datetime) -> None:
    """The leg as if it had started then."""
    before = manifest_of(run)
    by_ns = int(start.timestamp() * 1e9) - before["start_time_ns"]
    shift_requests(run, by_ns)
    for name in ("start_time_ns", "end_time_ns"):
        set_manifest(run, name, before[name] + by_ns)
    for key, form in (("power_begin", _STAMP), ("power_end", _STAMP), ("test_datetime", "%Y-%m-%dT%H:%M:%SZ")):
        _move(run, key, by_ns / 1e9, form)
    close(run)


def _move(run: RunDir, key: str, by_s: float, form: str) -> None:
    """Another time in LoadGen's log."""
    records = (orjson.loads(line.partition(b" ")[2]) for line in run.detail.read_bytes().splitlines())
    stamp = next(one["value"] for one in records if one["key"] == key)
    text = (datetime.strptime(stamp, form) + timedelta(seconds=by_s)).strftime(form)
    set_detail(run, key, text[:-3] if form == _STAMP else text)


def _both_at(*moment: int, apart: timedelta = timedelta(minutes=10)) -> Variation:
    def variation(pair: Pair) -> None:
        run_at(pair.performance, utc(*moment))
        run_at(pair.accuracy, utc(*moment) + apart)

    return variation


def utc(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=UTC)  # type: ignore[misc, arg-type]


CLOCKS: dict[str, Variation] = {
    "new-year": _both_at(2026, 12, 31, 23, 59, 59),
    "leap-day": _both_at(2028, 2, 28, 23, 59, 59),
    "after-2038": _both_at(2038, 1, 19, 3, 14, 7),
    "clock-never-set": _both_at(1970, 1, 1, 0, 1),
    "legs-a-week-apart": _both_at(2026, 11, 15, 8, apart=timedelta(days=6)),
    "accuracy-before-performance": _both_at(2026, 11, 22, 8, apart=timedelta(hours=-3)),
    "legs-right-after-each-other": _both_at(2026, 11, 22, 8, apart=timedelta(seconds=30)),
}


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
    _move(run, "power_end", by_ms / 1e3, _STAMP)
    set_manifest(run, "end_time_ns", manifest_of(run)["end_time_ns"] + by_ns)


STEPPED: dict[str, Variation] = {f"clock-set-by-{by_ms}-ms": _stepped(by_ms) for by_ms in (-3, 4, -0.5)}
