"""Mutated run directories, trees, stores and named files: each command ends with a contracted exit code."""

import random
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from runs.record.layout import RunDir
from tests.conftest import ROOT
from tests.support.files.editing import reseal
from tests.support.runs.dummy_runs import DummyRuns
from tests.support.trees import clean_trees as trees
from tests.untrusted.contracts import call, commands_on_runs, contract_violation
from tests.untrusted.mutations import KINDS, clear, mutate
from tests.untrusted.sandbox import run_in_sandbox


def parametrize_numbers(quick: int, *ends: int) -> pytest.MarkDecorator:
    """Return the first mutations by number for `make test`, and the others for `make test-long`."""
    longer = [pytest.param(range(*part), marks=pytest.mark.long) for part in pairwise((quick, *ends))]
    return pytest.mark.parametrize("numbers", [range(quick), *longer], ids=str)


def problems(work: Callable[[int], str], numbers: range) -> list[str]:
    """Return the violations after each mutation."""
    return [outcome for _, outcome in run_in_sandbox(lambda place: work(numbers[place]), len(numbers)) if outcome]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


# Run directory --------------------------------------------------------------------------------------------------------

RUNS = ("performance/run_1", "accuracy")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a performance and an accuracy run, judged once so that all modules are imported."""
    root = tmp_path_factory.mktemp("untrusted")
    runs = DummyRuns()
    for name, mode in zip(RUNS, ("performance", "accuracy"), strict=True):
        shutil.copytree(runs("Offline", mode), root / "result" / name)
    for command, words in commands_on_runs(root / "result", root / "out").items():
        code, output = call(*words)
        assert contract_violation(command, code, output) == ""
    return root / "result"


def mutate_and_judge(result: Path, folder: Path, number: int) -> str:
    """Change a file of a copy by its number, and call some judges, or all. Return the violation."""
    chance = random.Random(f"run directory {number}")
    copy, out = folder / "result", folder / "out"
    clear(folder)
    shutil.copytree(result, copy)
    run = RunDir(copy / chance.choice(RUNS))
    path = chance.choice(sorted(path for path in run.root.iterdir() if path.is_file()))
    how = mutate(path, chance)
    covered = chance.random() < 0.5 and path.name != run.seal.name and _reseal(run)
    problems = [_verify(copy, out, path, tell=bool(how) and not covered and path != run.seal)]
    commands = commands_on_runs(copy, out)
    command_names = chance.sample(sorted(commands.keys() - {"verify"}), 2) + (["signoff"] if covered else [])
    problems += [contract_violation(name, *call(*commands[name])) for name in command_names]
    problems = [problem for problem in problems if problem]
    clear(folder)
    return (
        f"{number}: {how} of {path.name}{', sealed anew' if covered else ''}: {'; '.join(problems)}" if problems else ""
    )


def _reseal(run: RunDir) -> bool:
    """Attest the run again, if each file can be read."""
    if any(path.is_symlink() or not path.is_file() or path.stat().st_size > 1 << 20 for path in run.root.iterdir()):
        return False
    reseal(run)
    return True


def _verify(copy: Path, out: Path, path: Path, *, tell: bool) -> str:
    """Check that verify finds each byte that changed after the attestation, and names the file."""
    code, output = call(*commands_on_runs(copy, out)["verify"])
    if problem := contract_violation("verify", code, output):
        return problem
    if tell and code not in (2, 4):
        return f"verify: exit code {code}: {output[-400:]}"
    return f"verify does not name {path.name}: {output[-600:]}" if tell and path.name not in output else ""


@parametrize_numbers(10, 510, 1010, 1510, 2010)
def test_mutated_run_directories_end_with_contracted_exit_codes(result: Path, tmp_path: Path, numbers: range) -> None:
    assert problems(lambda number: mutate_and_judge(result, tmp_path / "one", number), numbers) == []


# Input ----------------------------------------------------------------------------------------------------------------

RUN = """scenario: Server
engine: dummy
total_sample_count: 64
target_qps: 400
dummy_ttft_ms: 2.5
environment:
  A_VARIABLE: "1"
sampling_arg:
  max_tokens: 64
mechanism:
  mechanism: baseline
  mechanism_variant: none
"""
CAMPAIGN = """benchmark: llama3.1-8b
division: open
round: v6.1
engine: dummy
output_log_dir: out
scenarios:
  Offline:
    target_qps: 60
    dummy_slots: 56
  Server:
    target_qps: 66
"""
USER_CONF = "*.Server.target_qps = 400\n*.Server.min_duration = 1500\n*.*.min_query_count = 64\n# a comment\n"
AUDIT_CONF = "*.*.mode = 2\n*.*.accuracy_log_rng_seed = 720381539243781796\n*.*.accuracy_log_sampling_target = 100\n"
CLAIM = '{"short_name": "x", "levers": ["slots"], "ref": {"tokens_per_second": 100.0}, "delta_pct": 5.0}'
ROWS = (
    '[{"run_id": "a", "mechanism": "kv_quantization", "mechanism_variant": "fp8_e4m3", "kv_cache_dtype": "fp8",'
    ' "run_directory": "/nowhere", "speculative_config": {"method": "eagle", "model": "m"}, "rouge1": 38.7,'
    ' "quality_eval_status": "pending", "engine": "vllm", "mechanism_notes": "n"}]'
)
DATA = '[{"input": "a b", "tok_input": [3, 4, 5], "output": "c"}, {"input": "d", "tok_input": [6], "output": "e f"}]'
_DRY = ("run", "--dry-run", "--engine", "dummy", "--scenario", "Server", "--output-log-dir", "{out}/run")

# Input → its content, and the command that reads it; {file}, {run} (a result) and {out} are replaced.
INPUTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "run.yaml": (RUN, ("run", "--dry-run", "--config", "{file}", "--output-log-dir", "{out}/run")),
    "campaign.yaml": (CAMPAIGN, ("campaign", "--dry-run", "--config", "{file}")),
    "user.conf": (USER_CONF, (*_DRY, "--user-conf", "{file}")),
    "audit.config": (AUDIT_CONF, (*_DRY, "--audit-conf", "{file}")),
    "data.json": (DATA, (*_DRY, "--dataset-path", "{file}", "--model-path", "bytes")),
    "declaration.yaml": (
        (ROOT / "configs/mechanism-fp8-kv.yaml").read_text(), ("gate", "{run}", "--declaration", "{file}")
    ),
    "rows.json": (ROWS, ("gate", "{file}", "--strict", "--division", "closed")),
    "claim.json": (CLAIM, ("signoff", "--scope", "harness", "--ref", "{run}", "--claim", "{file}")),
    "system.yaml": (
        (ROOT / "configs/system-example.yaml").read_text(),
        ("submit", "{run}", "--organization", "O", "--system-name", "S", "--output", "{out}", "--system", "{file}"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of a run, because `signoff` writes its verdict into it."""
    return DummyRuns().copy(tmp_path_factory.mktemp("run") / "run_1", "Offline").root


def _words(name: str, run: Path, folder: Path) -> list[str]:
    places = {"file": folder / name, "run": run, "out": folder / "out", "folder": folder}
    return [word.format(**places) for word in INPUTS[name][1]]


@pytest.mark.parametrize("name", INPUTS)
@parametrize_numbers(len(KINDS) + 8, len(KINDS) + 120)
def test_mutated_input_files_end_with_contracted_exit_codes(
    run: Path, tmp_path: Path, name: str, numbers: range
) -> None:
    """The first mutations replace the input by another object."""
    (tmp_path / name).write_text(INPUTS[name][0])
    assert contract_violation(name, *call(*_words(name, run, tmp_path))) == ""  # all modules are then imported
    folder, kinds = tmp_path / "one", list(KINDS)

    def work(number: int) -> str:
        clear(folder)
        folder.mkdir()
        path = folder / name
        path.write_text(INPUTS[name][0])
        if number < len(kinds):
            how = kinds[number]
            path.unlink()
            KINDS[how](path)
        else:
            how = mutate(path, random.Random(f"{name} {number}"), kinds_share=0)
        problem = contract_violation(name, *call(*_words(name, run, folder)))
        return f"{number}: {how}: {problem}" if problem else ""

    assert problems(work, numbers) == []


# A tree and a store ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tree() -> Path:
    tree, runs = trees.short_tree()
    call("check", tree.root, "--runs", runs)
    return tree.root


@parametrize_numbers(24, 400)
def test_mutated_trees_end_with_contracted_exit_codes(tree: Path, tmp_path: Path, numbers: range) -> None:
    """The tree is beside its runs."""
    folder, runs = tmp_path / "tree", tree.parent / "runs"

    def work(number: int) -> str:
        chance = random.Random(f"tree {number}")
        clear(folder)
        shutil.copytree(tree, folder)
        path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
        how = mutate(path, chance)
        problem = contract_violation("check", *call("check", folder, "--runs", runs))
        return f"{number}: {how} of {path.relative_to(folder)}: {problem}" if problem else ""

    assert problems(work, numbers) == []


def test_mutated_stores_end_with_contracted_exit_codes(run: Path, tmp_path: Path) -> None:
    original = tmp_path / "whole.sqlite"
    assert call("store", "ingest", run, "--db", original)[0] == 0
    call("store", "query", "--db", original)

    def work(number: int) -> str:
        path = tmp_path / "one.sqlite"
        clear(path)
        path.unlink(missing_ok=True)
        shutil.copy(original, path)
        how = mutate(path, random.Random(f"store {number}"), kinds_share=0.3)
        commands = (["query"], ["export", "--format", "json"], ["summary"], ["ingest", str(run)])
        problems = [contract_violation("store", *call("store", *words, "--db", path)) for words in commands]
        return f"{how}: {'; '.join(filter(None, problems))}" if any(problems) else ""

    assert problems(work, range(24)) == []
