"""Each change of a file of a real run folder is found, by the rule on what was changed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance.endpoints.load import replayed_order
from compliance.endpoints.verdict import judge_folder
from runs.endpoints.folder import EVENTS, FILES, REPORT, SAMPLES, SNAPSHOT, SUMMARY
from runs.errors import ExitCode
from tests.support.endpoints_changes import (
    Change,
    Lines,
    at,
    both,
    double,
    in_config,
    in_events,
    in_json,
    in_map,
    in_text,
    later,
    lose,
    move,
    places,
    swap,
    times,
    update,
)

ISSUED, FIRST, COMPLETE = "sample.issued", "sample.recv_first", "sample.complete"
MS = 1_000_000
ORDER_SEED, SCHEDULE_SEED = (f"settings/runtime/{name}_random_seed" for name in ("dataloader", "scheduler"))
COUNT, RATE = "settings/runtime/n_samples_to_issue", "settings/load_pattern/target_qps"
CONCURRENCY, WARM_UP = "settings/load_pattern/target_concurrency", "settings/warmup"
VERDICT, TEXT = "audit/audit_output_caching_test.json", "audit/verify_OUTPUT_CACHING_TEST.txt"


def stretched(numerator: int, denominator: int) -> Change:
    """All times of the events, from the session's start."""

    def change(lines: Lines) -> None:
        start_ns = lines[0]["timestamp_ns"]
        for line in lines:
            line["timestamp_ns"] = start_ns + (line["timestamp_ns"] - start_ns) * numerator // denominator

    return in_events(change)


def in_time_with_the_9th(lines: Lines) -> None:
    done = [lines[place] for place in places(lines, COMPLETE)]
    done[4]["timestamp_ns"] = done[8]["timestamp_ns"] - 1


def slowest_left_out(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / EVENTS).read_text().splitlines()]
    issued, done = (
        {line["sample_uuid"]: line["timestamp_ns"] for line in lines if line["event_type"] == kind}
        for kind in (ISSUED, COMPLETE)
    )
    slowest = max(done, key=lambda uuid: done[uuid] - issued[uuid])
    in_events(lambda lines: [line for line in lines if line["sample_uuid"] != slowest])(folder)
    in_map(lambda indices: indices.pop(slowest))(folder)


def failed(lines: Lines) -> None:
    place = places(lines, COMPLETE)[3]
    lines.insert(place, lines[place] | {"event_type": "error.generic", "data": None})


def indices(new: Callable[[list[int]], list[int]]) -> Change:
    return in_map(lambda found: found.update(zip(list(found), new(list(found.values())), strict=True)))


def swapped(values: list[int]) -> list[int]:
    return [*values[:5], values[6], values[5], *values[7:]]


def rotated(phases: dict[str, dict[str, int]]) -> None:
    first, *rest = phases["performance"].items()
    phases["performance"] = dict([*rest, first])


def of_another_run(name: str) -> Change:
    return lambda folder: shutil.copy(folder.parent / "another" / name, folder / name)


def swapped_legs(folder: Path) -> None:
    reference, cached = folder / "audit" / "reference", folder / "audit" / "output_caching"
    reference.rename(folder / "x")
    cached.rename(reference)
    (folder / "x").rename(cached)


def reference_twice(folder: Path) -> None:
    shutil.rmtree(folder / "audit" / "output_caching")
    shutil.copytree(folder / "audit" / "reference", folder / "audit" / "output_caching")


def removed(name: str) -> Change:
    return lambda folder: shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()


def verdict(**fields: Any) -> Change:
    return in_json(VERDICT, lambda content: content.update(fields))


# What is changed in which folder, and the rule that finds it.
CHANGES: dict[str, tuple[str, Change, str]] = {
    # The load.
    "order seed": ("concurrency", in_config(ORDER_SEED, 43), "order"),
    "order seed, offline": ("offline", in_config(ORDER_SEED, 7), "order"),
    "indices swapped": ("poisson", indices(swapped), "order"),
    "another index": ("offline", indices(lambda found: [*found[:-1], found[-1] + 1]), "order"),
    "a larger data set": ("poisson", indices(lambda old: replayed_order(42, 25, len(old)).tolist()), "prompts"),
    "rows one after the other": ("offline", indices(lambda old: [place % 24 for place in range(len(old))]), "order"),
    "an index lost": ("concurrency", in_map(lambda indices: indices.popitem()), "order"),
    "another prompt": ("concurrency", update(ISSUED, 3, data=lambda old: [old[0], old[1] + " more"]), "prompts"),
    "more asked for": ("offline", in_config(COUNT, 61), "count"),
    "fewer asked for": ("concurrency", in_config(COUNT, 50), "count"),
    "a minimum duration": (
        "poisson",
        both(in_config("settings/runtime/min_duration_ms", 60_000), in_config(COUNT, None)),
        "count",
    ),
    "a query lost": ("concurrency", lose(ISSUED, 10), "count"),
    "the first query lost": ("poisson", lose(ISSUED, 0), "order"),
    "the last query lost": ("offline", lose(ISSUED, -1), "count"),
    "a completion lost": ("offline", lose(COMPLETE, 10), "drained"),
    "a completion lost, by concurrency": ("concurrency", lose(COMPLETE, 0), "concurrency"),
    "the last completion lost": ("poisson", lose(COMPLETE, -1), "drained"),
    "a completion lost of a dead server": ("server-died", lose(COMPLETE, 30), "drained"),
    "schedule seed": ("poisson", in_config(SCHEDULE_SEED, 43), "arrivals"),
    "another schedule seed": ("poisson", in_config(SCHEDULE_SEED, 1), "arrivals"),
    "a lower rate": ("poisson", in_config(RATE, 25.0), "arrivals"),
    "a much lower rate": ("poisson", in_config(RATE, 3.0), "arrivals"),
    "a query moved forward": ("poisson", later(ISSUED, 40, -20 * MS), "arrivals"),
    "two times swapped": ("poisson", swap(ISSUED, 20, 30, "timestamp_ns"), "arrivals"),
    "queries late": ("poisson", stretched(4, 3), "late"),
    "a higher rate": ("poisson", in_config(RATE, 40.0), "late"),
    "less concurrency": ("concurrency", in_config(CONCURRENCY, 7), "concurrency"),
    "half the concurrency": ("warm-up", in_config(CONCURRENCY, 4), "concurrency"),
    "more concurrency": ("concurrency", in_config(CONCURRENCY, 9), "concurrency-kept"),
    "a later completion": ("concurrency", in_events(in_time_with_the_9th), "concurrency"),
    "a query before its place": ("concurrency", later(ISSUED, 20, -30 * MS), "concurrency"),
    "no warm-up": ("warm-up", in_config(f"{WARM_UP}/enabled", False), "warm-up"),
    "more warm-up": ("warm-up", in_config(f"{WARM_UP}/n_requests", 7), "warm-up"),
    "warm-up of all": ("concurrency", in_config(f"{WARM_UP}/enabled", True), "warm-up"),
    # The audit.
    "runs swapped": ("audit-honest", swapped_legs, "order"),
    "runs swapped, by their times": ("audit-honest", swapped_legs, "audit-same"),
    "another server before the audit": (
        "audit-honest",
        in_config("endpoint_config/endpoints", ["http://127.0.0.1:1"]),
        "audit-same",
    ),
    "the reference twice": ("audit-honest", reference_twice, "order"),
    "verdict turned": ("audit-honest", verdict(passed=True), "audit-numbers"),
    "rates changed": ("audit-honest", verdict(audit_qps=90.0, passed=True), "audit-numbers"),
    "threshold changed": ("audit-honest", verdict(threshold=0.9), "audit-numbers"),
    "answers changed": ("audit-honest", verdict(audit_completed=20), "audit-numbers"),
    "text turned": ("audit-honest", in_text(TEXT, "False", "True"), "audit-numbers"),
    "another sample asked for": ("audit-honest", in_config("audit/sample_index", 3), "order"),
    "more samples asked for": ("audit-honest", in_config("audit/samples", 30), "count"),
    "another sampling": (
        "audit-honest",
        in_config("model_params/temperature", 1.0, "audit/reference"),
        "audit-same",
    ),
    "no verdict": ("audit-honest", removed(VERDICT), "audit"),
    "no reference": ("audit-honest", removed("audit/reference"), "audit"),
    "no audit": ("audit-honest", removed("audit"), "audit"),
    # The events and the map.
    "an issue is lost": ("poisson", lose(ISSUED, 5), "events"),
    "a first token is lost": ("poisson", lose(FIRST, 5), "summary"),
    "the end is lost": ("poisson", lose("session.ended", 0), "events"),
    "the start of measuring is lost": ("poisson", lose("session.start_performance_tracking", 0), "events"),
    "the end of measuring is lost": ("poisson", lose("session.stop_performance_tracking", 0), "events"),
    "the second half is lost": ("poisson", in_events(lambda lines: lines[: len(lines) // 2]), "events"),
    "an issue is doubled": ("poisson", double(ISSUED, 5), "events"),
    "a first token is doubled": ("poisson", double(FIRST, 5), "events"),
    "a completion is doubled": ("poisson", double(COMPLETE, 5), "events"),
    "a completion is moved back": ("poisson", move(COMPLETE, 30, -20), "events"),
    "an issue is moved back": ("poisson", move(ISSUED, 30, -5), "events"),
    "a completion is moved on": ("poisson", move(COMPLETE, 30, 20), "events"),
    "a completion is later": ("poisson", later(COMPLETE, 20, 1_000), "summary"),
    "a completion is earlier": ("poisson", later(COMPLETE, 20, -1_000), "summary"),
    "a first token is earlier": ("poisson", later(FIRST, 20, -1), "summary"),
    "an issue is later": ("poisson", later(ISSUED, 20, 1), "summary"),
    "two completions are swapped": ("poisson", swap(COMPLETE, 3, 4, "sample_uuid"), "summary"),
    "the slowest sample is left out": ("poisson", slowest_left_out, "summary"),
    "an answer is gone": ("poisson", update(COMPLETE, 3, data=None), "events"),
    "an answer ends otherwise": ("poisson", update(COMPLETE, 3, finish_reason="length"), "summary"),
    "an answer failed": ("poisson", in_events(failed), "summary"),
    "a sample is not in the map": ("poisson", in_map(lambda indices: indices.popitem()), "samples"),
    "the map has another sample": ("poisson", in_map(lambda indices: indices.update(other=1)), "samples"),
    "the map has another order": ("poisson", in_json(SAMPLES, rotated), "samples"),
    "the phase has another name": (
        "poisson",
        in_json(SAMPLES, lambda phases: phases.update(accuracy=phases.pop("performance"))),
        "samples",
    ),
    # The session's length by the count of snapshots.
    "the snapshot is too early": (
        "poisson",
        in_json(SNAPSHOT, at("timestamp_ns", lambda old: old - 1_000 * MS)),
        "clock",
    ),
    "the snapshot is much later": (
        "poisson",
        in_json(SNAPSHOT, at("timestamp_ns", lambda old: old + 60_000 * MS)),
        "clock",
    ),
    "more snapshots than the session has time for": ("poisson", in_json(SNAPSHOT, at("counter", 11)), "clock"),
    # The reports.
    "more completed": ("poisson", in_json(SUMMARY, at("n_samples_completed", 120)), "summary"),
    "a shorter duration": ("poisson", in_json(SUMMARY, at("duration_ns", times(0.99))), "summary"),
    "a shorter window": (
        "poisson",
        in_json(SUMMARY, at("legacy_loadgen_window_duration_ns", times(0.99))),
        "summary",
    ),
    "a higher QPS": ("poisson", in_json(SUMMARY, at("qps", times(1.001))), "summary"),
    "a higher QPS everywhere": (
        "poisson",
        both(in_json(SUMMARY, at("qps", times(2.0))), in_text(REPORT, "QPS: 35.48", "QPS: 70.96")),
        "summary",
    ),
    "a higher TPS": ("poisson", in_json(SUMMARY, at("tps", times(1.001))), "summary"),
    "a lower p99 TTFT": ("poisson", in_json(SUMMARY, at("ttft/percentiles/99.0", times(0.999))), "summary"),
    "a lower mean latency": ("poisson", in_json(SUMMARY, at("latency/avg", times(0.999))), "summary"),
    "a lower deviation": ("poisson", in_json(SUMMARY, at("latency/std_dev", times(0.999))), "summary"),
    "a deviation that is none": ("poisson", in_json(SUMMARY, at("latency/std_dev", None)), "summary"),
    "a lower estimate": (
        "poisson",
        in_json(SUMMARY, at("ttft/early_stopping_percentiles/50.0", times(0.999))),
        "summary",
    ),
    "an estimate is left out": (
        "poisson",
        in_json(SUMMARY, lambda one: one["ttft"].pop("early_stopping_percentiles")),
        "summary",
    ),
    "another histogram": ("poisson", in_json(SUMMARY, at("latency/histogram/counts/0", 40)), "summary"),
    "a run configuration of another form": ("poisson", in_json(SUMMARY, at("run_config/warmup", None)), "summary"),
    "more tokens": ("poisson", in_json(SUMMARY, at("output_sequence_lengths/total", times(1.2))), "summary"),
    "a lower TPOT": ("poisson", in_json(SUMMARY, at("tpot/percentiles/99.0", times(0.9))), "summary"),
    "another seed in the summary": (
        "poisson",
        in_json(SUMMARY, at("run_config/dataloader_random_seed", 7)),
        "summary",
    ),
    "other finish reasons": ("poisson", in_json(SUMMARY, at("finish_reason_counts/stop", 1)), "summary"),
    "the run did not end": ("poisson", in_json(SUMMARY, at("state", "interrupted")), "finished"),
    "a counter of the snapshot": ("poisson", in_json(SNAPSHOT, at("metrics/3/value", 7)), "snapshot"),
    "a series of the snapshot": (
        "poisson",
        in_json(SNAPSHOT, at("metrics/sample_latency_ns/percentiles/90.0", times(0.9))),
        "snapshot",
    ),
    "squares of the snapshot": ("poisson", in_json(SNAPSHOT, at("metrics/ttft_ns/sum_sq", times(1.001))), "snapshot"),
    "squares beyond 64 bits": ("poisson", in_json(SNAPSHOT, at("metrics/ttft_ns/sum_sq", times(2**50))), "snapshot"),
    "tokens of the snapshot": ("poisson", in_json(SNAPSHOT, at("metrics/osl/total", times(1.2))), "summary"),
    "more tokens than bytes": (
        "poisson",
        both(
            in_json(SNAPSHOT, at("metrics/osl/total", times(1.2))),
            in_json(SUMMARY, at("output_sequence_lengths/total", times(1.2))),
        ),
        "snapshot",
    ),
    "a metric of the snapshot is lost": ("poisson", in_json(SNAPSHOT, lambda one: one["metrics"].pop()), "summary"),
    "the run of the snapshot did not end": ("poisson", in_json(SNAPSHOT, at("state", "interrupted")), "summary"),
    "the report has another QPS": ("poisson", in_text(REPORT, "QPS: ", "QPS: 1"), "report"),
    "the report has another p99": ("poisson", in_text(REPORT, "    99.0: ", "    99.0: 1"), "report"),
    "the report has another bucket": ("poisson", in_text(REPORT, "### 1", "### 2"), "report"),
    "the report has another count": (
        "poisson",
        in_text(REPORT, "Total samples failed: 0", "Total samples failed: 3"),
        "report",
    ),
    "the report lacks a line": ("poisson", in_text(REPORT, "  Min: ", "  Least: "), "report"),
    "a report of another run": ("poisson", of_another_run(REPORT), "report"),
    "a summary of another run": ("poisson", of_another_run(SUMMARY), "summary"),
    "events of another run": ("poisson", of_another_run(EVENTS), "samples"),
    "a map of another run": ("poisson", of_another_run(SAMPLES), "samples"),
    "a snapshot of another run": ("poisson", of_another_run(SNAPSHOT), "snapshot"),
    **{f"no {name}": ("poisson", removed(name), "files") for name in FILES},
}
NO_ERROR = ("late", "concurrency-kept")  # rules that are worth a warning


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found(change: str, recorded: Path, copy_of: Callable[[str], Path], tmp_path: Path) -> None:
    name, edit, rule = CHANGES[change]
    shutil.copytree(recorded / "concurrency", tmp_path / "another")
    edit(folder := copy_of(name))
    found = judge_folder(folder)
    assert f"endpoints-{rule}" in {one.rule for one in found.of("error", "warning")}
    assert (found.exit_code() == ExitCode.OK) == (found.outcome in ("PASS", "FLAG"))
    assert json.loads(json.dumps(found.record()))["reasons"] == found.reasons
