"""LoadGen's logs of performance and accuracy legs: damaged, missing, changed, exchanged, copied."""

import json
import shutil
from pathlib import Path
from typing import Any

from compliance.submission.tree import Place, Tree
from runs.record.layout import RunDir
from tests.support.editing import edit_detail
from tests.support.tree_mutations.registry import (
    accuracy,
    edit,
    edit_text,
    first,
    log_value,
    mutation,
    performance,
    removal,
)


def performance_value(*rules: str, key: str, value: Any, scenarios: tuple[str, ...] = ()) -> None:
    """Register the change of one record of a performance log, of one of the scenarios if some are named."""

    def run(tree: Tree) -> RunDir | None:
        place = first(tree, *scenarios)
        return place and tree.performance(place)

    log_value(f"performance_{key}_is_{str(value)[:24]}", *rules, run=run, key=key, value=value)


def accuracy_value(*rules: str, key: str, value: Any) -> None:
    """Register the change of one record of an accuracy log."""
    log_value(f"accuracy_{key}_is_{str(value)[:24]}", *rules, run=accuracy, key=key, value=value)


performance_value("perf-validity", key="result_validity", value="INVALID")
performance_value("perf-validity", key="result_validity", value=None)
performance_value("perf-seeds", key="effective_qsl_rng_seed", value=1)
performance_value("perf-seeds", key="effective_sample_index_rng_seed", value=1)
performance_value("perf-seeds", key="effective_schedule_rng_seed", value=1)
performance_value("perf-min-duration", key="effective_min_duration_ms", value=120)
performance_value("perf-early-stopping", key="early_stopping_met", value=False, scenarios=("Server", "Interactive"))
performance_value("perf-mode", key="effective_test_mode", value="AccuracyOnly")
performance_value("perf-mode", key="effective_test_mode", value="SubmissionRun")
performance_value("perf-scenario", key="effective_scenario", value="MultiStream")
performance_value("perf-audit-settings", key="effective_performance_issue_same", value=True)
performance_value("perf-audit-settings", key="effective_performance_issue_unique", value=True)
performance_value("perf-audit-settings", key="effective_accuracy_log_sampling_target", value=100)
performance_value("perf-cut-short", key="effective_max_query_count", value=50)
performance_value("perf-cut-short", key="effective_max_duration_ms", value=60_000)
performance_value("perf-equal-issue", key="effective_sample_concatenate_permutation", value=False)
performance_value("perf-token-latencies", "log-damaged", key="requested_use_token_latencies", value=False)
performance_value("perf-data-set", key="qsl_reported_total_count", value=50)
performance_value("perf-sample-count", key="effective_performance_sample_count", value=50)
performance_value("log-config", key="loadgen_version", value="4.1.0 @ 0123456789")
performance_value("log-config", key="sut_name", value="Another SUT")
performance_value("perf-network-name", key="sut_name", value="Network SUT")
performance_value("log-summary", key="result_tokens_per_second", value=123456.0, scenarios=("Offline",))
performance_value("log-arithmetic", key="result_samples_per_second", value=123456.0, scenarios=("Offline",))
performance_value(
    "log-arithmetic", key="result_completed_tokens_per_second", value=99999.0, scenarios=("Server", "SingleStream")
)
performance_value(
    "perf-ttft", key="result_first_token_99.00_percentile_latency_ns", value=2_000_000_000, scenarios=("Server",)
)
performance_value(
    "perf-tpot", key="result_time_per_output_token_99.00_percentile_ns", value=100_000_000, scenarios=("Server",)
)
performance_value("perf-limits", key="requested_server_ttft_latency", value=9_000_000_000, scenarios=("Server",))
performance_value("log-arithmetic", key="result_99.90_percentile_latency_ns", value=1)
performance_value("log-arithmetic", key="num_errors", value=3)
performance_value("log-damaged", key="power_begin", value=5)
performance_value("log-damaged", key="power_begin", value=None)
accuracy_value("log-damaged", key="power_end", value=["08-01-2026 04:44:14.254"])
accuracy_value("accuracy-seeds", key="effective_sample_index_rng_seed", value=7)
accuracy_value("accuracy-mode", key="effective_test_mode", value="PerformanceOnly")
accuracy_value("accuracy-scenario", key="effective_scenario", value="MultiStream")
accuracy_value("accuracy-samples", key="qsl_reported_total_count", value=50)
accuracy_value("accuracy-audit-settings", key="effective_accuracy_log_sampling_target", value=100)
accuracy_value("log-config", key="qsl_name", value="Another QSL")

removal("no_performance_detail_log", "log-missing", lambda tree: performance(tree).detail)
removal("no_performance_summary", "log-missing", lambda tree: performance(tree).summary)


@mutation("log-missing")
def directory_instead_of_a_log(tree: Tree) -> Path:
    path = accuracy(tree).detail
    path.unlink()
    path.mkdir()
    return path


@mutation("perf-errors")
def error_record_in_the_performance_log(tree: Tree) -> Path:
    return _add_error(performance(tree))


@mutation("accuracy-errors")
def error_record_in_the_accuracy_log(tree: Tree) -> Path:
    return _add_error(accuracy(tree))


def _add_error(run: RunDir) -> Path:
    lines = run.detail.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if b'"power_begin"' in line)
    prefix, _, text = lines[at].partition(b"{")
    record = json.loads(b"{" + text)
    record |= {"key": "error_runtime", "value": "something failed"}
    record["metadata"] = {**record["metadata"], "is_error": True}
    lines.insert(at, prefix + json.dumps(record).encode() + b"\n")
    run.detail.write_bytes(b"".join(lines))
    return run.detail


@mutation("log-damaged")
def performance_log_is_cut_off(tree: Tree) -> Path:
    path = performance(tree).detail
    path.write_bytes(path.read_bytes()[:-300])
    return path


@mutation("log-damaged")
def performance_log_is_garbage(tree: Tree) -> Path:
    path = performance(tree).detail
    path.write_bytes(bytes(range(256)) * 64)
    return path


edit(
    "other_verdict_in_the_summary",
    "log-summary",
    "log-damaged",
    file=lambda tree: performance(tree).summary,
    old="VALID",
    new="INVALID",
)


@mutation("log-summary")
def other_digit_in_the_summary(tree: Tree) -> Path:
    path = performance(tree).summary
    line = next(line for line in path.read_text().splitlines() if "99.00 percentile latency (ns)" in line)
    return edit_text(path, line, line[:-1] + str((int(line[-1]) + 1) % 10))


@mutation("log-summary")
def a_second_summary_behind_the_first(tree: Tree) -> Path:
    path = performance(tree).summary
    path.write_text(path.read_text() * 2)
    return path


@mutation("log-summary")
def a_second_accuracy_summary_behind_the_first(tree: Tree) -> Path:
    path = accuracy(tree).summary
    path.write_text(path.read_text() * 2)
    return path


@mutation("log-damaged")
def a_value_twice_in_one_record(tree: Tree) -> Path:
    path = performance(tree).detail
    return edit_text(path, '"key": "result_validity", ', '"key": "result_validity", "value" : "INVALID", ')


@mutation("perf-mode")
def accuracy_log_as_performance_log(tree: Tree) -> Path:
    return Path(shutil.copy(accuracy(tree).detail, performance(tree).detail))


@mutation("accuracy-mode")
def performance_log_as_accuracy_log(tree: Tree) -> Path:
    return Path(shutil.copy(performance(tree).detail, accuracy(tree).detail))


def _two_places(tree: Tree) -> tuple[Place, Place] | None:
    places = list(tree.places())
    return (places[0], places[1]) if len(places) > 1 else None


@mutation("log-duplicate")
def one_log_in_two_scenarios(tree: Tree) -> Path | None:
    if (pair := _two_places(tree)) is None:
        return None
    one, other = (tree.performance(place) for place in pair)
    shutil.copytree(one.root, other.root, dirs_exist_ok=True)
    return other.detail


@mutation("log-duplicate")
def an_edited_copy_of_a_log(tree: Tree) -> Path | None:
    if (pair := _two_places(tree)) is None:
        return None
    one, other = (tree.accuracy(place) for place in pair)
    shutil.copy(one.detail, other.detail)
    edit_detail(other, "effective_scenario", "Server")
    return other.detail


@mutation("accuracy-hash-differs")
def accuracy_text_of_another_scenario(tree: Tree) -> Path | None:
    if (pair := _two_places(tree)) is None:
        return None
    one, other = (tree.accuracy(place) for place in pair)
    return Path(shutil.copy(one.accuracy_text, other.accuracy_text))


@mutation("perf-limits")
def server_log_as_interactive(tree: Tree) -> Path | None:
    """Its early stopping was judged by 2000 and 100 ms."""
    place = first(tree, "Server")
    if place is None:
        return None
    other = Place(place.division, place.organisation, place.system, place.benchmark, "Interactive")
    shutil.rmtree(tree.scenario(other), ignore_errors=True)
    shutil.copytree(tree.scenario(place), tree.scenario(other))
    shutil.rmtree(tree.scenario(place))
    return tree.performance(other).detail
