"""Changes of a clean submission tree, each with the rules of which one must report the changed file.

A mutation changes a tree on disk and returns the path that a finding must name. It works on any tree of any round. It
returns None if the tree has no such part (no Server scenario, no second system).
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compliance.trees.system_fields import REPLACE_ME
from compliance.trees.tree import Place, Tree
from runs.record.layout import RunDir
from tests.support.files.editing import edit_detail

Change = Callable[[Tree], Path | None]
SERVER = ("Server", "Interactive")


@dataclass(frozen=True)
class Mutation:
    """A change of a tree."""

    name: str
    change: Change
    rules: tuple[str, ...]


MUTATIONS: list[Mutation] = []


def mutation(*rules: str) -> Callable[[Change], Change]:
    """Register a change under its function's name."""

    def register(change: Change) -> Change:
        MUTATIONS.append(Mutation(change.__name__, change, rules))
        return change

    return register


def changed(name: str, rule: str, file: Change, how: Callable[[Path], object]) -> None:
    """Register the change of one file."""

    def change(tree: Tree) -> Path | None:
        path = file(tree)
        if path is not None:
            how(path)
        return path

    MUTATIONS.append(Mutation(name, change, (rule,)))


def first(tree: Tree, *scenarios: str) -> Place | None:
    """Return the first place, of one of the scenarios if some are named."""
    return next((place for place in tree.places() if not scenarios or place.scenario in scenarios), None)


def some(tree: Tree) -> Place:
    """Return the first place."""
    place = first(tree)
    assert place is not None
    return place


def performance(tree: Tree) -> RunDir:
    """Return the performance run of the first place."""
    return tree.performance(some(tree))


def accuracy(tree: Tree) -> RunDir:
    """Return the accuracy run of the first place."""
    return tree.accuracy(some(tree))


def edit_text(path: Path, old: str, new: str) -> Path:
    """Replace the first `old`."""
    text = path.read_text()
    assert old in text, (path, old)
    path.write_text(text.replace(old, new, 1))
    return path


def edit_object(path: Path, **values: Any) -> Path:
    """Change fields of a JSON object; None removes a field."""
    kept = {name: value for name, value in json.loads(path.read_text()).items() if name not in values}
    path.write_text(json.dumps(kept | {name: value for name, value in values.items() if value is not None}))
    return path


def replaced(old: str, new: str) -> Callable[[Path], object]:
    return lambda path: edit_text(path, old, new)


def added(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(path.read_text() + text)


def copied(folder: Path, name: str) -> Path:
    """Copy a directory under another name beside it."""
    return Path(shutil.copytree(folder, folder.with_name(name)))


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# LoadGen's logs: values -----------------------------------------------------------------------------------------------


def log_values(run: str, run_dir_of: Callable[[Tree, Place], RunDir], *rows: tuple[Any, ...]) -> None:
    """Register changes of one record of a detail log: rule, key, value (None removes it), scenarios."""
    for rule, key, value, *scenarios in rows:

        def change(tree: Tree, key: str = key, value: Any = value, scenarios: list[str] = scenarios) -> Path | None:
            runs = [run_dir_of(tree, place) for place in tree.places() if not scenarios or place.scenario in scenarios]
            existing = next((run for run in runs if run.root.is_dir()), None)
            if existing is not None:
                edit_detail(existing, key, value)
            return existing and existing.detail

        MUTATIONS.append(Mutation(f"{run}_{key}_is_{str(value)[:24]}", change, tuple(rule.split(" or "))))


log_values(
    "performance",
    Tree.performance,
    ("perf-validity", "result_validity", "INVALID"),
    ("perf-validity", "result_validity", None),
    ("perf-seeds", "effective_qsl_rng_seed", 1),
    ("perf-seeds", "effective_sample_index_rng_seed", 1),
    ("perf-seeds", "effective_schedule_rng_seed", 1),
    ("perf-min-duration", "effective_min_duration_ms", 120),
    ("perf-early-stopping", "early_stopping_met", False, *SERVER),
    ("perf-mode", "effective_test_mode", "AccuracyOnly"),
    ("perf-mode", "effective_test_mode", "SubmissionRun"),
    ("perf-scenario", "effective_scenario", "MultiStream"),
    ("perf-audit-settings", "effective_performance_issue_same", True),
    ("perf-audit-settings", "effective_performance_issue_unique", True),
    ("perf-audit-settings", "effective_accuracy_log_sampling_target", 100),
    ("perf-cut-short", "effective_max_query_count", 50),
    ("perf-cut-short", "effective_max_duration_ms", 60_000),
    ("perf-equal-issue", "effective_sample_concatenate_permutation", False),
    ("perf-token-latencies or log-damaged", "requested_use_token_latencies", False),
    ("perf-data-set", "qsl_reported_total_count", 50),
    ("perf-sample-count", "effective_performance_sample_count", 50),
    ("log-config", "loadgen_version", "4.1.0 @ 0123456789"),
    ("log-config", "sut_name", "Another SUT"),
    ("perf-network-name", "sut_name", "Network SUT"),
    ("log-summary", "result_tokens_per_second", 123456.0, "Offline"),
    ("log-arithmetic", "result_samples_per_second", 123456.0, "Offline"),
    ("log-arithmetic", "result_completed_tokens_per_second", 99999.0, "Server", "SingleStream"),
    ("perf-ttft", "result_first_token_99.00_percentile_latency_ns", 2_000_000_000, "Server"),
    ("perf-tpot", "result_time_per_output_token_99.00_percentile_ns", 100_000_000, "Server"),
    ("perf-limits", "requested_server_ttft_latency", 9_000_000_000, "Server"),
    ("log-arithmetic", "requested_server_ttft_latency", 1, "Server"),
    ("log-arithmetic", "result_99.90_percentile_latency_ns", 1),
    ("log-arithmetic", "num_errors", 3),
    ("log-damaged", "power_begin", 5),
    ("log-damaged", "power_begin", None),
)
log_values(
    "accuracy",
    Tree.accuracy,
    ("log-damaged", "power_end", ["08-01-2026 04:44:14.254"]),
    ("accuracy-seeds", "effective_sample_index_rng_seed", 7),
    ("accuracy-mode", "effective_test_mode", "PerformanceOnly"),
    ("accuracy-scenario", "effective_scenario", "MultiStream"),
    ("accuracy-samples", "qsl_reported_total_count", 50),
    ("accuracy-audit-settings", "effective_accuracy_log_sampling_target", 100),
    ("log-config", "qsl_name", "Another QSL"),
)
log_values(
    "audit",
    lambda tree, place: RunDir(tree.audit(place, "TEST06") / "performance" / "run_1"),
    ("audit-settings", "effective_accuracy_log_sampling_target", 0, *SERVER),  # edge without Server needs no TEST06
    ("perf-seeds", "effective_schedule_rng_seed", 5),
    ("log-dates", "power_begin", "01-01-2019 00:00:00.000"),
)

# LoadGen's logs: damaged, missing, exchanged, copied ------------------------------------------------------------------


def detail(tree: Tree) -> Path:
    return performance(tree).detail


def summary(tree: Tree) -> Path:
    return performance(tree).summary


def _error_record(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if b'"power_begin"' in line)
    error = lines[at].replace(b'"power_begin"', b'"error_runtime"').replace(b'"is_error": false', b'"is_error": true')
    path.write_bytes(b"".join([*lines[:at], error, *lines[at:]]))


def _other_digit(path: Path) -> None:
    line = next(line for line in path.read_text().splitlines() if "99.00 percentile latency (ns)" in line)
    edit_text(path, line, line[:-1] + str((int(line[-1]) + 1) % 10))


def _twice(path: Path) -> None:
    path.write_text(path.read_text() * 2)


changed("no_performance_detail_log", "log-missing", detail, Path.unlink)
changed("no_performance_summary", "log-missing", summary, Path.unlink)
changed(
    "directory_instead_of_a_log",
    "log-missing",
    lambda tree: accuracy(tree).detail,
    lambda path: [path.unlink(), path.mkdir()],
)
changed("error_record_in_the_performance_log", "perf-errors", detail, _error_record)
changed("error_record_in_the_accuracy_log", "accuracy-errors", lambda tree: accuracy(tree).detail, _error_record)
changed("performance_log_is_cut_off", "log-damaged", detail, lambda path: path.write_bytes(path.read_bytes()[:-300]))
changed("performance_log_is_garbage", "log-damaged", detail, lambda path: path.write_bytes(bytes(range(256)) * 64))
changed(
    "a_value_twice_in_one_record",
    "log-damaged",
    detail,
    replaced('"key": "result_validity", ', '"key": "result_validity", "value" : "INVALID", '),
)
changed("other_verdict_in_the_summary", "log-summary", summary, replaced("VALID", "INVALID"))
changed("other_digit_in_the_summary", "log-summary", summary, _other_digit)
changed("a_second_summary_behind_the_first", "log-summary", summary, _twice)
changed("a_second_accuracy_summary_behind_the_first", "log-summary", lambda tree: accuracy(tree).summary, _twice)


@mutation("perf-mode")
def accuracy_log_as_performance_log(tree: Tree) -> Path:
    return Path(shutil.copy(accuracy(tree).detail, detail(tree)))


@mutation("accuracy-mode")
def performance_log_as_accuracy_log(tree: Tree) -> Path:
    return Path(shutil.copy(detail(tree), accuracy(tree).detail))


def in_two_places(rule: str, name: str, run: Callable[[Tree, Place], RunDir], copy: Callable[..., Path]) -> None:
    """Register a copy of a file or directory from the first place to the second."""

    def change(tree: Tree) -> Path | None:
        runs = [run(tree, place) for place in tree.places()]
        return copy(runs[0], runs[1]) if len(runs) > 1 else None

    MUTATIONS.append(Mutation(name, change, (rule,)))


def _copied_log(source: RunDir, target: RunDir) -> Path:
    shutil.copytree(source.root, target.root, dirs_exist_ok=True)
    return target.detail


def _edited_copy(source: RunDir, target: RunDir) -> Path:
    shutil.copy(source.detail, target.detail)
    edit_detail(target, "effective_scenario", "Server")
    return target.detail


in_two_places("log-duplicate", "one_log_in_two_scenarios", Tree.performance, _copied_log)
in_two_places("log-duplicate", "an_edited_copy_of_a_log", Tree.accuracy, _edited_copy)
in_two_places(
    "accuracy-hash-differs",
    "accuracy_text_of_another_scenario",
    Tree.accuracy,
    lambda source, copy: Path(shutil.copy(source.accuracy_text, copy.accuracy_text)),
)


@mutation("perf-limits")
def server_log_as_interactive(tree: Tree) -> Path | None:
    """Early stopping used 2000 and 100 ms."""
    if (place := first(tree, "Server")) is None:
        return None
    interactive = Place(place.division, place.organization, place.system, place.benchmark, "Interactive")
    shutil.rmtree(tree.scenario(interactive), ignore_errors=True)
    tree.scenario(place).rename(tree.scenario(interactive))
    return tree.performance(interactive).detail


# Responses: accuracy.txt and the accuracy log, truncated by the official tool -------------------------------


def accuracy_text(tree: Tree) -> Path:
    return accuracy(tree).accuracy_text


def accuracy_log(tree: Tree) -> Path:
    return accuracy(tree).accuracy_log


def _after(path: Path, mark: str, change: Callable[[str], str], end: str = ",") -> None:
    """Change the text between a mark and the next end."""
    content = path.read_bytes()
    start = content.index(mark.encode()) + len(mark)
    stop = content.index(end.encode(), start)
    path.write_bytes(content[:start] + change(content[start:stop].decode()).encode() + content[stop:])


changed("no_accuracy_text", "accuracy-text", accuracy_text, Path.unlink)
for _name, _rule, _old, _new in (
    ("score_left_out", "accuracy-text", "'rougeLsum'", "'rouge_sum'"),
    ("too_many_characters", "accuracy-target", "'gen_len': ", "'gen_len': 1"),
    ("other_number_of_predictions", "accuracy-samples", "'gen_num': ", "'gen_num': 1"),
    ("no_hash_line", "accuracy-hash", "\nhash=", "\nsha="),
    ("hash_of_another_length", "accuracy-hash", "\nhash=", "\nhash=ab"),
):
    changed(_name, _rule, accuracy_text, replaced(_old, _new))
changed("numpy_number", "accuracy-text", accuracy_text, lambda path: _after(path, "'gen_len': ", "np.int64({})".format))
changed(
    "number_with_an_exponent", "accuracy-text", accuracy_text, lambda path: _after(path, "'gen_len': ", "{}e0".format)
)
changed(
    "rouge_below_its_target",
    "accuracy-target",
    accuracy_text,
    lambda path: _after(path, "'rouge2': '", lambda _: "11", "'"),
)
changed(
    "accuracy_log_not_truncated",
    "accuracy-size",
    accuracy_log,
    lambda path: path.write_bytes(b"[" + b'{ "seq_id" : 0, "qsl_idx" : 0, "data" : "00000000" },\n' * 500 + b"]"),
)
changed(
    "accuracy_log_cut_elsewhere", "accuracy-shape", accuracy_log, lambda path: path.write_bytes(path.read_bytes()[100:])
)
changed(
    "answers_of_another_run",
    "log-order",
    accuracy_log,  # another sample index, as long as the original
    lambda path: _after(path, '"qsl_idx" : ', lambda old: str((int(old) + 1) % 10 ** len(old)).rjust(len(old))),
)

# TEST06: its text, its responses, its run
# -------------------------------------------------------------------------------


def audited(tree: Tree) -> Path | None:
    """Return the responses of an audit that has them."""
    logs = (tree.audit(place, "TEST06") / "accuracy" / "mlperf_log_accuracy.json" for place in tree.places())
    return next((log for log in logs if log.is_file()), None)


def audit_text(tree: Tree) -> Path | None:
    log = audited(tree)
    return log and log.parents[1] / "verify_accuracy.txt"


@mutation("audit-missing")
def no_audit(tree: Tree) -> Path | None:
    if (place := first(tree, *SERVER)) is None:
        return None
    shutil.rmtree(tree.audit(place, "TEST06"))
    return tree.audit(place, "TEST06")


_YES, _END = "EOS check pass: True", "TEST06 verification complete"
for _name, _old, _new in (
    ("", _YES, "EOS check pass: False"),
    ("_and_yes", _YES, f"EOS check pass: False\n{_YES}"),
    ("_at_the_end", "verification complete", "verification failed"),
    ("_in_capitals", _END, f"EOS check pass: FALSE\n{_END}"),
    ("_in_another_word", _END, f"First token check pass: no\n{_END}"),
    ("_with_blanks", _END, f"Sample length check pass:  False\n{_END}"),
    ("_of_all", _END, f"TEST06 ResultVerdict failed!\n{_END}"),
):
    changed(f"audit_text_says_no{_name}", "audit-text", audit_text, replaced(_old, _new))
changed(
    "audit_skips_first_tokens_in_server",
    "audit-text",
    lambda tree: (place := first(tree, *SERVER)) and tree.audit(place, "TEST06") / "verify_accuracy.txt",
    replaced("First token check pass: True", "First token check pass: Skipped"),
)
changed("no_answers_in_the_audit", "audit-log", audited, Path.unlink)


def responses(rule: str, name: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Register other entries of the audit's log."""
    changed(name, rule, audited, lambda path: path.write_text(json.dumps(change(json.loads(path.read_text())))))


def _ids(entry: dict[str, Any], ids: list[int]) -> dict[str, Any]:
    """Return the entry with other IDs of the same width."""
    width = len(entry["data"]) // entry["token_count"] // 2
    words = [token_id.to_bytes(width, "little").hex().upper() for token_id in ids]
    first = {"token_data": words[0]} if "token_data" in entry else {}
    return entry | {"data": "".join(words), "token_count": len(ids)} | first


responses("test06-count", "empty_audit_log", lambda entries: [])
responses("test06-count", "an_audit_answer_left_out", lambda entries: entries[:-1])
responses("audit-answers", "one_query_answered_twice", lambda entries: [*entries[:-1], entries[0]])
responses("test06-token-count", "a_wrong_token_count", lambda entries: [entries[0] | {"token_count": 1}, *entries[1:]])
responses(
    "test06-end-once",
    "padded_with_end_of_sequence",
    lambda entries: [_ids(entries[0], [5, 6, 7, 8, *[128009] * 3]), *entries[1:]],
)
responses(
    "plausible-shared-answers",
    "audit_has_one_answer_for_all",
    lambda entries: [_ids(entry, [*range(1000, 1020)]) for entry in entries],
)


@mutation("log-duplicate")
def the_performance_log_as_audit(tree: Tree) -> Path | None:
    place = next((place for place in tree.places() if (tree.audit(place, "TEST06") / "performance").is_dir()), None)
    if place is None:
        return None
    run = RunDir(tree.audit(place, "TEST06") / "performance" / "run_1")
    return Path(shutil.copy(tree.performance(place).detail, run.detail))


# The submitter's files: system, measurements, README.md, user.conf, code ------------------------------------


def system(tree: Tree) -> Path:
    place = some(tree)
    return tree.system(place.division, place.organization, place.system)


def measurements(tree: Tree) -> Path:
    return tree.measurements(some(tree))


def user_conf(tree: Tree) -> Path:
    return tree.user_conf(some(tree))


changed("no_system_description", "system-missing", system, Path.unlink)
changed("broken_system_description", "system-json", system, replaced("{", "{{"))
changed("system_with_a_field_twice", "system-json", system, replaced("{", '{"status": "preview", '))
changed(
    "measurements_with_a_field_twice",
    "measurements-field",
    measurements,
    replaced("{", '{"weight_data_types": "fp32", '),
)


def fields(what: str, file: Change, rule: str, *rows: tuple[str, Any]) -> None:
    """Register other values of fields of a description; None removes the field."""
    for name, value in rows:
        title = f"{what}_{name}_is_{str(value)[:20]!r}"
        changed(title, rule, file, lambda path, entry={name: value}: edit_object(path, **entry))


fields(
    "system", system, "system-field",
    ("cooling", None), ("host_memory_capacity", ""), ("host_storage_type", []), ("framework", "\u200b "),
    ("cooling", ["air"]), ("framework", {"vLLM": [0, 32]}), ("host_memory_capacity", 2.5),
    ("accelerator_model_name", True), ("operating_system", {"kernel": "6.8"}),
)  # fmt: skip
fields(
    "system", system, "system-placeholder",
    ("other_software_stack", {"CUDA": "TBD"}), ("framework", "TODO"), ("cooling", REPLACE_ME),
)  # fmt: skip
fields(
    "system", system, "system-number",
    ("number_of_nodes", "one"), ("number_of_nodes", "0"), ("accelerators_per_node", "\u0668"),
)  # fmt: skip
fields("system", system, "system-status", ("status", "soon"))
fields("system", system, "system-type", ("system_type", "cloud"))
fields("system", system, "system-submitter", ("submitter", "Someone else"))
fields("system", system, "system-division", ("division", "open"))
fields("system", system, "system-network", ("is_network", False), ("is_network", "true"))
fields("system", system, "rehearsal", ("framework", "none (the dummy engine runs no model)"))
changed("no_measurements", "measurements-missing", measurements, Path.unlink)
fields(
    "measurement", measurements, "measurements-field",
    ("weight_data_types", ""), ("weight_data_types", 16), ("input_data_types", ["int32"]),
    ("starting_weights_filename", {"rank 0": {"part": 1}}),
)  # fmt: skip
fields(
    "measurement", measurements, "measurements-retraining",
    ("retraining", "Yes, on the training set"), ("retraining", "fine-tuned on CNN-DailyMail"),
    ("retraining", "no, but for the last layer"), ("retraining", True),
)  # fmt: skip
fields(
    "measurement", measurements, "measurements-fewer-weights",
    ("weight_transformations", "quantization, 2:4 pruned"), ("weight_transformations", "8 layers removed"),
    ("weight_transformations", "2:4 sparse weights"),
)  # fmt: skip


@mutation("suite-benchmark")
def benchmark_of_another_suite(tree: Tree) -> Path:
    place = some(tree)
    edit_object(system(tree), system_type="datacenter" if "edge" in place.benchmark else "edge")
    return tree.scenario(place).parent


@mutation("system-unused")
def description_without_results(tree: Tree) -> Path:
    return Path(shutil.copy(system(tree), system(tree).with_name("another-system.json")))


def _another_model(name: str) -> Change:
    """In the last scenario of the first system."""

    def change(tree: Tree) -> Path | None:
        chosen = some(tree)
        same = [
            place for place in tree.places() if place.benchmark == chosen.benchmark and place.system == chosen.system
        ]
        if len(same) < 2:
            return None
        edit_object(tree.measurements(chosen), starting_weights_filename="meta-llama/Llama-3.1-8B-Instruct")
        return edit_object(tree.measurements(same[-1]), starting_weights_filename=name)

    return change


MUTATIONS += [
    Mutation(f"another_model_{len(name)}", _another_model(name), ("measurements-model",))
    for name in ("meta-llama/Llama-3.2-1B-Instruct", "a small one of ours")
]
changed("empty_readme", "scenario-file", lambda tree: tree.readme(some(tree)), lambda path: path.write_text("\n"))
changed("no_user_conf", "scenario-file", user_conf, Path.unlink)
for _name, _line in (
    ("of_another_run", "".join(f"\n*.{name}.min_duration = 60001" for name in ("Offline", "Server", "SingleStream"))),
    ("with_other_seeds", "\n*.*.schedule_rng_seed = 1\n"),
    ("that_issues_one_sample", "\n*.*.performance_issue_same = 1\n"),
):
    changed(f"user_conf_{_name}", "user-conf-differs", user_conf, added(_line))
changed(
    "user_conf_without_a_target",
    "user-conf-absent",
    lambda tree: (place := first(tree, "Server", "SingleStream")) and tree.user_conf(place),
    lambda path: path.write_text("".join(value for value in path.open() if ".target_" not in value)),
)


@mutation("tree-source")
def no_code(tree: Tree) -> Path:
    place = some(tree)
    path = tree.source(place.division, place.organization)
    shutil.rmtree(path)
    return path


@mutation("tree-source")
def empty_code(tree: Tree) -> Path:
    path = no_code(tree)
    path.mkdir()
    return path


# Where things lie: sets of scenarios, names, kinds and sizes of files, marks of a rehearsal ---------------------------


@mutation("scenario-set")
def no_offline(tree: Tree) -> Path:
    place = first(tree, "Offline")
    assert place is not None
    shutil.rmtree(tree.scenario(place))
    return tree.scenario(place).parent


@mutation("tree-scenario")
def scenario_that_the_benchmark_has_not(tree: Tree) -> Path:
    place = some(tree)
    return copied(tree.scenario(place), "Server" if "edge" in place.benchmark else "SingleStream")


@mutation("tree-case")
def scenario_in_lower_case(tree: Tree) -> Path:
    path = tree.scenario(some(tree))
    return path.rename(path.with_name(path.name.lower()))


def _scenario_file(name: str) -> Change:
    return lambda tree: tree.scenario(some(tree)) / name


for _name, _rule, _change in (
    ("interactive_as_a_benchmark", "tree-benchmark",
     lambda tree: copied(tree.scenario(some(tree)).parent, "llama3.1-8b-interactive")),
    ("scenario_in_two_cases", "tree-case",
     lambda tree: copied(tree.scenario(some(tree)), tree.scenario(some(tree)).name.upper())),
    ("second_run", "tree-unknown", lambda tree: copied(performance(tree).root, "run_2")),
    ("text_of_an_audit_beside_the_logs", "tree-unknown",
     lambda tree: written(performance(tree).root / "verify_accuracy.txt", "TEST PASS")),
    ("dot_file", "tree-dot-file", lambda tree: written(tree.scenario(some(tree)) / ".DS_Store", "x")),
    ("name_with_a_blank", "tree-name", lambda tree: written(tree.scenario(some(tree)) / "read me.txt", "x")),
    ("mark_of_a_rehearsal_in_a_readme", "rehearsal",
     lambda tree: written(tree.readme(some(tree)), "REHEARSAL - NOT FOR UPLOAD\n")),
    ("file_of_a_rehearsal", "rehearsal", lambda tree: written(tree.rehearsal_file(), "it was not meant seriously\n")),
):  # fmt: skip
    MUTATIONS.append(Mutation(_name, _change, (_rule,)))
changed(
    "symbolic_link_for_a_log",
    "tree-symlink",
    summary,
    lambda path: [path.unlink(), path.symlink_to("mlperf_log_detail.txt")],
)
changed("loop_of_links", "tree-symlink", _scenario_file("performance/again"), lambda path: path.symlink_to(".."))
changed("pipe_for_a_log", "tree-special", accuracy_log, lambda path: [path.unlink(), os.mkfifo(path)])
changed(
    "file_above_50_mb",
    "tree-size",
    lambda tree: performance(tree).trace,
    lambda path: [path.touch(), os.truncate(path, 60 << 20)],
)
