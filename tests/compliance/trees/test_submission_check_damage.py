"""`check` on arbitrary trees: the outcome is always findings."""

import json
import os
import random
from pathlib import Path

import pytest

from compliance.judge.record import finding_record
from compliance.trees import findings, layout
from compliance.trees.findings import file_text
from compliance.trees.tree import Tree
from runs.errors import InputError
from runs.record.layout import LOADGEN_LOGS
from runs.rounds import CURRENT_ROUND, ROUNDS
from tests.support.files.damage import deep_folder
from tests.support.trees.checked_tree import check_submission_tree
from tests.untrusted.sandbox import run_in_sandbox

PATHS = (
    *(f"results/sys/llama3.1-8b/Offline/performance/run_1/{name}" for name in LOADGEN_LOGS),
    *(f"results/sys/llama3.1-8b/Offline/accuracy/{name}" for name in (*LOADGEN_LOGS, "accuracy.txt")),
    "results/sys/llama3.1-8b/Offline/TEST06/verify_accuracy.txt",
    "results/sys/llama3.1-8b/Offline/TEST06/accuracy/mlperf_log_accuracy.json",
    "results/sys/llama3.1-8b/Offline/TEST06/performance/run_1/mlperf_log_detail.txt",
    "results/sys/llama3.1-8b/Offline/measurements.json",
    "results/sys/llama3.1-8b/Offline/user.conf",
    "results/sys/llama3.1-8b/Offline/README.md",
    "results/sys/llama3.1-8b/Server/user.conf",
    "systems/sys.json",
    "src/main.py",
    "model_mapping.json",
)
LOG_LINE = (
    b':::MLLOG {"key": "%s", "value": %s, "time_ms": 0.1, "namespace": "n", "event_type": "POINT_IN_TIME", '
    b'"metadata": {"is_error": false, "is_warning": false, "file": "f", "line_no": 1, "pid": 1, "tid": 1}}\n'
)
KEYS = (b"effective_scenario", b"effective_test_mode", b"result_validity", b"power_end", b"qsl_reported_total_count")
CONTENTS = (
    b"",
    b"\n",
    b"\x00" * 4096,
    bytes(range(256)) * 40,
    b"\xff\xfe" + "text".encode("utf-16"),
    b"x" * 3_000_000,
    b"[" * 100_000,
    b"null",
    b"[]",
    b"{}",
    b'{"division": null, "status": [], "number_of_nodes": {}, "submitter": 1e999}',
    b'[{"seq_id": 1}]',
    b'{"one": ["llama3.1-8b"], "two": {"a": NaN}, "three": 1.5, "retraining": ["no"], "framework": {"a": [1]}}',
    b'{"one": ["llama3.1-8b"], "two": {"a": 1}, "three": null, "retraining": ["no"], "framework": {"a": [1]}}',
    b":::MLLOG {}\n",
    b"".join(LOG_LINE % (key, b'"Offline"') for key in KEYS),
    b"".join(LOG_LINE % (key, b"99999999999999999999") for key in KEYS),
    b"'rouge1': '1.2.3' 'gen_len': 9.9.9\nhash=\n",
    "'rouge1': '٣٤'\n*.Offline.target_qps = nan\n*.*.min_duration = inf\n".encode(),
)


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: repr(content[:16]))
@pytest.mark.parametrize("division", ["closed", "open"])
def test_files_of_equal_damaged_content_are_reported(tmp_path: Path, content: bytes, division: str) -> None:
    for name in PATHS:
        write(tmp_path / division / "Example" / name, content)
    broken = check_submission_tree(tmp_path, CURRENT_ROUND).findings
    assert {"log-damaged", "system-missing", "system-json", "system-field"} & {item.rule for item in broken}


def test_arbitrary_trees_raise_no_exception(tmp_path: Path) -> None:
    """Files, directories, links and pipes have odd names in any place."""
    chance = random.Random(20)
    for number in range(60):
        root = tmp_path / str(number)
        for name in PATHS:
            path = root / chance.choice(["closed", "open", "network", "Closed"]) / "Example" / name
            kind = chance.randrange(6)
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == 0:
                path.mkdir()
            elif kind == 1:
                path.symlink_to(chance.choice(["..", "nowhere", path.name, "/dev/zero"]))
            elif kind == 2:
                os.mkfifo(path)
            else:
                write(path, chance.choice(CONTENTS))
        (root / "closed").mkdir(exist_ok=True)
        (root / "closed" / os.fsdecode(b"\xff\n\x1b[31m name")).write_bytes(b"x")
        (root / "closed" / "loop").symlink_to(".", target_is_directory=True)
        broken = check_submission_tree(root, chance.choice(list(ROUNDS.values()))).findings
        assert broken
        assert all(file_text(item).isprintable() and item.found.isprintable() for item in broken)
        json.dumps([finding_record(item) for item in broken]).encode()


def test_long_names_and_deep_folders_take_limited_time(tmp_path: Path) -> None:
    """The names take long to compare, and the folders are deep."""
    for scenario, sign in (("Offline", "ab"), ("Server", "ac")):
        folder = tmp_path / "closed/Example/results/sys/llama3.1-8b" / scenario
        write(folder / "measurements.json", json.dumps({"starting_weights_filename": sign * 100_000}).encode())

    def work(number: int) -> str:
        return ",".join(sorted({finding.rule for finding in check_submission_tree(tmp_path, CURRENT_ROUND).findings}))

    with deep_folder(tmp_path / "closed/Example"):
        ((_, output),) = run_in_sandbox(work, 1)
    assert "measurements-model" in output


def test_the_number_of_findings_of_one_rule_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a million findings needed 900 MB of memory."""
    monkeypatch.setattr(findings, "MAX_OF_A_RULE", 20)
    for number in range(50):
        write(tmp_path / f"closed/Example/src/.file {number}", b"")
    broken = [item for item in check_submission_tree(tmp_path, CURRENT_ROUND).findings if item.rule == "tree-dot-file"]
    assert len(broken) == 21
    assert [item.sentence for item in broken if file_text(item) == "."] == ["30 more findings of this rule in the tree"]
    entries = len([*tmp_path.rglob("*")])
    monkeypatch.setattr(layout, "MAX_ENTRIES", entries)
    assert check_submission_tree(tmp_path, CURRENT_ROUND).findings
    monkeypatch.setattr(layout, "MAX_ENTRIES", entries - 1)
    with pytest.raises(InputError, match=r"more than 52 files and directories \(50 in .*closed/Example/src"):
        check_submission_tree(tmp_path, CURRENT_ROUND)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("x")])
def test_a_path_that_is_not_a_tree_is_refused(tmp_path: Path, make: object) -> None:
    path = tmp_path / "tree"
    make(path)  # type: ignore[operator]
    with pytest.raises(InputError):
        check_submission_tree(path, CURRENT_ROUND)


def test_a_tree_of_empty_directories_is_refused(tmp_path: Path) -> None:
    Tree(tmp_path).results("closed", "Example").mkdir(parents=True)
    with pytest.raises(InputError, match="no files in closed"):
        check_submission_tree(tmp_path, CURRENT_ROUND)
