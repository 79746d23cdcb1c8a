"""The kind of a path, and the commands that a refusal names."""

from pathlib import Path

import pytest

from runs.harness import PROGRAM
from runs.record.layout import LOADGEN_LOGS
from runs.what_is import what_is

LOGS = "verify it with `main.py verify {}`, store it with `main.py store ingest {}`, or check its submission tree"


@pytest.mark.parametrize(
    ("file", "text", "fix"),
    [
        (None, "is empty", "name runs"),
        ("notes.txt", "has no run in it", "name runs"),
        ("closed/Example/README.md", "is a submission tree", "check it with `main.py check {}`"),
        ("mlperf_log_detail.txt", "has LoadGen's logs, but no manifest.json of this harness", LOGS),
        ("events.jsonl", "is a run directory of the MLPerf Endpoints client", "verify it with `main.py verify {}`"),
        ("manifest.json", "is a run directory of this harness", "verify it with `main.py verify {}`"),
        ("campaign.json", "is the directory of a campaign", "show its state with `main.py status {}`"),
        ("bench.json", "is the directory of a bench", "verify it with `main.py verify {}`"),
        ("deep/a/mlperf_log_summary.txt", "has LoadGen's logs without a manifest.json of this harness in its "
         "subdirectories, such as deep/a", LOGS.replace("{}", "{}/deep/a")),
        ("performance/run_1/mlperf_log_detail.txt", "has LoadGen's logs without a manifest.json of this harness in its "
         "subdirectories, such as performance/run_1", LOGS),
        ("results/s/m/r4/point.yaml", "is a submission tree", "check it with `main.py check {}`"),
        ("b/manifest.json", "has runs in its subdirectories, such as b", "verify it with `main.py verify {}/b`"),
    ],
)  # fmt: skip
def test_a_directory_is_named_with_the_commands_that_read_it(
    tmp_path: Path, file: str | None, text: str, fix: str
) -> None:
    root = tmp_path / "root"
    path = root / (file or "")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("") if file else path.mkdir()
    error = what_is(root).refused("runs")
    required = "" if fix == "name runs" else "; required: runs"  # once is enough
    assert error.message == f"{root} {text}{required}"
    assert str(error.fix).startswith(fix.replace("{}", str(root)).replace("`main.py", f"`{PROGRAM}"))


def test_marks_of_a_directory_take_precedence_over_its_subdirectories(tmp_path: Path) -> None:
    (tmp_path / "open" / "Example" / "events").mkdir(parents=True)
    (tmp_path / "open" / "Example" / "events" / "events.jsonl").touch()
    assert what_is(tmp_path).kind == "tree"
    assert what_is(tmp_path / "open").kind == "endpoints"
    assert what_is(tmp_path / "open").inside == tmp_path / "open" / "Example" / "events"


def test_files_and_missing_paths_are_described(tmp_path: Path) -> None:
    (tmp_path / LOADGEN_LOGS[0]).touch()
    assert what_is(tmp_path / "none").text == "does not exist"
    place = what_is(tmp_path / LOADGEN_LOGS[0])
    assert (place.text, place.fix) == ("is a file, not a directory", f"give its directory, {tmp_path}")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes").touch()
    assert what_is(tmp_path / "a" / "notes").fix == ""


def test_the_fix_for_endpoints_runs_names_a_run_and_the_directory(tmp_path: Path) -> None:
    (tmp_path / "accuracy").mkdir()
    (tmp_path / "accuracy" / "events.jsonl").touch()
    fix = what_is(tmp_path).fix
    assert f"verify {tmp_path / 'accuracy'}`" in fix
    assert f"check {tmp_path}`" in fix


@pytest.mark.parametrize("inside", ["results", "results/system/model", "results/system/model/r8"])
def test_the_fix_for_a_part_of_an_endpoints_tree_names_the_tree(inside: str, tmp_path: Path) -> None:
    point = tmp_path / "results" / "system" / "model" / "r8"
    point.mkdir(parents=True)
    (point / "point.yaml").touch()
    assert what_is(tmp_path / inside).fix == f"give the submission tree, {tmp_path.resolve()}"
