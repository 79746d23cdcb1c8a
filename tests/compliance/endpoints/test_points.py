"""A change of a file in a submission tree of MLPerf Endpoints is found, by the rule on what was changed."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from compliance.endpoints.submission import check_folders
from main import main as run_command
from runs.errors import ExitCode
from tests.support.endpoints_changes import Change, at, both, in_config, in_json, times

POINT, SUMMARY = "point.yaml", "result_summary.json"


def in_point(path: str, value: Any) -> Change:
    def edit(folder: Path) -> None:
        content = yaml.safe_load((folder / POINT).read_text())
        at(path, value)(content)
        (folder / POINT).write_text(yaml.safe_dump(content))

    return edit


def in_summary(path: str, value: Any) -> Change:
    return in_json(SUMMARY, at(path, value))


def half_the_time(folder: Path) -> None:
    both(*(in_summary(name, times(factor)) for name, factor in (("duration_ns", 0.5), ("qps", 2.0), ("tps", 2.0))))(
        folder
    )


# Changes of the point of concurrency 8, and the rules that find them.
CHANGES: dict[str, tuple[Change, str]] = {
    "nothing": (both(), ""),
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
def test_a_change_of_a_point_is_found(change: str, tree: Path, tmp_path: Path) -> None:
    edit, rules = CHANGES[change]
    root = Path(shutil.copytree(tree, tmp_path / "tree"))
    edit(root / "results" / "BOX" / "model" / "r8")
    checked = check_folders([root])
    warned = {one.rule.removeprefix("endpoints-point-") for one in checked.of("error", "warning")}
    assert warned >= set(rules.split())
    assert bool(warned) == bool(rules)
    assert len(checked.points) == 2
    assert "2 points" in next(checked.lines())


def test_check_reads_a_tree_without_the_official_checker(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["check", str(tree)]) == ExitCode.OK
    assert "2 points of MLPerf Endpoints" in capsys.readouterr().out
