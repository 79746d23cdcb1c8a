"""Faults of somebody who knows what is compared and makes LoadGen's own files anew around a record (see faults.py)."""

import random
import re
from datetime import datetime
from typing import Any

import orjson

from runs.files import write_json
from runs.loadgen.detail_log import PREFIX, DetailLog, read_detail
from runs.loadgen.summary_log import _comparable, _headline_key, _normalise
from runs.numbers.numbers import LATENCIES, RATE_KEYS, latency_keys
from runs.numbers.rederive import derive
from runs.record.layout import RunDir
from runs.record.requests_log import read_requests
from tests.signoff.forge.record_faults import each_record, read_records, write_records
from tests.support.editing import loadgen_line

Json = dict[str, Any]
_STAMPS = ("issue_ns", "first_token_ns", "complete_ns")
_POWER_TIME = "%m-%d-%Y %H:%M:%S.%f"
_BEFORE_NS, _AFTER_NS = (3_000, 20_000), (5_000, 40_000)  # how far LoadGen's stamps lie outside ours
_IN_NANOSECONDS = "result_token_throughput"  # LoadGen logs this rate in tokens per nanosecond


def blur(run: RunDir, by_ns: int, seed: int) -> None:
    """Every latency of the record a little different, in its own way for each seed; nothing else moves."""
    draw = random.Random(seed)

    def edit(one: Json) -> Json:
        first = one["first_token_ns"] and one["first_token_ns"] - draw.randrange(by_ns)
        return one | {"first_token_ns": first, "complete_ns": one["complete_ns"] - draw.randrange(by_ns)}

    each_record(run, edit)


def shave_tail(run: RunDir, count: int, share: float) -> None:
    """The slowest first tokens come earlier by a share of their time, and their answers with them."""
    records = sorted(read_records(run), key=lambda one: one["issue_ns"] - one["first_token_ns"])
    for one in records[:count]:
        by_ns = int((one["first_token_ns"] - one["issue_ns"]) * share)
        for name in _STAMPS[1:]:
            one[name] -= by_ns
    write_records(run, sorted(records, key=lambda one: one["seq"]))


def cap_prompts(run: RunDir, most: int) -> None:
    """Only the start of each prompt was given to the model."""
    each_record(run, lambda one: one | {"prompt_tokens": min(one["prompt_tokens"], most)})


def rebuild(run: RunDir, seed: int) -> None:
    """LoadGen's results, in detail log and summary, as they would be around the record."""
    draw = random.Random(seed)
    kept = run.requests.read_bytes()

    def outside(one: Json) -> Json:
        later = {name: one[name] and one[name] + draw.randrange(*_AFTER_NS) for name in _STAMPS[1:]}
        return one | later | {"issue_ns": one["issue_ns"] - draw.randrange(*_BEFORE_NS)}

    each_record(run, outside)
    detail = read_detail(run.detail)
    derived = derive(detail, read_requests(run.requests), None)
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


def _write_results(run: RunDir, detail: DetailLog, results: dict[str, int | float]) -> None:
    lines = []
    for line in run.detail.read_bytes().splitlines():
        record = orjson.loads(line[len(PREFIX) :])
        key = record["key"]
        lines.append(loadgen_line(record | {"value": results[key]}) if key in results else line + b"\n")
    run.detail.write_bytes(b"".join(lines))
    shown, keys = [], _comparable(detail)
    head, mark, parameters = run.summary.read_text().partition("Test Parameters Used")
    for text in head.splitlines(keepends=True):
        name, colon, _ = text.rpartition(":")
        key = _headline_key(_normalise(name)) or keys.get(_normalise(name), "")
        value = results.get(key, "")
        if isinstance(value, float):
            value = format(
                value * (1e9 if key == _IN_NANOSECONDS else 1), ".6g" if detail.scenario == "Offline" else ".2f"
            )
        shown.append(f"{name}{colon} {value}\n" if key in results else text)
    run.summary.write_text("".join(shown) + mark + parameters)


def scale_clock(run: RunDir, factor: float) -> None:
    """LoadGen's own clock, and the end of its window, as if it had run faster or slower."""
    values = read_detail(run.detail).values
    begin, end = (datetime.strptime(str(values[key]), _POWER_TIME) for key in ("power_begin", "power_end"))
    text = run.detail.read_text().replace(
        str(values["power_end"]), (begin + (end - begin) * factor).strftime(_POWER_TIME)[:-3]
    )
    text = re.sub(r'("time_ms": ?)([\d.]+)', lambda found: f"{found[1]}{float(found[2]) * factor:.6f}", text)
    run.detail.write_text(text)


def redate(run: RunDir, day: str) -> None:
    """Another day in LoadGen's own date of the test: "2026-11-24"."""
    text = run.detail.read_text()
    run.detail.write_text(re.sub(r'("test_datetime", ?"value": ?")\d{4}-\d\d-\d\d', rf"\g<1>{day}", text))


def unask(run: RunDir, name: str) -> None:
    """The user did not ask for an option; what the engine ran with stays."""
    content = orjson.loads(run.manifest.read_bytes())
    content["asked"].pop(name)
    write_json(run.manifest, content)
