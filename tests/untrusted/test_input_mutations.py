"""Files that users name: whatever they hold, the command says what is wrong, by an exit code of the contract."""

import random
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support import trees
from tests.support.verify_legs import DummyLegs
from tests.untrusted.box import in_box
from tests.untrusted.judges import call, wrong
from tests.untrusted.mutations import KINDS, clear, mutate

QUICK, MANY = 8, 120  # of each kind of input

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
_DRY = ("run", "--dry-run", "--engine", "dummy", "--scenario", "Server", "--output-log-dir", "{out}/leg")

# What each input is like, and the command that reads it: {file}, {leg} (a result) and {out} are put in.
INPUTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "run.yaml": (RUN, ("run", "--dry-run", "--config", "{file}", "--output-log-dir", "{out}/leg")),
    "campaign.yaml": (CAMPAIGN, ("campaign", "--dry-run", "--config", "{file}")),
    "user.conf": (USER_CONF, (*_DRY, "--user-conf", "{file}")),
    "audit.config": (AUDIT_CONF, (*_DRY, "--audit-conf", "{file}")),
    "data.json": (DATA, (*_DRY, "--dataset-path", "{file}", "--model-path", "bytes")),
    "declaration.yaml": (
        (ROOT / "configs/mechanism-fp8-kv.yaml").read_text(), ("gate", "{leg}", "--declaration", "{file}")
    ),
    "rows.json": (ROWS, ("gate", "{file}", "--strict", "--division", "closed")),
    "claim.json": (CLAIM, ("signoff", "--scope", "harness", "--ref", "{leg}", "--claim", "{file}")),
    "system.yaml": (
        (ROOT / "configs/system-example.yaml").read_text(),
        ("submit", "{leg}", "--organisation", "O", "--system-name", "S", "--output", "{out}", "--system", "{file}"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def leg() -> Path:
    return DummyLegs()("Offline")


def _words(name: str, leg: Path, folder: Path) -> list[str]:
    places = {"file": folder / name, "leg": leg, "out": folder / "out", "folder": folder}
    return [word.format(**places) for word in INPUTS[name][1]]


def run(name: str, leg: Path, folder: Path, numbers: range) -> list[str]:
    """Mutations of one input by their numbers; the first ones put something else in its place."""
    kinds = list(KINDS)

    def work(place: int) -> str:
        chance = random.Random(f"{name} {numbers[place]}")
        clear(folder)
        folder.mkdir()
        path = folder / name
        path.write_text(INPUTS[name][0])
        if numbers[place] < len(kinds):
            how = kinds[numbers[place]]
            path.unlink()
            KINDS[how](path)
        else:
            how = mutate(path, chance, kinds_share=0)
        problem = wrong(name, *call(*_words(name, leg, folder)))
        return f"{numbers[place]}: {how}: {problem}" if problem else ""

    return [said for _, said in in_box(work, len(numbers)) if said]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", INPUTS)
def test_some_mutations_of_an_input(leg: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(INPUTS[name][0])
    assert wrong(name, *call(*_words(name, leg, tmp_path))) == ""  # and nothing is left to import
    assert run(name, leg, tmp_path / "one", range(len(KINDS) + QUICK)) == []


@pytest.mark.long
@pytest.mark.parametrize("name", INPUTS)
def test_hundreds_of_mutations_of_an_input(leg: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(INPUTS[name][0])
    call(*_words(name, leg, tmp_path))
    assert run(name, leg, tmp_path / "one", range(len(KINDS) + QUICK, len(KINDS) + MANY)) == []


@pytest.fixture(scope="module")
def tree() -> Path:
    tree, runs = trees.short_tree()
    call("check", tree.root, "--runs", runs)
    return tree.root


def check_mutated(tree: Path, folder: Path, numbers: range) -> list[str]:
    """Files of a tree changed by their numbers, beside the runs that it was made of."""
    runs = tree.parent / "runs"

    def work(place: int) -> str:
        chance = random.Random(f"tree {numbers[place]}")
        clear(folder)
        shutil.copytree(tree, folder)
        path = chance.choice(sorted(one for one in folder.rglob("*") if one.is_file()))
        how = mutate(path, chance)
        problem = wrong("check", *call("check", folder, "--runs", runs))
        return f"{numbers[place]}: {how} of {path.relative_to(folder)}: {problem}" if problem else ""

    return [said for _, said in in_box(work, len(numbers)) if said]


def test_some_mutations_of_a_tree(tree: Path, tmp_path: Path) -> None:
    assert check_mutated(tree, tmp_path / "tree", range(24)) == []


@pytest.mark.long
def test_hundreds_of_mutations_of_a_tree(tree: Path, tmp_path: Path) -> None:
    assert check_mutated(tree, tmp_path / "tree", range(24, 400)) == []


def test_mutations_of_a_store(leg: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.sqlite"
    assert call("store", "ingest", leg, "--db", whole)[0] == 0
    call("store", "query", "--db", whole)

    def work(number: int) -> str:
        path = tmp_path / "one.sqlite"
        clear(path)
        path.unlink(missing_ok=True)
        shutil.copy(whole, path)
        how = mutate(path, random.Random(f"store {number}"), kinds_share=0.3)
        commands = (["query"], ["export", "--format", "json"], ["summary"], ["ingest", str(leg)])
        problems = [wrong("store", *call("store", *words, "--db", path)) for words in commands]
        return f"{how}: {'; '.join(filter(None, problems))}" if any(problems) else ""

    assert [said for _, said in in_box(work, 24) if said] == []
