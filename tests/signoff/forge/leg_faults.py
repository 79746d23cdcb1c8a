"""Faults that go through all files of a leg alike, as somebody forges who knows what is compared (see faults.py)."""

import random
import re
from datetime import datetime, timedelta
from typing import Any

import orjson

from runs.files import write_json
from runs.record.layout import ResultDir, RunDir
from tests.signoff.forge.record_faults import each_record, read_records, shift_requests, write_records

Json = dict[str, Any]
_STAMPS = ("issue_ns", "first_token_ns", "complete_ns")
_SEED = 11  # of what a fault draws: the same in every back-test
_POWER_TIME = "%m-%d-%Y %H:%M:%S.%f"


def disguise(run: RunDir, by_s: int, pid: int, jitter_ns: int = 0) -> None:
    """A copy of a run as another run: all its clocks and its process changed alike.

    Args:
        run: the copy.
        by_s: how much later it is said to have run.
        pid: its process.
        jitter_ns: every stamp of the record moves by up to so much, too.
    """
    old = orjson.loads(run.manifest.read_bytes())
    by_ns = by_s * 1_000_000_000
    shift_requests(run, by_ns)
    draw = random.Random(_SEED)
    if jitter_ns:

        def moved(one: Json) -> Json:
            known = [name for name in _STAMPS if one[name] is not None]
            return one | {
                name: one[name] + draw.randrange(jitter_ns) * (1 if name == "issue_ns" else -1) for name in known
            }

        each_record(run, moved)
    write_json(
        run.manifest,
        old | {"pid": pid} | {name: old[name] + by_ns for name in ("start_time_ns", "end_time_ns")},
    )
    if run.progress.is_file():
        progress = orjson.loads(run.progress.read_bytes())
        write_json(run.progress, progress | {"pid": pid, "time_ns": progress["time_ns"] + by_ns})
    for path in (run.detail, run.trace):
        if path.is_file():
            text = path.read_text()
            text = re.sub(rf'("pid": ?){old["pid"]}\b', rf"\g<1>{pid}", text)
            path.write_text(
                re.sub(r'(?<="value": ")\d\d-\d\d-\d{4} [\d:.]+(?=")', lambda found: _later(found[0], by_s), text)
            )


def _later(stamp: str, by_s: int) -> str:
    return (datetime.strptime(stamp, _POWER_TIME) + timedelta(seconds=by_s)).strftime(_POWER_TIME)[:-3]


def borrow_latencies(run: RunDir, other: RunDir) -> None:
    """The times and answers of another leg's requests, on this one's issue times."""
    theirs = {one["seq"]: one for one in read_records(other)}

    def edit(one: Json) -> Json:
        their = theirs[one["seq"]]
        times = {name: one["issue_ns"] + their[name] - their["issue_ns"] for name in _STAMPS[1:]}
        return their | {"issue_ns": one["issue_ns"]} | times

    each_record(run, edit)


def borrow_answers(run: RunDir, other: RunDir, lengths: bool = True) -> None:
    """The answers that another leg gave to the same samples; without `lengths` only their hashes."""
    theirs = {one["sample_index"]: one for one in read_records(other)}
    names = ("output_sha256", "finish_reason", *(("output_tokens",) if lengths else ()))
    each_record(run, lambda one: one | {name: theirs[one["sample_index"]][name] for name in names})


def drop_slowest(run: RunDir, count: int) -> None:
    """The slowest requests are not there, and the others are numbered anew."""
    records = read_records(run)
    slowest = sorted(records, key=lambda one: one["issue_ns"] - one["complete_ns"])[:count]
    kept = sorted((one for one in records if one not in slowest), key=lambda one: one["seq"])
    write_records(run, [one | {"seq": seq} for seq, one in enumerate(kept)])


def repeat_fastest(run: RunDir, count: int) -> None:
    """The slowest requests have the times of the fastest, moved to their own issue."""
    records = sorted(read_records(run), key=lambda one: one["complete_ns"] - one["issue_ns"])
    for slow, fast in zip(records[-count:], records[:count], strict=True):
        for name in _STAMPS[1:]:
            if fast[name] is not None:
                slow[name] = slow["issue_ns"] + fast[name] - fast["issue_ns"]
    write_records(run, sorted(records, key=lambda one: one["seq"]))


def round_stamps(run: RunDir, to_ns: int) -> None:
    """Stamps that went through a table with fewer digits."""
    each_record(run, lambda one: one | {n: one[n] // to_ns * to_ns for n in _STAMPS if one[n] is not None})


def plant_caching_audit(run: RunDir) -> None:
    """A record beside the leg that says that the audit of output caching passed."""
    folder = ResultDir(run.root.parent).audit("output_caching")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "audit_output_caching.json", {"audit": "output_caching", "passed": True})


def plant_verdict(run: RunDir, name: str, record: Json) -> None:
    """A verdict that nobody gave, beside the leg."""
    write_json(run.root.parent / name, record)
