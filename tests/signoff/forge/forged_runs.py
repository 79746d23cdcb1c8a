"""Faults in all files of a run, or in the files of LoadGen that are rebuilt around a record.

A forger would create them who knows what is compared (see faults.py).
"""

import random
import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import orjson

from runs.errors import HarnessError
from runs.files.writing import write_json
from runs.loadgen.detail_log import DetailLog, read_detail
from runs.loadgen.summary_log import _comparable, _headline_key, _normalize
from runs.numbers.derive_result import derive_result
from runs.numbers.numbers import LATENCIES, RATE_KEYS, latency_keys
from runs.numbers.rederive import derive_numbers
from runs.numbers.result import write_result
from runs.record.finished_run import FinishedRun
from runs.record.layout import ResultDir, RunDir
from runs.record.requests_log import read_request_table
from tests.signoff.forge.manifest_faults import shift_requests
from tests.support.files.editing import each_record, edit_lines, read_records, write_records

Json = dict[str, Any]
_STAMPS = ("issue_ns", "first_token_ns", "complete_ns")
_POWER_TIME = "%m-%d-%Y %H:%M:%S.%f"
_SEED = 11  # seed of the random faults, constant in each back-test
_POWER_TIME = "%m-%d-%Y %H:%M:%S.%f"


def disguise(run: RunDir, by_s: int, pid: int, jitter_ns: int = 0) -> None:
    """Present the copy of a run as another run: all clocks and the process are changed.

    Args:
        run: Copy of a run.
        by_s: Time by which it appears to have run later.
        pid: Its process.
        jitter_ns: Maximum shift of each stamp of the record.
    """
    old = orjson.loads(run.manifest.read_bytes())
    by_ns = by_s * 1_000_000_000
    shift_requests(run, by_ns)
    draw = random.Random(_SEED)
    if jitter_ns:

        def moved(record: Json) -> Json:
            stamps = [name for name in _STAMPS if record[name] is not None]
            return record | {
                name: record[name] + draw.randrange(jitter_ns) * (1 if name == "issue_ns" else -1) for name in stamps
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
                re.sub(r'(?<="value": ")\d\d-\d\d-\d{4} [\d:.]+(?=")', lambda match: _later(match[0], by_s), text)
            )


def _later(stamp: str, by_s: int) -> str:
    return (datetime.strptime(stamp, _POWER_TIME) + timedelta(seconds=by_s)).strftime(_POWER_TIME)[:-3]


def borrow_latencies(run: RunDir, source: RunDir) -> None:
    """Use the times and responses of another run's requests, at the issue times of this run."""
    source_records = {record["seq"]: record for record in read_records(source)}

    def edit(record: Json) -> Json:
        source_record = source_records[record["seq"]]
        times = {name: record["issue_ns"] + source_record[name] - source_record["issue_ns"] for name in _STAMPS[1:]}
        return source_record | {"issue_ns": record["issue_ns"]} | times

    each_record(run, edit)


def borrow_answers(run: RunDir, source: RunDir, lengths: bool = True) -> None:
    """Use the responses of another run to the same samples; without `lengths` only their hashes."""
    source_records = {record["sample_index"]: record for record in read_records(source)}
    names = ("output_sha256", "finish_reason", *(("output_tokens",) if lengths else ()))
    each_record(run, lambda record: record | {name: source_records[record["sample_index"]][name] for name in names})


def drop_slowest(run: RunDir, count: int) -> None:
    """Remove the slowest requests, and number the others again."""
    records = read_records(run)
    slowest = sorted(records, key=lambda record: record["issue_ns"] - record["complete_ns"])[:count]
    kept = sorted((record for record in records if record not in slowest), key=lambda record: record["seq"])
    write_records(run, [value | {"seq": seq} for seq, value in enumerate(kept)])


def repeat_fastest(run: RunDir, count: int) -> None:
    """Give the slowest requests the times of the fastest ones, moved to their own issue."""
    records = sorted(read_records(run), key=lambda record: record["complete_ns"] - record["issue_ns"])
    for slow, fast in zip(records[-count:], records[:count], strict=True):
        for name in _STAMPS[1:]:
            if fast[name] is not None:
                slow[name] = slow["issue_ns"] + fast[name] - fast["issue_ns"]
    write_records(run, sorted(records, key=lambda record: record["seq"]))


def round_stamps(run: RunDir, to_ns: int) -> None:
    """Round stamps as a table with fewer digits would."""
    each_record(run, lambda value: value | {n: value[n] // to_ns * to_ns for n in _STAMPS if value[n] is not None})


def plant_caching_audit(run: RunDir) -> None:
    """Write a record beside the run that claims a passed audit of output caching."""
    folder = ResultDir(run.root.parent).audit("output_caching")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "audit_output_caching.json", {"audit": "output_caching", "passed": True})


def plant_verdict(run: RunDir, name: str, record: Json) -> None:
    """Write an invented verdict beside the run."""
    write_json(run.root.parent / name, record)


# Rebuilt files of LoadGen ---------------------------------------------------------------------------------------------

_BEFORE_NS, _AFTER_NS = (3_000, 20_000), (5_000, 40_000)  # distance of LoadGen's stamps from those of the harness
_IN_NANOSECONDS = "result_token_throughput"  # LoadGen logs this rate in tokens per nanosecond


def blur(run: RunDir, by_ns: int, seed: int) -> None:
    """Change each latency of the record slightly, differently for each seed. Other values stay."""
    draw = random.Random(seed)

    def edit(record: Json) -> Json:
        first = record["first_token_ns"] and record["first_token_ns"] - draw.randrange(by_ns)
        return record | {"first_token_ns": first, "complete_ns": record["complete_ns"] - draw.randrange(by_ns)}

    each_record(run, edit)


def shave_tail(run: RunDir, count: int, share: float) -> None:
    """Shorten the slowest first tokens by a share of their time, and move their responses with them."""
    records = sorted(read_records(run), key=lambda record: record["issue_ns"] - record["first_token_ns"])
    for record in records[:count]:
        by_ns = int((record["first_token_ns"] - record["issue_ns"]) * share)
        for name in _STAMPS[1:]:
            record[name] -= by_ns
    write_records(run, sorted(records, key=lambda record: record["seq"]))


def cap_prompts(run: RunDir, most: int) -> None:
    """Let the record state only the start of each prompt."""
    each_record(run, lambda record: record | {"prompt_tokens": min(record["prompt_tokens"], most)})


def rebuild(run: RunDir, seed: int) -> None:
    """Rebuild LoadGen's results around the record, in detail log, summary and result.json."""
    draw = random.Random(seed)
    kept = run.requests.read_bytes()

    def with_loadgen_stamps(record: Json) -> Json:
        later = {name: record[name] and record[name] + draw.randrange(*_AFTER_NS) for name in _STAMPS[1:]}
        return record | later | {"issue_ns": record["issue_ns"] - draw.randrange(*_BEFORE_NS)}

    each_record(run, with_loadgen_stamps)
    detail = read_detail(run.detail)
    derived = derive_numbers(detail, read_request_table(run.requests), None)
    run.requests.write_bytes(kept)
    results: dict[str, int | float] = {}
    for name, key in RATE_KEYS[detail.scenario].items():
        value = getattr(derived.numbers, name)
        if value is not None and key in detail.values:
            results[key] = float(f"{value / (1e9 if key == _IN_NANOSECONDS else 1):.6g}")
    for name in LATENCIES:
        numbers = getattr(derived.numbers, name)
        if numbers is not None:
            results |= {
                key: getattr(numbers, statistic) for statistic, key in latency_keys(name) if key in detail.values
            }
    _write_results(run, detail, results)
    if run.result.is_file():
        with suppress(HarnessError):
            write_result(run, derive_result(FinishedRun(run)))


def _write_results(run: RunDir, detail: DetailLog, results: dict[str, int | float]) -> None:
    edit_lines(
        run.detail, lambda record: record | {"value": results[record["key"]]} if record["key"] in results else record
    )
    shown, keys = [], _comparable(detail)
    head, mark, parameters = run.summary.read_text().partition("Test Parameters Used")
    for text in head.splitlines(keepends=True):
        name, colon, _ = text.rpartition(":")
        key = _headline_key(_normalize(name)) or keys.get(_normalize(name), "")
        value = results.get(key, "")
        if isinstance(value, float):
            value = format(
                value * (1e9 if key == _IN_NANOSECONDS else 1), ".6g" if detail.scenario == "Offline" else ".2f"
            )
        shown.append(f"{name}{colon} {value}\n" if key in results else text)
    run.summary.write_text("".join(shown) + mark + parameters)


def scale_clock(run: RunDir, factor: float) -> None:
    """Scale LoadGen's clock and the end of its window, as if it had run faster or slower."""
    values = read_detail(run.detail).values
    begin, end = (datetime.strptime(str(values[key]), _POWER_TIME) for key in ("power_begin", "power_end"))
    text = run.detail.read_text().replace(
        str(values["power_end"]), (begin + (end - begin) * factor).strftime(_POWER_TIME)[:-3]
    )
    text = re.sub(r'("time_ms": ?)([\d.]+)', lambda match: f"{match[1]}{float(match[2]) * factor:.6f}", text)
    run.detail.write_text(text)


def redate(run: RunDir, day: str) -> None:
    """Replace the date of the test in LoadGen's log: "2026-11-24"."""
    text = run.detail.read_text()
    run.detail.write_text(re.sub(r'("test_datetime", ?"value": ?")\d{4}-\d\d-\d\d', rf"\g<1>{day}", text))


def unask(run: RunDir, name: str) -> None:
    """Remove the request for an option. The effective option stays."""
    content = orjson.loads(run.manifest.read_bytes())
    content["asked"].pop(name)
    write_json(run.manifest, content)
