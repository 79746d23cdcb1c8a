"""Changes of a file in a submission tree of MLPerf Endpoints: each violates the rule on the changed value."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from compliance.judge.text import text
from compliance.mlperf_endpoints.round_tables import round_tables
from compliance.mlperf_endpoints.submission import CURVE, check_folders
from main import main as run_command
from runs.errors import ExitCode
from tests.support.mlperf_endpoints.folder_changes import Change, combined, in_config, in_json, set_at_path, times

POINT, SUMMARY = "point.yaml", "result_summary.json"


def in_point(path: str, value: Any) -> Change:
    def edit(folder: Path) -> None:
        content = yaml.safe_load((folder / POINT).read_text())
        set_at_path(path, value)(content)
        (folder / POINT).write_text(yaml.safe_dump(content))

    return edit


def in_summary(path: str, value: Any) -> Change:
    return in_json(SUMMARY, set_at_path(path, value))


def half_the_time(folder: Path) -> None:
    combined(*(in_summary(name, times(factor)) for name, factor in (("duration_ns", 0.5), ("qps", 2.0), ("tps", 2.0))))(
        folder
    )


# Changes of the point of concurrency 8, and the rules that they violate.
CHANGES: dict[str, tuple[Change, str]] = {
    "nothing": (combined(), ""),
    "another concurrency declared": (in_point("concurrency", 16), "settings"),
    "another directory": (lambda folder: folder.rename(folder.parent / "r16"), "settings"),
    "another concurrency configured": (in_config("settings/load_pattern/target_concurrency", 7), "settings open"),
    "another seed declared": (in_point("runtime_settings/runtime/scheduler_rng_seed", 1), "settings"),
    "another seed in the summary": (in_summary("run_config/dataloader_random_seed", 1), "settings"),
    "another model declared": (in_point("model_name", "other"), "settings"),
    "another model configured": (in_config("model_params/name", "other"), "settings"),
    "a higher QPS": (in_summary("qps", times(1.1)), "numbers"),
    "a higher TPS": (in_summary("tps", times(1.1)), "numbers"),
    "half the time": (half_the_time, "open"),
    "fewer completed": (in_summary("n_samples_completed", 50), "numbers"),
    "more failed": (in_summary("n_samples_failed", 100), "numbers"),
    "a lower mean latency": (in_summary("latency/avg", times(0.9)), "numbers"),
    "a lower p90": (in_summary("tpot/percentiles/90.0", times(0.01)), "numbers"),
    "first tokens after the whole": (in_summary("latency/percentiles/50.0", times(0.1)), "numbers"),
    "numbers of another point": (
        lambda folder: shutil.copy(folder.parent / "r24" / SUMMARY, folder / SUMMARY),
        "copies",
    ),
}


@pytest.fixture(scope="module")
def tree(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("points") / "tree"
    folders = [str(recorded / name) for name in ("concurrency", "offline")]
    command = [
        "submit",
        *folders,
        "--organisation",
        "ORG",
        "--system-name",
        "BOX",
        "--output",
        str(root),
        "--rehearsal",
    ]
    assert run_command(command) == ExitCode.OK
    return root


@pytest.mark.parametrize("change", CHANGES)
def test_each_changed_point_violates_its_rules(change: str, tree: Path, tmp_path: Path) -> None:
    edit, rules = CHANGES[change]
    root = Path(shutil.copytree(tree, tmp_path / "tree"))
    edit(root / "results" / "BOX" / "model" / "r8")
    checked = check_folders([root])
    of_points = [finding for finding in checked.of("error", "warning") if finding.rule.startswith("endpoints-point-")]
    warned = {finding.rule.removeprefix("endpoints-point-") for finding in of_points}
    assert warned >= set(rules.split())
    assert bool(warned) == bool(rules)
    assert len(checked.details.point_folders) == 2
    assert "2 points" in text(checked, CURVE)


def test_a_rehearsal_fails_without_the_official_checker(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["check", str(tree)]) == ExitCode.NEGATIVE
    text = capsys.readouterr().out
    assert "2 points of MLPerf Endpoints, round v1.0: FAIL" in text
    for rule in ("rehearsal", "files", "fields", "model", "capacity", "points"):
        assert f"FAIL endpoints-tree-{rule}: " in text


FACTS = {
    "division": "Standardized", "model_precision": "bf16", "link_to_model": "URL", "dataset_link": "URL",
    "shared_src": "src/vllm", "shared_docs": "docs", "seed_set": "A", "target_cohort": "2026-10-C1",
}  # fmt: skip


@pytest.fixture(scope="module")
def complete_tree(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree of 8 points with all files and fields. The content of the files is not that of a submission."""
    root = tmp_path_factory.mktemp("whole") / "tree"
    old, new = tree / "results" / "BOX" / "model", root / "results" / "BOX" / "llama3_1-8b"
    for concurrency in (1, 2, 4, 8, 16, 24, 32, 64):
        place = Path(shutil.copytree(old / ("r24" if concurrency == 24 else "r8"), new / f"r{concurrency}"))
        point = yaml.safe_load((place / POINT).read_text()) | FACTS
        point |= {"model_name": "llama3_1-8b", "concurrency": concurrency, "max_supported_concurrency": 64}
        point["runtime_settings"]["runtime"] |= round_tables().seed_sets[0].seeds
        (place / POINT).write_text(yaml.safe_dump(point))
        (place / "system_desc.json").write_text("{}")
        if concurrency in (1, 4, 8, 24, 64):  # a point of each region, and the Offline run
            (place / "accuracy_results.json").write_text('{"cnn": {"score": 1.0}}')
    (root / "docs").mkdir()
    (root / "src" / "vllm").mkdir(parents=True)
    (root / "src" / "vllm" / "README.md").write_text("build")
    (root / "results" / "BOX" / "system_power.json").write_text("{}")
    return root


R8 = "results/BOX/llama3_1-8b/r8"
# Changes of a complete tree, and the rule and the text of the finding.
INCOMPLETE: dict[str, tuple[Change, str, str]] = {
    "no result_summary.json": (lambda root: (root / R8 / SUMMARY).unlink(), "files", f"{R8}/{SUMMARY}"),
    "no config.yaml": (lambda root: (root / R8 / "config.yaml").unlink(), "files", f"{R8}/config.yaml"),
    "no system_desc.json": (lambda root: (root / R8 / "system_desc.json").unlink(), "files", "system_desc.json"),
    "no accuracy results": (
        lambda root: (root / R8 / "accuracy_results.json").unlink(),
        "accuracy",
        "no results in medium",
    ),
    "no docs": (lambda root: (root / "docs").rmdir(), "files", "docs/"),
    "no README.md": (lambda root: (root / "src/vllm/README.md").unlink(), "files", "src/vllm/README.md"),
    "no src": (lambda root: shutil.rmtree(root / "src"), "files", "src/<implementation>/README.md"),
    "no power": (lambda root: (root / "results/BOX/system_power.json").unlink(), "files", "BOX/system_power.json"),
    "a mark": (lambda root: (root / "REHEARSAL.txt").touch(), "rehearsal", "REHEARSAL.txt"),
    "no division": (lambda root: in_point("division", None)(root / R8), "fields", "division"),
    "no seed of the model": (
        lambda root: in_point("runtime_settings/runtime/model_seed", None)(root / R8),
        "fields",
        "runtime_settings.runtime.model_seed",
    ),
    "another model": (lambda root: in_point("model_name", "other")(root / R8), "model", "other"),
    "a low capacity": (lambda root: in_point("max_supported_concurrency", 32)(root / R8), "capacity", "32"),
    "a list as capacity": (lambda root: in_point("max_supported_concurrency", [64])(root / R8), "capacity", "[64]"),
    "7 points": (lambda root: shutil.rmtree(root / R8.replace("/r8", "/r2")), "points", "7"),
}


def missing_parts(root: Path) -> dict[str, str]:
    findings = check_folders([root]).of("error")
    tree_rules = (finding for finding in findings if finding.rule.startswith("endpoints-tree-"))
    return {finding.rule.removeprefix("endpoints-tree-"): finding.found for finding in tree_rules}


def test_a_complete_tree_has_no_missing_parts(complete_tree: Path) -> None:
    assert missing_parts(complete_tree) == {}


@pytest.mark.parametrize("change", INCOMPLETE)
def test_an_incomplete_tree_names_the_missing_part(change: str, complete_tree: Path, tmp_path: Path) -> None:
    edit, rule, text = INCOMPLETE[change]
    edit(root := Path(shutil.copytree(complete_tree, tmp_path / "tree")))
    missing = missing_parts(root)
    assert text in missing[rule]
    assert missing.keys() == {rule}


def test_a_forged_rate_fails_although_the_tree_is_complete(complete_tree: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(complete_tree, tmp_path / "tree"))
    in_summary("qps", 999)(root / R8)
    numbers = [finding for finding in check_folders([root]).of("error") if finding.rule == "endpoints-point-numbers"]
    assert [number.files[0].parent for number in numbers] == [root / R8]
    assert "qps: 999" in numbers[0].found


@pytest.mark.parametrize("edit", [None, SUMMARY, "config.yaml", POINT])
def test_a_tree_that_differs_from_its_runs_fails(
    edit: str | None, tree: Path, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(tree, tmp_path / "tree"))
    place = root / "results" / "BOX" / "model" / "r8"
    if edit == POINT:
        in_point("dataset", "other")(place)
    elif edit is not None:
        (place / edit).write_text((place / edit).read_text() + "\n")
    runs = [text for name in ("concurrency", "offline") for text in ("--runs", str(recorded / name))]
    assert run_command(["check", str(root), *runs]) == ExitCode.NEGATIVE  # a rehearsal
    text = capsys.readouterr().out
    assert ("FAIL endpoints-runs" in text) == (edit is not None)
    assert edit is None or f"files and fields that differ from the run: {edit}" in text


def test_options_that_do_not_apply_are_refused(
    tree: Path, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submit = ["submit", str(recorded / "offline"), "--organization", "O", "--system-name", "S", "--output", "tree"]
    options = {"--division": "open", "--round": "v5.0", "--system": "system.yaml", "--source": "src"}
    for command, refused in ((submit, options), (["check", str(tree)], options | {"--against": "other"})):
        for name, value in refused.items():
            if (command[0], name) != ("check", "--division"):
                assert run_command([*command, name, value]) == ExitCode.BAD_INPUT
                assert f"{name}: not supported for" in capsys.readouterr().err


def test_submit_keeps_the_given_fields_of_a_point(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, root = Path(shutil.copytree(recorded / "concurrency", tmp_path / "run")), tmp_path / "tree"
    facts: dict[str, Any] = {"division": "RDI", "runtime_settings": {"runtime": {"model_seed": 1}}}
    (run / POINT).write_text(yaml.safe_dump(facts))
    command = ["submit", str(run), "--organization", "O", "--system-name", "S", "--rehearsal", "--output", str(root)]
    assert run_command(command) == ExitCode.OK
    text = capsys.readouterr().out
    assert "missing fields of point.yaml: model_precision, link_to_model" in text
    assert "runtime.model_seed" not in text
    point = yaml.safe_load((root / "results" / "S" / "model" / "r8" / POINT).read_text())
    assert point["division"] == "RDI"
    assert point["runtime_settings"]["runtime"] == {
        "scheduler_rng_seed": 42, "sample_index_rng_seed": 42, "model_seed": 1,
    }  # fmt: skip
    (run / POINT).write_text(yaml.safe_dump({"concurrency": 9}))
    assert run_command([*command[:-1], str(tmp_path / "other")]) == ExitCode.BAD_INPUT
    assert "concurrency is 9, the run has 8" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "text"), [("server-died", "failed samples: 3"), ("interrupted", "never completed")])
def test_a_rehearsal_with_missing_responses_is_refused(
    name: str, text: str, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["submit", str(recorded / name), "--organization", "O", "--system-name", "S", "--rehearsal"]
    assert run_command([*command, "--output", str(tmp_path / "tree")]) == ExitCode.NEGATIVE
    shown = capsys.readouterr().out
    assert text in shown
    assert f"[{recorded / name}" in shown
