"""Changes of files in a real run directory: each change violates the rule on the changed value."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compliance.judge.record import record
from compliance.mlperf_endpoints.load import replayed_order
from runs.errors import ExitCode
from runs.mlperf_endpoints.layout import EVENTS, FILES, REPORT, SAMPLES, SNAPSHOT, SUMMARY
from tests.support.mlperf_endpoints.endpoints_client import write_data
from tests.support.mlperf_endpoints.folder_changes import (
    Change,
    Lines,
    combined,
    double,
    in_config,
    in_events,
    in_json,
    in_map,
    in_text,
    lose,
    move,
    places,
    set_at_path,
    shift_event,
    swap,
    times,
    update,
)
from tests.support.mlperf_endpoints.verdicts import judge_folder

ISSUED, FIRST, COMPLETE = "sample.issued", "sample.recv_first", "sample.complete"
MS = 1_000_000
ORDER_SEED, SCHEDULE_SEED = (f"settings/runtime/{name}_random_seed" for name in ("dataloader", "scheduler"))
COUNT, RATE = "settings/runtime/n_samples_to_issue", "settings/load_pattern/target_qps"
CONCURRENCY, WARM_UP = "settings/load_pattern/target_concurrency", "settings/warmup"
RUNTIME, SCORES = "settings/runtime", "accuracy/accuracy_results.json"
STOP, LENGTH, CALLS = "stop", "length", "tool_calls"
VERDICT, TEXT = "audit/audit_output_caching_test.json", "audit/verify_OUTPUT_CACHING_TEST.txt"


def stretched(numerator: int, denominator: int) -> Change:
    """Multiply all times of the events, counted from the start of the session."""

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


def move_sample_to_failed(lines: Lines) -> None:
    place = places(lines, COMPLETE)[3]
    lines.insert(place, lines[place] | {"event_type": "error.generic", "data": None})


def indices(new: Callable[[list[int]], list[int]]) -> Change:
    return in_map(lambda value: value.update(zip(list(value), new(list(value.values())), strict=True)))


def swapped(values: list[int]) -> list[int]:
    return [*values[:5], values[6], values[5], *values[7:]]


def rotated(phases: dict[str, dict[str, int]]) -> None:
    first, *rest = phases["performance"].items()
    phases["performance"] = dict([*rest, first])


def of_another_run(name: str) -> Change:
    return lambda folder: shutil.copy(folder.parent / "another" / name, folder / name)


def swapped_runs(folder: Path) -> None:
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


def longer_responses(lines: Lines) -> None:
    for place in places(lines, COMPLETE):
        lines[place]["data"][1] += " and some words more"


def update_each(kind: str, **fields: Callable[[Any], Any]) -> Change:
    """Update the fields of all events of a kind."""

    def change(lines: Lines) -> None:
        for place in places(lines, kind):
            lines[place] |= {name: value(lines[place][name]) for name, value in fields.items()}

    return in_events(change)


def one_response(data: list[Any]) -> list[Any]:
    return [data[0], ["The ", "article " + " ".join(f"tells-{letter}" for letter in "abcdefghijklmnop")], *data[2:]]


def counted_responses(lines: Lines) -> None:
    for number, place in enumerate(places(lines, COMPLETE)):
        lines[place]["data"][1] = ["The ", f"article tells of a town, as number {number} does."]


def prompt_of_another(folder: Path) -> None:
    """Give one index of the dataset the prompt of another index in each of its requests."""
    index = json.loads((folder / SAMPLES).read_text())["performance"]

    def change(lines: Lines) -> None:
        issued = {index[lines[place]["sample_uuid"]]: lines[place] for place in places(lines, ISSUED)}
        for place in places(lines, ISSUED):
            if index[lines[place]["sample_uuid"]] == 3:
                lines[place]["data"] = issued[5]["data"]

    in_events(change)(folder)


def first_tokens(time_ns: Callable[[int, int, bool], int]) -> Change:
    """Change the times of first tokens by a function of issue, completion, and whether the prompt was sent before."""

    def change(lines: Lines) -> None:
        issued, done = (
            {line["sample_uuid"]: line for line in lines if line["event_type"] == kind} for kind in (ISSUED, COMPLETE)
        )
        prompts: set[str] = set()
        for line in (lines[place] for place in places(lines, FIRST)):
            prompt = issued[uuid := line["sample_uuid"]]["data"][1]
            times = (value[uuid]["timestamp_ns"] for value in (issued, done))
            line["timestamp_ns"] = time_ns(*times, prompt in prompts)
            prompts.add(prompt)
        lines.sort(key=lambda line: line["timestamp_ns"])

    return in_events(change)


def in_scores(**fields: Any) -> Change:
    return in_json(SCORES, lambda content: content["accuracy_scores"][-1].update(fields))


def in_reports(before: str, after: str) -> Change:
    """Move the counts of a finish reason to another reason in both reports."""

    def in_snapshot(content: Any) -> None:
        values = {metric["name"]: metric for metric in content["metrics"]}
        old, new = (values[f"tracked_finish_reason_{name}"] for name in (before, after))
        old["value"], new["value"] = new["value"], old["value"]

    def in_summary(content: Any) -> None:
        counts = content["finish_reason_counts"]
        counts[before], counts[after] = counts[after], counts[before]

    return combined(in_json(SNAPSHOT, in_snapshot), in_json(SUMMARY, in_summary))


def in_summary(path: str, value: Any) -> Change:
    return in_json(SUMMARY, set_at_path(path, value))


def in_snapshot(path: str, value: Any) -> Change:
    return in_json(SNAPSHOT, set_at_path(path, value))


# Directory → change → rules that the change violates.
CHANGES: dict[str, dict[str, tuple[Change, str]]] = {
    "concurrency": {
        "order seed": (in_config(ORDER_SEED, 43), "order"),
        "an index lost": (in_map(lambda indices: indices.popitem()), "order"),
        "another prompt": (update(ISSUED, 3, data=lambda old: [old[0], old[1] + " more"]), "prompts"),
        "fewer asked for": (in_config(COUNT, 50), "count"),
        "a query lost": (lose(ISSUED, 10), "count"),
        "measuring ends later": (
            combined(*(shift_event(f"session.{end}", 0, 2_000 * MS) for end in ("stop_performance_tracking", "ended"))),
            "drained",
        ),
        "a completion lost, by concurrency": (lose(COMPLETE, 0), "concurrency"),
        "less concurrency": (in_config(CONCURRENCY, 7), "concurrency"),
        "much more concurrency": (in_config(CONCURRENCY, 1_000), "concurrency-kept"),
        "one response with a counter": (in_events(counted_responses), "shared-responses"),
        "more concurrency": (in_config(CONCURRENCY, 9), "concurrency-kept"),
        "a later completion": (in_events(in_time_with_the_9th), "concurrency"),
        "a query before its place": (shift_event(ISSUED, 20, -30 * MS), "concurrency"),
        "first tokens at one time": (first_tokens(lambda issued, _, __: issued + 5 * MS), "uniform-ttft"),
        "repeated prompts at once": (
            first_tokens(lambda issued, done, again: done - 1_000 if again else issued + 5 * MS),
            "repeats",
        ),
        "a third of the TPOT": (
            combined(
                in_summary("tpot/median", times(0.3)), in_snapshot("metrics/tpot_ns/percentiles/50.0", times(0.3))
            ),
            "tpot",
        ),
        "warm-up of all": (in_config(f"{WARM_UP}/enabled", True), "warm-up"),
    },
    "poisson": {
        "indices swapped": (indices(swapped), "order"),
        "a larger data set": (indices(lambda old: replayed_order(42, 25, len(old)).tolist()), "prompts"),
        "a minimum duration": (
            combined(in_config("settings/runtime/min_duration_ms", 60_000), in_config(COUNT, None)),
            "count",
        ),
        "the first query lost": (lose(ISSUED, 0), "order"),
        "the last completion lost": (lose(COMPLETE, -1), "drained"),
        "schedule seed": (in_config(SCHEDULE_SEED, 43), "arrivals"),
        "times that are six times as long": (
            combined(stretched(6, 1), in_snapshot("timestamp_ns", lambda old: old + 10_000 * MS)),
            "clock",
        ),
        "a lower rate": (in_config(RATE, 25.0), "arrivals"),
        "a much lower rate": (in_config(RATE, 3.0), "arrivals"),
        "a query moved forward": (shift_event(ISSUED, 40, -20 * MS), "arrivals"),
        "two times swapped": (swap(ISSUED, 20, 30, "timestamp_ns"), "arrivals"),
        "queries late": (stretched(4, 3), "late"),
        "a higher rate": (in_config(RATE, 40.0), "late"),
        "an issue is lost": (lose(ISSUED, 5), "events"),
        "a first token is lost": (lose(FIRST, 5), "summary"),
        "the end is lost": (lose("session.ended", 0), "events"),
        "the start of measuring is lost": (lose("session.start_performance_tracking", 0), "events"),
        "the end of measuring is lost": (lose("session.stop_performance_tracking", 0), "events"),
        "the second half is lost": (in_events(lambda lines: lines[: len(lines) // 2]), "events"),
        "an issue is doubled": (double(ISSUED, 5), "events"),
        "a first token is doubled": (double(FIRST, 5), "events"),
        "a completion is doubled": (double(COMPLETE, 5), "events"),
        "a completion is moved back": (move(COMPLETE, 30, -20), "events"),
        "an issue is moved back": (move(ISSUED, 30, -5), "events"),
        "a completion is moved on": (move(COMPLETE, 30, 20), "events"),
        "a completion is later": (shift_event(COMPLETE, 20, 1_000), "summary"),
        "a completion is earlier": (shift_event(COMPLETE, 20, -1_000), "summary"),
        "a first token is earlier": (shift_event(FIRST, 20, -1), "summary"),
        "an issue is later": (shift_event(ISSUED, 20, 1), "summary"),
        "two completions are swapped": (swap(COMPLETE, 3, 4, "sample_uuid"), "summary"),
        "the slowest sample is left out": (slowest_left_out, "summary"),
        "an answer is gone": (update(COMPLETE, 3, data=None), "events"),
        "an answer ends otherwise": (update(COMPLETE, 3, finish_reason="length"), "summary"),
        "an answer failed": (in_events(move_sample_to_failed), "summary"),
        "a sample is not in the map": (in_map(lambda indices: indices.popitem()), "samples"),
        "the map has another sample": (in_map(lambda indices: indices.update(other=1)), "samples"),
        "the map has another order": (in_json(SAMPLES, rotated), "samples"),
        "the phase has another name": (
            in_json(SAMPLES, lambda phases: phases.update(accuracy=phases.pop("performance"))),
            "samples",
        ),
        "the snapshot is too early": (in_snapshot("timestamp_ns", lambda old: old - 1_000 * MS), "clock"),
        "more completed": (in_summary("n_samples_completed", 120), "summary"),
        "a shorter duration": (in_summary("duration_ns", times(0.99)), "summary"),
        "a shorter window": (in_summary("legacy_loadgen_window_duration_ns", times(0.99)), "summary"),
        "a higher QPS": (in_summary("qps", times(1.001)), "summary"),
        "a higher QPS everywhere": (
            combined(in_summary("qps", times(2.0)), in_text(REPORT, "QPS: 35.48", "QPS: 70.96")),
            "summary",
        ),
        "a higher TPS": (in_summary("tps", times(1.001)), "summary"),
        "a lower p99 TTFT": (in_summary("ttft/percentiles/99.0", times(0.999)), "summary"),
        "a lower mean latency": (in_summary("latency/avg", times(0.999)), "summary"),
        "a lower deviation": (in_summary("latency/std_dev", times(0.999)), "summary"),
        "a deviation that is none": (in_summary("latency/std_dev", None), "summary"),
        "a lower estimate": (in_summary("ttft/early_stopping_percentiles/50.0", times(0.999)), "summary"),
        "an estimate is left out": (
            in_json(SUMMARY, lambda record: record["ttft"].pop("early_stopping_percentiles")),
            "summary",
        ),
        "another histogram": (in_summary("latency/histogram/counts/0", 40), "summary"),
        "a run configuration of another form": (in_summary("run_config/warmup", None), "summary"),
        "more tokens": (in_summary("output_sequence_lengths/total", times(1.2)), "summary"),
        "a lower TPOT": (in_summary("tpot/percentiles/99.0", times(0.9)), "summary"),
        "another seed in the summary": (in_summary("run_config/dataloader_random_seed", 7), "summary"),
        "other finish reasons": (in_summary("finish_reason_counts/stop", 1), "summary"),
        "the run did not end": (in_summary("state", "interrupted"), "finished"),
        "no finish reasons in the summary": (
            in_json(SUMMARY, lambda value: value.pop("finish_reason_counts")),
            "summary",
        ),
        "no configuration in the summary": (in_summary("run_config", {}), "summary"),
        "more input tokens than bytes": (
            combined(
                in_snapshot("metrics/isl/percentiles/50.0", times(1.5)), in_summary("input_sequence_lengths/median", 1)
            ),
            "snapshot",
        ),
        "a counter of the snapshot": (in_snapshot("metrics/3/value", 7), "snapshot"),
        "a series of the snapshot": (in_snapshot("metrics/sample_latency_ns/percentiles/90.0", times(0.9)), "snapshot"),
        "squares of the snapshot": (in_snapshot("metrics/ttft_ns/sum_sq", times(1.001)), "snapshot"),
        "squares beyond 64 bits": (in_snapshot("metrics/ttft_ns/sum_sq", times(2**50)), "snapshot"),
        "tokens of the snapshot": (in_snapshot("metrics/osl/total", times(1.2)), "summary"),
        "more tokens than bytes": (
            combined(
                in_snapshot("metrics/osl/total", times(1.2)), in_summary("output_sequence_lengths/total", times(1.2))
            ),
            "snapshot",
        ),
        "a metric of the snapshot is lost": (in_json(SNAPSHOT, lambda record: record["metrics"].pop()), "summary"),
        "the run of the snapshot did not end": (in_snapshot("state", "interrupted"), "summary"),
        "the report has another QPS": (in_text(REPORT, "QPS: ", "QPS: 1"), "report"),
        "the report has another p99": (in_text(REPORT, "    99.0: ", "    99.0: 1"), "report"),
        "the report has another bucket": (in_text(REPORT, "### 1", "### 2"), "report"),
        "the report has another count": (
            in_text(REPORT, "Total samples failed: 0", "Total samples failed: 3"),
            "report",
        ),
        "the report lacks a line": (in_text(REPORT, "  Min: ", "  Least: "), "report"),
        "a report of another run": (of_another_run(REPORT), "report"),
        "a summary of another run": (of_another_run(SUMMARY), "summary"),
        "events of another run": (of_another_run(EVENTS), "samples"),
        "a map of another run": (of_another_run(SAMPLES), "samples"),
        "a snapshot of another run": (of_another_run(SNAPSHOT), "snapshot"),
        **{f"no {name}": (removed(name), "files") for name in FILES},
    },
    "offline": {
        "another index": (indices(lambda value: [*value[:-1], value[-1] + 1]), "order"),
        "rows one after the other": (indices(lambda old: [place % 24 for place in range(len(old))]), "order"),
        "more asked for": (in_config(COUNT, 61), "count"),
        "the last query lost": (lose(ISSUED, -1), "count"),
        "a completion lost": (lose(COMPLETE, 10), "drained"),
    },
    "server-died": {
        "a completion lost of a dead server": (lose(COMPLETE, 30), "drained"),
    },
    "warm-up": {
        "no warm-up": (in_config(f"{WARM_UP}/enabled", False), "warm-up"),
        "more warm-up": (in_config(f"{WARM_UP}/n_requests", 7), "warm-up"),
    },
    "audit-honest": {
        "runs swapped": (swapped_runs, "order audit-same"),
        "another server before the audit": (
            in_config("endpoint_config/endpoints", ["http://127.0.0.1:1"]),
            "audit-same",
        ),
        "the reference twice": (reference_twice, "order"),
        "verdict turned": (verdict(passed=True), "audit-numbers"),
        "rates changed": (verdict(audit_qps=90.0, passed=True), "audit-numbers"),
        "threshold changed": (verdict(threshold=0.9), "audit-numbers"),
        "answers changed": (verdict(audit_completed=20), "audit-numbers"),
        "text turned": (in_text(TEXT, "False", "True"), "audit-numbers"),
        "another sample asked for": (in_config("audit/sample_index", 3), "order"),
        "more samples asked for": (in_config("audit/samples", 30), "count"),
        "another sampling": (in_config("model_params/temperature", 1.0, "audit/reference"), "audit-same"),
        "no verdict": (removed(VERDICT), "audit"),
        "no reference": (removed("audit/reference"), "audit"),
        "no audit": (removed("audit"), "audit"),
    },
}
# Directory → change → rules of severity warning that the change violates.
WARNED: dict[str, dict[str, tuple[Change, str]]] = {
    "concurrency": {
        "an offline run": (in_config("type", "offline"), "settings"),
        "a limit below the minimum": (
            combined(in_config(f"{RUNTIME}/min_duration_ms", 9_000), in_config(f"{RUNTIME}/max_duration_ms", 8_000)),
            "settings",
        ),
        "more servers than workers": (in_config("endpoint_config/endpoints", ["http://a:1", "http://b:1"]), "settings"),
        "token ids asked for": (in_config("endpoint_config/api_type", "sglang"), "settings"),
        "a minimum of tokens": (in_config("model_params/min_new_tokens", 2), "settings"),
        "no streaming": (in_config("model_params/streaming", "off"), "streaming"),
        "all pieces": (in_config("settings/client/stream_all_chunks", True), "streaming"),
        "a maximum duration": (in_config(f"{RUNTIME}/max_duration_ms", 100), "max-duration"),
        "fewer tokens": (in_config("model_params/max_new_tokens", 64), "output-limit"),
        "a larger dataset": (in_config("datasets/0/samples", 13_368), "dataset-size"),
        "more workers": (in_config("settings/client/num_workers", 4), "workers"),
        "another worker": (update_each(COMPLETE, worker_id=lambda _: 1), "workers"),
        "one response": (update_each(COMPLETE, data=one_response), "shared-responses"),
        "two responses swapped": (swap(COMPLETE, 3, 4, "data"), "swapped-responses"),
        "the prompt of another sample": (prompt_of_another, "shared-prompts"),
        "all responses end by tool calls": (
            combined(update_each(COMPLETE, finish_reason=lambda _: "tool_calls"), in_reports(STOP, CALLS)),
            "tool-calls",
        ),
        "all responses end at the limit": (
            combined(update_each(COMPLETE, finish_reason=lambda _: "length"), in_reports(STOP, LENGTH)),
            "output-limit",
        ),
        "longer responses": (
            update_each(COMPLETE, data=lambda old: [old[0], [*old[1], 20 * old[1][1]], *old[2:]]),
            "token-bytes",
        ),
    },
    "poisson": {
        "the snapshot is much later": (in_snapshot("timestamp_ns", lambda old: old + 60_000 * MS), "clock"),
        "more snapshots than the session has time for": (in_snapshot("counter", 11), "clock"),
        "fewer snapshots": (in_snapshot("counter", 1), "clock"),
    },
    "offline": {"an early end of waiting": (in_config("settings/drain/performance_timeout_s", 0.01), "drain")},
    "accuracy": {
        "another count": (in_scores(total_samples=23), "accuracy-counts accuracy-report"),
        "another score": (in_scores(score=0.5), "accuracy-report"),
        "another dataset": (in_scores(dataset_name="other"), "accuracy-files"),
        "no scores": (removed(SCORES), "accuracy-files"),
        "another phase": (in_config("datasets/1/name", "other"), "phases accuracy-files"),
    },
    "audit-honest": {"longer answers before the audit": (in_events(longer_responses), "audit-lengths")},
}

ALL = {name: CHANGES.get(name, {}) | WARNED.get(name, {}) for name in (*CHANGES, "accuracy")}


@pytest.mark.parametrize(("name", "change"), [(name, change) for name in ALL for change in ALL[name]])
def test_each_changed_file_violates_its_rules(
    name: str, change: str, recorded: Path, copy_of: Callable[[str], Path], tmp_path: Path
) -> None:
    edit, rules = ALL[name][change]
    shutil.copytree(recorded / "concurrency", tmp_path / "another")
    edit(folder := copy_of(name))
    verdict = judge_folder(folder)
    assert {f"endpoints-{rule}" for rule in rules.split()} <= {
        finding.rule for finding in verdict.of("error", "warning")
    }
    assert (verdict.exit_code() != ExitCode.OK) == (change in CHANGES.get(name, ()))
    assert json.loads(json.dumps(record(verdict)))["reasons"] == verdict.reasons


@pytest.mark.parametrize(
    ("edit", "rule"),
    [
        (lambda rows: rows, ""),
        (lambda rows: [*rows[1:], rows[0]], "prompt-rows"),
        (lambda rows: [*rows, rows[0]], "dataset-rows"),
    ],
)
def test_prompts_are_compared_with_the_dataset(
    edit: Callable[[list[str]], list[str]], rule: str, recorded: Path, tmp_path: Path
) -> None:
    write_data(data := tmp_path / "prompts.jsonl")
    data.write_text("\n".join(edit(data.read_text().splitlines())))
    warned = {finding.rule for finding in judge_folder(recorded / "poisson", dataset_path=data).of("error", "warning")}
    assert {f"endpoints-{rule}"} - {"endpoints-"} == {value for value in warned if "rule" not in value}


@pytest.mark.parametrize(("rows", "is_exchanged"), [((3, 5), True), ((), False)])
def test_exchanged_prompts_are_a_contradiction(
    rows: tuple[int, ...], is_exchanged: bool, copy_of: Callable[[str], Path], tmp_path: Path
) -> None:
    write_data(data := tmp_path / "prompts.jsonl")
    folder = copy_of("concurrency")
    index = json.loads((folder / SAMPLES).read_text())["performance"]

    def change(lines: Lines) -> None:
        issued = [lines[place] for place in places(lines, ISSUED)]
        prompts = {index[line["sample_uuid"]]: line["data"] for line in issued}
        exchanged = dict(zip(rows, reversed(rows), strict=True))
        for line in issued:
            line["data"] = prompts[exchanged.get(number := index[line["sample_uuid"]], number)]

    in_events(change)(folder)
    rules = {finding.rule for finding in judge_folder(folder, dataset_path=data).contradictions}
    assert rules == ({"endpoints-prompts-exchanged"} if is_exchanged else set())


def test_the_prompts_of_another_dataset_are_a_warning(recorded: Path, tmp_path: Path) -> None:
    write_data(data := tmp_path / "prompts.jsonl")
    lines = data.read_text().splitlines()
    data.write_text("\n".join([*lines[1:], lines[0]]))
    verdict = judge_folder(recorded / "concurrency", dataset_path=data)
    assert verdict.contradictions == []
    assert "endpoints-prompt-rows" in {finding.rule for finding in verdict.of("warning")}


@pytest.mark.parametrize(
    ("limit", "reason", "rule"),
    [
        (128, STOP, ""),  # the longest response has 98 tokens
        (99, STOP, ""),
        (40, STOP, "output-limit"),
        (60, LENGTH, ""),
        (30, LENGTH, "output-limit"),
        (128, LENGTH, "output-limit"),
    ],
)
def test_the_output_limit_is_compared_with_finish_reasons(
    limit: int, reason: str, rule: str, copy_of: Callable[[str], Path]
) -> None:
    folder = copy_of("concurrency")
    in_config("model_params/max_new_tokens", limit)(folder)
    if reason != STOP:
        combined(update_each(COMPLETE, finish_reason=lambda _: reason), in_reports(STOP, reason))(folder)
    findings = [
        finding for finding in judge_folder(folder, model_path="bytes").findings
        if finding.rule == "endpoints-output-limit" and ("median" in finding.text or "before the limit" in finding.text)
    ]  # fmt: skip
    assert [finding.severity for finding in findings] == ["warning" if rule else "pass"]
