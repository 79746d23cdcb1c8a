"""Clean submission trees to check: one of short real LoadGen runs, one of published full-length runs."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from compliance.submission.submitted_accuracy import submitted_accuracy
from compliance.trees.system_fields import FIELDS
from compliance.trees.tree import Place, Tree
from runs.record.layout import RunDir
from runs.rounds import ROUNDS
from tests.support.engines.null_sut import NullRunSpec
from tests.support.official import shorten_benchmarks
from tests.support.once import make_and_keep
from tests.support.published import PUBLISHED
from tests.support.runs.recorded import recorded

SAMPLES = 100  # samples of the short runs
MIN_DURATION_MS = 500
TEST06 = {
    "mode": 2,
    "accuracy_log_rng_seed": 720381539243781796,
    "accuracy_log_sampling_target": 100,
    "min_query_count": 100,
    "min_duration": 0,
    "sample_concatenate_permutation": 0,
}
_SETTINGS: dict[str, dict[str, object]] = {
    "Offline": {"target_qps": 300, "min_duration": MIN_DURATION_MS, "min_query_count": SAMPLES},
    "Server": {"target_qps": 500, "min_duration": 1000, "min_query_count": SAMPLES},
}


def shorten_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Require of short runs what they can reach: another size of the dataset and another duration."""
    shorten_benchmarks(monkeypatch, SAMPLES, MIN_DURATION_MS)


def _short_runs() -> Iterator[tuple[str, NullRunSpec]]:
    for scenario, conf in _SETTINGS.items():
        for name in ("performance", "accuracy", "TEST06"):
            yield (
                f"short-tree/{scenario}/{name}",
                NullRunSpec(
                    "",
                    scenario,
                    mode="AccuracyOnly" if name == "accuracy" else "PerformanceOnly",
                    user_conf={**conf, "performance_sample_count_override": SAMPLES},
                    audit_conf=TEST06 if name == "TEST06" else {},
                    total_count=SAMPLES,
                    latency_s=0.6 if scenario == "Offline" else 0.003,
                ),
            )


SHORT_RUNS = dict(_short_runs())


def short_tree() -> tuple[Tree, Path]:
    """Return a closed v6.1 tree of one datacenter system, and its runs.

    The logs are real. The files of the submitter are generated.
    """
    folder = make_and_keep("short-tree", _build_short_tree)
    return Tree(folder / "tree"), folder / "runs"


def _build_short_tree(root: Path) -> None:
    tree = Tree(root / "tree")
    shutil.copytree(recorded() / "short-tree", root / "runs")
    for scenario in _SETTINGS:
        place = Place("closed", "Example", "one-node", "llama3.1-8b", scenario)
        runs = {run.name: RunDir(run) for run in (root / "runs" / scenario).iterdir()}
        _write_accuracy_text(runs["accuracy"])
        _add_first_tokens(runs["TEST06"], scenario)
        fill_place(tree, place, runs)
    describe_system(tree, "closed", "Example", "one-node", "datacenter")


def fill_place(tree: Tree, place: Place, runs: dict[str, RunDir]) -> None:
    """Copy the runs into the tree as in a submission."""
    for run, to in ((runs["performance"], tree.performance(place)), (runs["accuracy"], tree.accuracy(place))):
        to.root.mkdir(parents=True)
        shutil.copy(run.detail, to.detail)
        shutil.copy(run.summary, to.summary)
    shutil.copy(runs["performance"].accuracy_log, tree.performance(place).accuracy_log)
    submitted = submitted_accuracy(runs["accuracy"])
    tree.accuracy(place).accuracy_log.write_bytes(submitted.log)
    tree.accuracy(place).accuracy_text.write_bytes(submitted.text)
    audit = tree.audit(place, "TEST06")
    to = RunDir(audit / "performance" / "run_1")
    to.root.mkdir(parents=True)
    shutil.copy(runs["TEST06"].detail, to.detail)
    shutil.copy(runs["TEST06"].summary, to.summary)
    (audit / "accuracy").mkdir()
    shutil.copy(runs["TEST06"].accuracy_log, audit / "accuracy")
    first = "Skipped" if place.scenario == "Offline" else "True"
    (audit / "verify_accuracy.txt").write_text(verify_text(first))
    shutil.copy(runs["performance"].user_conf, tree.user_conf(place))
    describe_place(tree, place)


def verify_text(first: str) -> str:
    """Return the text of the official TEST06 script on honest responses."""
    return (
        f"First token check pass: {first}\nEOS check pass: True\nSample length check pass: True\n"
        "TEST06 verification complete\n"
    )


def describe_place(tree: Tree, place: Place) -> None:
    """Write measurements and README.md of a scenario."""
    tree.measurements(place).parent.mkdir(parents=True, exist_ok=True)
    values = {
        "input_data_types": "int32",
        "retraining": "no",
        "starting_weights_filename": "meta-llama/Llama-3.1-8B-Instruct",
        "weight_data_types": "bf16",
        "weight_transformations": "none",
    }
    tree.measurements(place).write_text(json.dumps(values))
    tree.readme(place).write_text("# How it was run\n")


def describe_system(tree: Tree, division: str, organization: str, system: str, system_type: str) -> None:
    values = {field.name: field.example for field in FIELDS}
    values |= {"division": division, "submitter": organization, "system_type": system_type}
    path = tree.system(division, organization, system)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))
    source = tree.source(division, organization)
    source.mkdir(parents=True, exist_ok=True)
    (source / "README.md").write_text("# Source\n")


def _write_accuracy_text(run: RunDir) -> None:
    scores = "{'rouge1': '38.7792', 'rouge2': '15.9075', 'rougeL': '24.4957', 'rougeLsum': '35.793'"
    run.accuracy_text.write_text(f"Results\n\n{scores}, 'gen_len': 8167644, 'gen_num': {SAMPLES}}}\n")


def _add_first_tokens(run: RunDir, scenario: str) -> None:
    """Add data to first tokens, which the null SUT sends without data."""
    if scenario == "Offline":
        return
    entries = json.loads(run.accuracy_log.read_text())
    run.accuracy_log.write_text(json.dumps([{**entry, "token_data": entry["data"][:8]} for entry in entries]))


def build_published_tree(root: Path) -> Tree:
    """Build the published edge and datacenter results of one submitter, and add missing files."""
    tree = Tree(root / "published", ROUNDS["v5.1"])
    shutil.copytree(PUBLISHED / "closed" / "Intel", tree.root / "closed" / "Intel")
    for folder in (tree.root, *tree.root.rglob("*")):
        folder.chmod(0o755 if folder.is_dir() else 0o644)
    for place in tree.places():
        tree.readme(place).write_text("# How it was run\n")
        audit = tree.audit(place, "TEST06")
        beside = RunDir(audit.parent / "performance" / "run_1")
        if beside.root.is_dir():  # the run of the audit is one directory too high
            (audit / "performance").mkdir()
            beside.root.rename(audit / "performance" / "run_1")
            beside.root.parent.rmdir()
        else:  # an empty list in the copy
            _write_responses(audit, place.scenario)
    source = tree.source("closed", "Intel")
    source.mkdir()
    (source / "README.md").write_text("# Source\n")
    return tree


def _write_responses(audit: Path, scenario: str) -> None:
    digits = iter(_digits())
    entries = []
    for number in range(100):
        data = b"".join((1000 + next(digits)).to_bytes(4, "little") for _ in range(20 + number)).hex().upper()
        entry = {"seq_id": number, "qsl_idx": number, "data": data, "token_count": 20 + number}
        entries.append(entry if scenario == "Offline" else {**entry, "token_data": data[:8]})
    (audit / "accuracy" / "mlperf_log_accuracy.json").write_text(json.dumps(entries))


def _digits() -> Iterator[int]:
    state = b"answers"
    while True:
        state = hashlib.sha256(state).digest()
        yield from state
