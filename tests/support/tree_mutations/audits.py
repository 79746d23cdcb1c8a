"""TEST06: its text, its answers, its run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compliance.submission.tree import Tree
from runs.record.layout import RunDir
from tests.support.tree_mutations.registry import edit, edit_text, first, log_value, mutation, removal


def _audited(tree: Tree) -> Path | None:
    """A TEST06 directory that has its answers."""
    folders = (tree.audit(place, "TEST06") for place in tree.places())
    return next((folder for folder in folders if (folder / "accuracy" / "mlperf_log_accuracy.json").is_file()), None)


def _text(tree: Tree) -> Path | None:
    folder = _audited(tree)
    return folder and folder / "verify_accuracy.txt"


def _answers(tree: Tree) -> Path | None:
    folder = _audited(tree)
    return folder and folder / "accuracy" / "mlperf_log_accuracy.json"


def _run(tree: Tree) -> RunDir | None:
    folders = (tree.audit(place, "TEST06") / "performance" / "run_1" for place in tree.places())
    return next((RunDir(folder) for folder in folders if folder.is_dir()), None)


@mutation("audit-missing")
def no_audit(tree: Tree) -> Path | None:
    place = first(tree, "Server", "Interactive")
    if place is None:
        return None
    shutil.rmtree(tree.audit(place, "TEST06"))
    return tree.audit(place, "TEST06")


edit("audit_text_says_no", "audit-text", file=_text, old="EOS check pass: True", new="EOS check pass: False")
edit(
    "audit_text_says_no_and_yes",
    "audit-text",
    file=_text,
    old="EOS check pass: True",
    new="EOS check pass: False\nEOS check pass: True",
)
edit(
    "audit_text_ends_in_failed",
    "audit-text",
    file=_text,
    old="verification complete",
    new="verification failed",
)


for _name, _line in {
    "in_capitals": "EOS check pass: FALSE",
    "in_another_word": "First token check pass: no",
    "with_blanks": "Sample length check pass:  False",
    "of_all": "TEST06 Verification failed!",
}.items():
    edit(
        f"audit_text_says_no_{_name}",
        "audit-text",
        file=_text,
        old="TEST06 verification complete",
        new=f"{_line}\nTEST06 verification complete",
    )


@mutation("audit-text")
def audit_skips_first_tokens_in_server(tree: Tree) -> Path | None:
    place = first(tree, "Server", "Interactive")
    if place is None:
        return None
    path = tree.audit(place, "TEST06") / "verify_accuracy.txt"
    return edit_text(path, "First token check pass: True", "First token check pass: Skipped")


removal("no_answers_in_the_audit", "audit-log", _answers)


def _change_answers(tree: Tree, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Path | None:
    path = _answers(tree)
    if path is not None:
        path.write_text(json.dumps(change(json.loads(path.read_text()))))
    return path


@mutation("test06-count")
def empty_audit_log(tree: Tree) -> Path | None:
    return _change_answers(tree, lambda entries: [])


@mutation("test06-count")
def an_audit_answer_left_out(tree: Tree) -> Path | None:
    return _change_answers(tree, lambda entries: entries[:-1])


@mutation("audit-answers")
def one_query_answered_twice(tree: Tree) -> Path | None:
    return _change_answers(tree, lambda entries: [*entries[:-1], entries[0]])


@mutation("test06-token-count")
def a_wrong_token_count(tree: Tree) -> Path | None:
    return _change_answers(tree, lambda entries: [{**entries[0], "token_count": 1}, *entries[1:]])


@mutation("test06-end-once")
def padded_with_end_of_sequence(tree: Tree) -> Path | None:
    end = (128009).to_bytes(4, "little").hex().upper()
    return _change_answers(
        tree,
        lambda entries: [
            {**entries[0], "data": entries[0]["data"][:32] + end * 3, "token_count": 7},
            *entries[1:],
        ],
    )


log_value(
    "audit_run_without_audit_settings",
    "audit-settings",
    run=_run,
    key="effective_accuracy_log_sampling_target",
    value=0,
)
log_value("audit_run_with_other_seeds", "perf-seeds", run=_run, key="effective_schedule_rng_seed", value=5)
log_value("audit_run_years_before", "log-dates", run=_run, key="power_begin", value="01-01-2019 00:00:00.000")


@mutation("log-duplicate")
def the_performance_log_as_audit(tree: Tree) -> Path | None:
    place = next((one for one in tree.places() if (tree.audit(one, "TEST06") / "performance").is_dir()), None)
    if place is None:
        return None
    run = RunDir(tree.audit(place, "TEST06") / "performance" / "run_1")
    return Path(shutil.copy(tree.performance(place).detail, run.detail))


@mutation("plausible-shared-answers")
def audit_has_one_answer_for_all(tree: Tree) -> Path | None:
    path = _answers(tree)
    if path is None:
        return None
    entries = json.loads(path.read_text())
    width = len(entries[0]["data"]) // entries[0]["token_count"]  # hexadecimal digits an id
    ids = [(1000 + number).to_bytes(width // 2, "little").hex().upper() for number in range(20)]
    kept = {"data": "".join(ids), "token_count": len(ids)}
    kept |= {"token_data": ids[0]} if "token_data" in entries[0] else {}
    path.write_text(json.dumps([{**entry, **kept} for entry in entries]))
    return path
