"""What a round asks of real run folders, what they lack to be submitted, and the official checker relayed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from compliance.accuracy.scores import score_texts
from compliance.endpoints.folder_rules import Case
from compliance.endpoints.rules import ACCURACY, rescored, round_rules
from compliance.endpoints.submission import check_folders, is_for_endpoints, regions, run_checker, run_folders
from compliance.endpoints.verdict import judge_folder
from main import main as run_command
from runs.endpoints.folder import SUMMARY, EndpointsRun
from runs.errors import ExecutionError, ExitCode, InputError
from tests.support.endpoints_client import unpack, write_data

SEEDS = round_rules()["seed_sets"]["A"]
Change = Callable[[Any], None]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("recorded"))


def _edit(folder: Path, change: Change) -> None:
    path = folder / "config.yaml"
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content))


def _as_asked(config: Any) -> None:
    config["model_params"]["name"] = "meta-llama/Llama-3.1-8B-Instruct"
    config["datasets"][0]["name"] = "cnn_dailymail::llama3_8b"
    config["settings"]["runtime"] |= SEEDS


# What the recorded folder does not keep: it is small, and its order follows from other seeds.
ALWAYS = {"endpoints-rule-dataset", "endpoints-rule-duration"}
CHANGES: dict[str, tuple[Change, set[str]]] = {
    "nothing": (lambda config: None, set()),
    "another model": (lambda config: config["model_params"].update(name="other"), {"endpoints-rule-model"}),
    "poisson": (
        lambda config: config["settings"]["load_pattern"].update(type="poisson", target_qps=1.0),
        {"endpoints-rule-pattern"},
    ),
    "temperature": (lambda config: config["model_params"].update(temperature=1.0), {"endpoints-rule-sampling"}),
    "longer answers": (lambda config: config["model_params"].update(max_new_tokens=256), {"endpoints-rule-sampling"}),
    "one seed": (
        lambda config: config["settings"]["runtime"].update(scheduler_random_seed=42),
        {"endpoints-rule-seeds"},
    ),
    "no streaming": (lambda config: config["model_params"].update(streaming="off"), {"endpoints-rule-streaming"}),
    "warm-up of the data": (
        lambda config: config["settings"]["warmup"].update(enabled=True, n_requests=1),
        {"endpoints-rule-warm-up"},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_is_held_to_the_round(change: str, recorded: Path, tmp_path: Path) -> None:
    edit, rules = CHANGES[change]
    shutil.copytree(recorded / "concurrency", tmp_path / "run")
    _edit(tmp_path / "run", _as_asked)
    _edit(tmp_path / "run", edit)
    verdict = judge_folder(tmp_path / "run", official=True)
    told = {one.rule for one in verdict.of("error", "warning") if one.kind == "official"}
    unknown = {"endpoints-rule-dataset"} if change == "another model" else set()  # nothing is said of its data set
    of_points = {"endpoints-rule-duration"} if change == "poisson" else set()
    assert told == (ALWAYS | rules) - unknown - of_points
    assert "steady state and power" in verdict.not_judged
    assert ("data set" in verdict.not_judged) == (change == "another model")


def test_failures_and_parts_of_a_pass_are_told(recorded: Path) -> None:
    told = {one.rule for one in judge_folder(recorded / "server-died", official=True).of("error")}
    assert {"endpoints-rule-failures", "endpoints-rule-samples"} <= told


def test_an_unknown_round_is_refused() -> None:
    with pytest.raises(InputError, match=r"v1\.0"):
        round_rules("v9")


def _scored(folder: Path, data: Path) -> dict[str, float]:
    """The folder's answers scored by ROUGE, as its client would have written it."""
    _edit(folder, lambda config: config["datasets"][1]["accuracy_config"].update(eval_method="rouge"))
    run = EndpointsRun(folder)
    assert run.events is not None
    index = run.sample_index("scored")
    rows = [json.loads(line)["highlights"] for line in data.read_text().splitlines()]
    pairs = [(answer.text, rows[index[row]]) for row, answer in run.events.answers() if index[row] >= 0]
    assert len(pairs) == len(rows)
    return score_texts([text for text, _ in pairs], [reference for _, reference in pairs])


@pytest.mark.parametrize("changed", [None, "rouge1", "rougeLsum", "gen_len"])
def test_rouge_is_scored_again(changed: str | None, recorded: Path, tmp_path: Path) -> None:
    folder, data = tmp_path / "run", tmp_path / "prompts.jsonl"
    shutil.copytree(recorded / "accuracy", folder)
    write_data(data)
    scores = _scored(folder, data)
    told = {name: f"{value + 1 if name == changed else value}" for name, value in scores.items()}
    (folder / "accuracy").mkdir(exist_ok=True)
    content = {"accuracy_scores": [{"dataset_name": "scored", "dataset_type": "accuracy", "score": told}]}
    (folder / ACCURACY).write_text(json.dumps(content))
    findings = list(rescored(Case(EndpointsRun(folder), dataset_path=data)))
    assert len(findings) == len(scores)
    assert {one.text.split()[1] for one in findings if not one.passed} == ({changed} if changed else set())


def test_a_data_set_of_too_few_rows_is_refused(recorded: Path, tmp_path: Path) -> None:
    folder, data = tmp_path / "run", tmp_path / "prompts.jsonl"
    shutil.copytree(recorded / "accuracy", folder)
    data.write_text('{"highlights": "one"}\n{"highlights": "two"}\n')
    _edit(folder, lambda config: config["datasets"][1]["accuracy_config"].update(eval_method="rouge"))
    with pytest.raises(InputError, match="2 rows"):
        list(rescored(Case(EndpointsRun(folder), dataset_path=data)))


def test_the_folders_of_a_curve_are_found_without_those_of_audits(recorded: Path) -> None:
    assert run_folders(recorded / "audit-honest") == [recorded / "audit-honest"]
    assert recorded / "audit-honest" in run_folders(recorded)
    assert not any("reference" in str(folder) for folder in run_folders(recorded))
    assert not is_for_endpoints(recorded / "nowhere")


def test_what_folders_lack_is_listed(recorded: Path) -> None:
    checked = check_folders([recorded])
    told = {one.rule for one in checked.of("error", "warning", "note")}
    assert {"endpoints-file", "endpoints-points", "endpoints-offline", "endpoints-tree"} <= told
    assert any("point.yaml" in line for line in checked.lines())
    assert checked.record()["official"] == {"run": False}


def test_regions_are_those_of_the_rules() -> None:
    """Example B of the rules' §5.4, and one of 32."""
    assert regions([1, 256], 32) == {"ultra low": (1, 32), "low": (2, 7), "medium": (8, 41), "high": (42, 256)}
    assert list(regions([8, 32], 32)) == ["ultra low"]


def _checker(folder: Path, said: str, code: int) -> str:
    """A program that says this, in the place of the official checker."""
    path = folder / "checker"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


def test_the_official_checker_is_relayed(tmp_path: Path, recorded: Path) -> None:
    results = [
        {"severity": "info", "rule": "path-exists", "message": "there", "passed": True},
        {"severity": "error", "rule": "src-dir", "message": "Missing src/ directory", "passed": False},
    ]
    program = _checker(tmp_path, json.dumps({"results": results}), 1)
    checked = check_folders([recorded / "concurrency"])
    checked.official = run_checker(program, recorded)
    assert (checked.official.outcome, checked.official.exit_code) == ("errors", 1)
    assert checked.outcome == "FAIL"
    assert any("error src-dir: Missing src/ directory" in line for line in checked.lines())
    assert checked.record()["official"]["run"] is True


@pytest.mark.parametrize("said", ["a traceback", "{}", '{"results": [1]}'])
def test_a_checker_that_says_nothing_is_told(said: str, tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="nothing that can be read"):
        run_checker(_checker(tmp_path, said, 2), tmp_path)


def test_submit_writes_what_folders_tell(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree, folders = tmp_path / "tree", [str(recorded / name) for name in ("concurrency", "offline")]
    command = ["submit", *folders, "--organisation", "ORG", "--system-name", "BOX", "--output", str(tree)]
    assert run_command(command) == ExitCode.NEGATIVE
    assert "endpoints-rule-model" in capsys.readouterr().out
    assert not tree.exists()
    assert run_command([*command, "--rehearsal"]) == ExitCode.OK
    assert "division" in capsys.readouterr().out
    place = tree / "results" / "BOX" / "model"
    point = yaml.safe_load((place / "r8" / "point.yaml").read_text())
    assert (point["concurrency"], point["max_supported_concurrency"]) == (8, 8)
    assert point["runtime_settings"]["runtime"] == {"scheduler_rng_seed": 42, "sample_index_rng_seed": 42}
    assert yaml.safe_load((place / "r24" / "point.yaml").read_text())["offline"] == "dedicated"
    summary = place / "r8" / "result_summary.json"
    assert summary.read_bytes() == (recorded / "concurrency" / SUMMARY).read_bytes()
    assert (tree / "REHEARSAL.txt").is_file()


def test_submit_refuses_a_folder_that_contradicts_itself(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded / "concurrency", tmp_path / "run")
    path = tmp_path / "run" / SUMMARY
    path.write_text(path.read_text().replace('"n_samples_failed": 0', '"n_samples_failed": 1'))
    command = ["submit", str(tmp_path / "run"), "--organisation", "ORG", "--system-name", "BOX", "--rehearsal"]
    assert run_command([*command, "--output", str(tmp_path / "tree")]) == ExitCode.NEGATIVE


def test_folders_are_signed_off_together(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded / "concurrency", tmp_path / "run")
    _edit(tmp_path / "run", lambda config: config["model_params"].update(temperature=1.0))
    command = ["signoff", "--scope", "harness", "--ref", str(recorded / "poisson")]
    assert run_command([*command, str(recorded / "concurrency")]) == ExitCode.OK
    assert run_command([*command, str(tmp_path / "run")]) == ExitCode.NEGATIVE
    assert run_command(["signoff", "--scope", "baseline", *command[3:]]) == ExitCode.BAD_INPUT


def test_the_store_takes_folders(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--db", str(tmp_path / "results.sqlite")]
    assert run_command(["store", "ingest", *store, str(recorded / "poisson"), str(recorded / "offline")]) == ExitCode.OK
    assert run_command(["store", "ingest", *store, str(recorded / "poisson")]) == ExitCode.OK
    assert "unchanged" in capsys.readouterr().out
    assert run_command(["store", "query", *store, "--json"]) == ExitCode.OK
    rows = {row["scenario"]: row for row in json.loads(capsys.readouterr().out)["answer"]["rows"]}
    summary = json.loads((recorded / "poisson" / SUMMARY).read_text())
    assert rows["poisson at 30/s"]["samples_per_second"] == summary["qps"]
    assert rows["poisson at 30/s"]["valid"] == 1
    assert rows["max throughput"]["ttft_p99_ms"] is None
