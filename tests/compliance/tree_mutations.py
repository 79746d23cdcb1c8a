"""Ways to spoil a clean submission tree, each with the rule that must find it and the file that must be named.

A mutation changes a tree on disk and gives back the path that a finding has to name. It works on any tree of any
round; `None` where the tree has nothing of the kind (no Server scenario, no second system).
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compliance.submission.layout import Place, Tree
from runs.layout import RunDir
from tests.runs.editing import edit_detail

Change = Callable[[Tree], Path | None]


@dataclass(frozen=True)
class Mutation:
    """One way to spoil a tree."""

    name: str
    change: Change
    rules: tuple[str, ...]  # one of them must be found at the path


MUTATIONS: list[Mutation] = []


def mutation(*rules: str) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        MUTATIONS.append(Mutation(change.__name__, change, rules))
        return change

    return register


def first(tree: Tree, *scenarios: str) -> Place | None:
    """The first place, of one of the scenarios if some are named."""
    return next((place for place in tree.places() if not scenarios or place.scenario in scenarios), None)


def some(tree: Tree) -> Place:
    place = first(tree)
    assert place is not None
    return place


def edit_text(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text, (path, old)
    path.write_text(text.replace(old, new, 1))
    return path


def edit_object(path: Path, **values: Any) -> Path:
    """Change fields of a JSON object; None removes one."""
    found = json.loads(path.read_text())
    for name, value in values.items():
        found.pop(name, None)
        if value is not None:
            found[name] = value
    path.write_text(json.dumps(found))
    return path


def performance_value(*rules: str, key: str, value: Any, scenarios: tuple[str, ...] = ()) -> None:
    """Register the change of one record of a performance log."""

    def change(tree: Tree) -> Path | None:
        place = first(tree, *scenarios)
        if place is None:
            return None
        run = tree.performance(place)
        edit_detail(run, key, value)
        return run.detail

    MUTATIONS.append(Mutation(f"performance_{key}_is_{str(value)[:24]}", change, rules))


def accuracy_value(*rules: str, key: str, value: Any) -> None:
    def change(tree: Tree) -> Path | None:
        run = tree.accuracy(some(tree))
        edit_detail(run, key, value)
        return run.detail

    MUTATIONS.append(Mutation(f"accuracy_{key}_is_{str(value)[:24]}", change, rules))


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
performance_value("perf-network", key="sut_name", value="Network SUT")
performance_value("log-contradiction", key="result_tokens_per_second", value=123456.0, scenarios=("Offline",))
performance_value("log-contradiction", key="result_samples_per_second", value=123456.0, scenarios=("Offline",))
performance_value(
    "log-contradiction", key="result_completed_tokens_per_second", value=99999.0, scenarios=("Server", "SingleStream")
)
performance_value(
    "perf-ttft", key="result_first_token_99.00_percentile_latency_ns", value=2_000_000_000, scenarios=("Server",)
)
performance_value(
    "perf-tpot", key="result_time_per_output_token_99.00_percentile_ns", value=100_000_000, scenarios=("Server",)
)
performance_value("perf-limits", key="requested_server_ttft_latency", value=9_000_000_000, scenarios=("Server",))
performance_value("log-contradiction", key="result_99.90_percentile_latency_ns", value=1)
performance_value("log-contradiction", key="num_errors", value=3)
accuracy_value("accuracy-seeds", key="effective_sample_index_rng_seed", value=7)
accuracy_value("accuracy-mode", key="effective_test_mode", value="PerformanceOnly")
accuracy_value("accuracy-scenario", key="effective_scenario", value="MultiStream")
accuracy_value("accuracy-samples", key="qsl_reported_total_count", value=50)
accuracy_value("accuracy-audit-settings", key="effective_accuracy_log_sampling_target", value=100)
accuracy_value("log-config", key="qsl_name", value="Another QSL")


@mutation("perf-errors")
def error_record_in_the_performance_log(tree: Tree) -> Path:
    return _add_error(tree.performance(some(tree)))


@mutation("accuracy-errors")
def error_record_in_the_accuracy_log(tree: Tree) -> Path:
    return _add_error(tree.accuracy(some(tree)))


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
    path = tree.performance(some(tree)).detail
    path.write_bytes(path.read_bytes()[:-300])
    return path


@mutation("log-damaged")
def performance_log_is_garbage(tree: Tree) -> Path:
    path = tree.performance(some(tree)).detail
    path.write_bytes(bytes(range(256)) * 64)
    return path


@mutation("log-missing")
def no_performance_detail_log(tree: Tree) -> Path:
    path = tree.performance(some(tree)).detail
    path.unlink()
    return path


@mutation("log-missing")
def no_performance_summary(tree: Tree) -> Path:
    path = tree.performance(some(tree)).summary
    path.unlink()
    return path


@mutation("log-missing")
def directory_instead_of_a_log(tree: Tree) -> Path:
    path = tree.accuracy(some(tree)).detail
    path.unlink()
    path.mkdir()
    return path


@mutation("log-contradiction", "log-damaged")
def other_verdict_in_the_summary(tree: Tree) -> Path:
    return edit_text(tree.performance(some(tree)).summary, "VALID", "INVALID")


@mutation("log-contradiction")
def other_digit_in_the_summary(tree: Tree) -> Path:
    path = tree.performance(some(tree)).summary
    line = next(line for line in path.read_text().splitlines() if "99.00 percentile latency (ns)" in line)
    return edit_text(path, line, line[:-1] + str((int(line[-1]) + 1) % 10))


@mutation("perf-mode")
def accuracy_log_as_performance_log(tree: Tree) -> Path:
    place = some(tree)
    shutil.copy(tree.accuracy(place).detail, tree.performance(place).detail)
    return tree.performance(place).detail


@mutation("accuracy-mode")
def performance_log_as_accuracy_log(tree: Tree) -> Path:
    place = some(tree)
    shutil.copy(tree.performance(place).detail, tree.accuracy(place).detail)
    return tree.accuracy(place).detail


@mutation("log-duplicate")
def one_log_in_two_scenarios(tree: Tree) -> Path | None:
    places = list(tree.places())
    if len(places) < 2:
        return None
    shutil.copytree(tree.performance(places[0]).root, tree.performance(places[1]).root, dirs_exist_ok=True)
    return tree.performance(places[1]).detail


@mutation("log-duplicate")
def an_edited_copy_of_a_log(tree: Tree) -> Path | None:
    places = list(tree.places())
    if len(places) < 2:
        return None
    shutil.copy(tree.accuracy(places[0]).detail, tree.accuracy(places[1]).detail)
    edit_detail(tree.accuracy(places[1]), "effective_scenario", "Server")
    return tree.accuracy(places[1]).detail


@mutation("log-same-answers")
def accuracy_text_of_another_scenario(tree: Tree) -> Path | None:
    places = list(tree.places())
    if len(places) < 2:
        return None
    shutil.copy(tree.accuracy(places[0]).accuracy_text, tree.accuracy(places[1]).accuracy_text)
    return tree.accuracy(places[1]).accuracy_text


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


@mutation("accuracy-text")
def no_accuracy_text(tree: Tree) -> Path:
    path = tree.accuracy(some(tree)).accuracy_text
    path.unlink()
    return path


@mutation("accuracy-text")
def numpy_number(tree: Tree) -> Path:
    path = tree.accuracy(some(tree)).accuracy_text
    at = path.read_text().index("'gen_len': ") + len("'gen_len': ")
    digits = path.read_text()[at:].split(",")[0]
    return edit_text(path, f"'gen_len': {digits}", f"'gen_len': np.int64({digits})")


@mutation("accuracy-text")
def score_left_out(tree: Tree) -> Path:
    return edit_text(tree.accuracy(some(tree)).accuracy_text, "'rougeLsum'", "'rouge_sum'")


@mutation("accuracy-target")
def rouge_below_its_target(tree: Tree) -> Path:
    path = tree.accuracy(some(tree)).accuracy_text
    at = path.read_text().index("'rouge2': '")
    old = path.read_text()[at : at + 13]
    return edit_text(path, old, "'rouge2': '11")


@mutation("accuracy-target")
def too_many_characters(tree: Tree) -> Path:
    return edit_text(tree.accuracy(some(tree)).accuracy_text, "'gen_len': ", "'gen_len': 1")


@mutation("accuracy-samples")
def other_number_of_predictions(tree: Tree) -> Path:
    return edit_text(tree.accuracy(some(tree)).accuracy_text, "'gen_num': ", "'gen_num': 1")


@mutation("accuracy-hash")
def no_hash_line(tree: Tree) -> Path:
    return edit_text(tree.accuracy(some(tree)).accuracy_text, "\nhash=", "\nsha=")


@mutation("accuracy-hash")
def hash_of_another_length(tree: Tree) -> Path:
    return edit_text(tree.accuracy(some(tree)).accuracy_text, "\nhash=", "\nhash=ab")


@mutation("accuracy-size")
def accuracy_log_not_truncated(tree: Tree) -> Path:
    path = tree.accuracy(some(tree)).accuracy_log
    path.write_bytes(b"[" + b'{ "seq_id" : 0, "qsl_idx" : 0, "data" : "00000000" },\n' * 500 + b"]")
    return path


@mutation("accuracy-shape")
def accuracy_log_cut_elsewhere(tree: Tree) -> Path:
    path = tree.accuracy(some(tree)).accuracy_log
    path.write_bytes(path.read_bytes()[100:])
    return path


@mutation("log-contradiction")
def answers_of_another_run(tree: Tree) -> Path:
    path = tree.accuracy(some(tree)).accuracy_log
    content = path.read_bytes()
    start = content.index(b'"qsl_idx" : ') + len(b'"qsl_idx" : ')
    end = content.index(b",", start)
    other = str((int(content[start:end]) + 1) % 10 ** (end - start)).rjust(end - start, "0")
    path.write_bytes(content[:start] + str(int(other)).rjust(end - start).encode() + content[end:])
    return path


@mutation("audit-missing")
def no_audit(tree: Tree) -> Path | None:
    place = first(tree, "Server", "Interactive")
    if place is None:
        return None
    shutil.rmtree(tree.audit(place, "TEST06"))
    return tree.audit(place, "TEST06")


def _audited(tree: Tree) -> Path | None:
    """A TEST06 directory that has its answers."""
    folders = (tree.audit(place, "TEST06") for place in tree.places())
    return next((folder for folder in folders if (folder / "accuracy" / "mlperf_log_accuracy.json").is_file()), None)


@mutation("audit-text")
def audit_text_says_no(tree: Tree) -> Path | None:
    folder = _audited(tree)
    return folder and edit_text(folder / "verify_accuracy.txt", "EOS check pass: True", "EOS check pass: False")


@mutation("audit-text")
def audit_text_ends_in_failed(tree: Tree) -> Path | None:
    folder = _audited(tree)
    return folder and edit_text(folder / "verify_accuracy.txt", "verification complete", "verification failed")


@mutation("audit-text")
def audit_skips_first_tokens_in_server(tree: Tree) -> Path | None:
    place = first(tree, "Server", "Interactive")
    if place is None:
        return None
    path = tree.audit(place, "TEST06") / "verify_accuracy.txt"
    return edit_text(path, "First token check pass: True", "First token check pass: Skipped")


@mutation("audit-log")
def no_answers_in_the_audit(tree: Tree) -> Path | None:
    folder = _audited(tree)
    if folder is None:
        return None
    path = folder / "accuracy" / "mlperf_log_accuracy.json"
    path.unlink()
    return path


def _change_answers(tree: Tree, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Path | None:
    folder = _audited(tree)
    if folder is None:
        return None
    path = folder / "accuracy" / "mlperf_log_accuracy.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    return path


@mutation("audit-answers")
def empty_audit_log(tree: Tree) -> Path | None:
    return _change_answers(tree, lambda entries: [])


@mutation("audit-answers")
def an_audit_answer_left_out(tree: Tree) -> Path | None:
    return _change_answers(tree, lambda entries: entries[:-1])


@mutation("audit-answers")
def a_wrong_token_count(tree: Tree) -> Path | None:
    return _change_answers(tree, lambda entries: [{**entries[0], "token_count": 1}, *entries[1:]])


@mutation("audit-answers")
def padded_with_end_of_sequence(tree: Tree) -> Path | None:
    end = (128009).to_bytes(4, "little").hex().upper()
    return _change_answers(
        tree,
        lambda entries: [
            {**entries[0], "data": entries[0]["data"][:32] + end * 3, "token_count": 7},
            *entries[1:],
        ],
    )


def _audit_run(tree: Tree) -> RunDir | None:
    folders = (tree.audit(place, "TEST06") / "performance" / "run_1" for place in tree.places())
    return next((RunDir(folder) for folder in folders if folder.is_dir()), None)


@mutation("audit-settings")
def audit_run_without_audit_settings(tree: Tree) -> Path | None:
    run = _audit_run(tree)
    if run is None:
        return None
    edit_detail(run, "effective_accuracy_log_sampling_target", 0)
    return run.detail


@mutation("audit-seeds")
def audit_run_with_other_seeds(tree: Tree) -> Path | None:
    run = _audit_run(tree)
    if run is None:
        return None
    edit_detail(run, "effective_schedule_rng_seed", 5)
    return run.detail


@mutation("log-dates")
def audit_run_years_before(tree: Tree) -> Path | None:
    run = _audit_run(tree)
    if run is None:
        return None
    edit_detail(run, "power_begin", "01-01-2019 00:00:00.000")
    return run.detail


@mutation("log-duplicate")
def the_performance_log_as_audit(tree: Tree) -> Path | None:
    place = next((one for one in tree.places() if (tree.audit(one, "TEST06") / "performance").is_dir()), None)
    if place is None:
        return None
    run = RunDir(tree.audit(place, "TEST06") / "performance" / "run_1")
    shutil.copy(tree.performance(place).detail, run.detail)
    return run.detail


@mutation("system-missing")
def no_system_description(tree: Tree) -> Path:
    path = _system(tree)
    path.unlink()
    return path


def _system(tree: Tree) -> Path:
    place = some(tree)
    return tree.system(place.division, place.organisation, place.system)


@mutation("system-json")
def broken_system_description(tree: Tree) -> Path:
    return edit_text(_system(tree), "{", "{{")


def system_value(rule: str, **values: Any) -> None:
    name, value = next(iter(values.items()))
    MUTATIONS.append(
        Mutation(f"system_{name}_is_{str(value)[:20]!r}", lambda tree: edit_object(_system(tree), **values), (rule,))
    )


system_value("system-field", cooling=None)
system_value("system-field", host_memory_capacity="")
system_value("system-field", host_storage_type=[])
system_value("system-number", number_of_nodes="one")
system_value("system-status", status="soon")
system_value("system-type", system_type="cloud")
system_value("system-submitter", submitter="Someone else")
system_value("system-division", division="open")
system_value("system-network", is_network=False)
system_value("system-placeholder", framework="TODO")
system_value("rehearsal", framework="none (the dummy engine runs no model)")


@mutation("suite-benchmark")
def benchmark_of_another_suite(tree: Tree) -> Path:
    place = some(tree)
    path = _system(tree)
    other = "datacenter" if "edge" in place.benchmark else "edge"
    edit_object(path, system_type=other)
    return tree.scenario(place).parent


@mutation("system-unused")
def description_without_results(tree: Tree) -> Path:
    path = _system(tree)
    copy = path.with_name("another-system.json")
    shutil.copy(path, copy)
    return copy


@mutation("measurements-missing")
def no_measurements(tree: Tree) -> Path:
    path = tree.measurements(some(tree))
    path.unlink()
    return path


@mutation("measurements-field")
def empty_measurement(tree: Tree) -> Path:
    return edit_object(tree.measurements(some(tree)), weight_data_types="")


@mutation("scenario-file")
def empty_readme(tree: Tree) -> Path:
    path = tree.readme(some(tree))
    path.write_text("\n")
    return path


@mutation("scenario-file")
def no_user_conf(tree: Tree) -> Path:
    path = tree.user_conf(some(tree))
    path.unlink()
    return path


@mutation("user-conf-differs")
def user_conf_of_another_run(tree: Tree) -> Path:
    path = tree.user_conf(some(tree))
    path.write_text(path.read_text() + "\n*.*.min_duration = 60001\n*.Offline.min_duration = 60001\n")
    place = some(tree)
    if place.scenario != "Offline":
        return edit_text(path, "*.Offline.", f"*.{'SingleStream' if 'Single' in place.scenario else 'Server'}.")
    return path


@mutation("user-conf-absent")
def user_conf_without_a_target(tree: Tree) -> Path | None:
    place = first(tree, "Server", "SingleStream")
    if place is None:
        return None
    path = tree.user_conf(place)
    kept = [line for line in path.read_text().splitlines() if ".target_" not in line]
    path.write_text("\n".join(kept) + "\n")
    return path


@mutation("tree-source")
def no_code(tree: Tree) -> Path:
    place = some(tree)
    path = tree.source(place.division, place.organisation)
    shutil.rmtree(path)
    return path


@mutation("tree-source")
def empty_code(tree: Tree) -> Path:
    path = no_code(tree)
    assert path is not None
    path.mkdir()
    return path


@mutation("scenario-set")
def no_offline(tree: Tree) -> Path:
    place = first(tree, "Offline")
    assert place is not None
    shutil.rmtree(tree.scenario(place))
    return tree.scenario(place).parent


@mutation("tree-scenario")
def scenario_that_the_benchmark_has_not(tree: Tree) -> Path:
    place = some(tree)
    path = tree.scenario(place)
    other = path.with_name("Server" if "edge" in place.benchmark else "SingleStream")
    shutil.copytree(path, other)
    return other


@mutation("tree-benchmark")
def interactive_as_a_benchmark(tree: Tree) -> Path:
    path = tree.scenario(some(tree)).parent
    other = path.with_name("llama3.1-8b-interactive")
    shutil.copytree(path, other)
    return other


@mutation("tree-case")
def scenario_in_lower_case(tree: Tree) -> Path:
    path = tree.scenario(some(tree))
    return path.rename(path.with_name(path.name.lower()))


@mutation("tree-unknown")
def unknown_file_beside_the_logs(tree: Tree) -> Path:
    path = tree.performance(some(tree)).root / "notes.txt"
    path.write_text("x")
    return path


@mutation("tree-unknown")
def second_run(tree: Tree) -> Path:
    path = tree.performance(some(tree)).root
    other = path.with_name("run_2")
    shutil.copytree(path, other)
    return other


@mutation("tree-dot-file")
def dot_file(tree: Tree) -> Path:
    path = tree.scenario(some(tree)) / ".DS_Store"
    path.write_text("x")
    return path


@mutation("tree-name")
def name_with_a_blank(tree: Tree) -> Path:
    path = tree.scenario(some(tree)) / "read me.txt"
    path.write_text("x")
    return path


@mutation("tree-symlink")
def symbolic_link_for_a_log(tree: Tree) -> Path:
    path = tree.performance(some(tree)).summary
    path.unlink()
    path.symlink_to("mlperf_log_detail.txt")
    return path


@mutation("tree-symlink")
def loop_of_links(tree: Tree) -> Path:
    path = tree.scenario(some(tree)) / "performance" / "again"
    path.symlink_to("..")
    return path


@mutation("tree-special")
def pipe_for_a_log(tree: Tree) -> Path:
    path = tree.accuracy(some(tree)).accuracy_log
    path.unlink()
    os.mkfifo(path)
    return path


@mutation("tree-size")
def file_above_50_mb(tree: Tree) -> Path:
    path = tree.performance(some(tree)).trace
    with path.open("wb") as stream:
        stream.truncate(60 * 1024 * 1024)
    return path


@mutation("rehearsal")
def mark_of_a_rehearsal_in_a_readme(tree: Tree) -> Path:
    path = tree.readme(some(tree))
    path.write_text("REHEARSAL - NOT FOR UPLOAD\n")
    return path


@mutation("rehearsal")
def file_of_a_rehearsal(tree: Tree) -> Path:
    path = tree.rehearsal_file()
    path.write_text("it was not meant seriously\n")
    return path
