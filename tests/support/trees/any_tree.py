"""A submission tree of benchmarks that this harness cannot run.

It has short runs of the real LoadGen, with their audits and the texts that the official scripts write of them.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from compliance.trees.tree import Place, Tree
from runs.files.writing import sha256_of
from runs.loadgen.detail_log import DetailLog, read_detail
from runs.record.layout import RunDir
from runs.rounds import CURRENT_ROUND
from tests.support.engines.null_sut import NullRunSpec
from tests.support.once import make_and_keep
from tests.support.runs.recorded import recorded
from tests.support.trees.clean_trees import MIN_DURATION_MS, describe_place, describe_system

SAMPLES = 64
WITH_TOKENS = "gpt-oss-120b"  # its logs have latencies of tokens
ROUND = replace(CURRENT_ROUND, other_table=CURRENT_ROUND.table.model_copy(update={"min_duration_ms": MIN_DURATION_MS}))
_LOGS = {"accuracy_log_rng_seed": 720381539243781796, "accuracy_log_sampling_target": 100}
AUDITS: dict[str, dict[str, object]] = {
    "TEST01": {"mode": 2, **_LOGS},
    "TEST04": {
        "mode": 2,
        "performance_issue_unique": 0,
        "performance_issue_same": 1,
        "performance_issue_same_index": 3,
    },
    "TEST07": {"mode": 2, **_LOGS, "performance_issue_unique": 1, "sample_concatenate_permutation": 0},
    "TEST09": {"mode": 2, **_LOGS, "performance_issue_unique": 1, "sample_concatenate_permutation": 0},
}
# Benchmark, scenario, runs, audits
_PLACES: tuple[tuple[str, str, NullRunSpec, tuple[str, ...]], ...] = (
    ("resnet50", "SingleStream",
     NullRunSpec("", "SingleStream", user_conf={"target_latency": 4, "min_query_count": 66}), ("TEST01", "TEST04")),
    # With queries for twice the minimum duration at 3 ms each, LoadGen ends by its duration.
    ("resnet50", "MultiStream",
     NullRunSpec("", "MultiStream", user_conf={"target_latency": 4, "min_query_count": 70}), ()),
    ("stable-diffusion-xl", "Server",
     NullRunSpec("", "Server", user_conf={"target_qps": 1000, "target_latency": 20_000, "min_query_count": 500}),
     ("TEST01", "TEST04")),
    (WITH_TOKENS, "Offline",
     NullRunSpec("", user_conf={"target_qps": 300, "min_query_count": SAMPLES}, latency_s=0.6), ("TEST07", "TEST09")),
)  # fmt: skip
# The official scripts read these from the detail log, or from the summary.
_SCORE = {
    "Offline": "result_samples_per_second",
    "Server": "result_completed_samples_per_sec",
    "SingleStream": "early_stopping_latency_ss",
    "MultiStream": "early_stopping_latency_ms",
}


def _runs() -> Iterator[tuple[str, NullRunSpec]]:
    for benchmark, scenario, spec, audits in _PLACES:
        for run in ("performance", "accuracy", *audits):
            yield (
                f"any-tree/{benchmark}/{scenario}/{run}",
                replace(
                    spec,
                    key=benchmark,
                    token_latencies=benchmark == WITH_TOKENS,
                    mode="AccuracyOnly" if run == "accuracy" else "PerformanceOnly",
                    user_conf={
                        "min_duration": MIN_DURATION_MS,
                        "performance_sample_count_override": SAMPLES,
                        **spec.user_conf,
                    },
                    audit_conf=AUDITS.get(run, {}),
                    total_count=SAMPLES,
                ),
            )


ANY_RUNS = dict(_runs())


def any_tree() -> Tree:
    """Return two systems of one submitter. Only read the tree."""
    return Tree(make_and_keep("any-tree", _build) / "tree", ROUND)


def _build(root: Path) -> None:
    tree = Tree(root / "tree", ROUND)
    for benchmark, scenario, spec, audits in _PLACES:
        system = "edge-box" if benchmark == "resnet50" else "one-node"
        place = Place("closed", "Example", system, benchmark, scenario)
        for run in ("performance", "accuracy", *audits):
            _run(tree, place, run, RunDir(recorded() / "any-tree" / benchmark / scenario / run))
        tree.user_conf(place).write_text(
            "".join(f"*.{scenario}.{key} = {value}\n" for key, value in spec.user_conf.items())
        )
        describe_place(tree, place)
    for system, kind in (("edge-box", "edge"), ("one-node", "datacenter")):
        describe_system(tree, "closed", "Example", system, kind)


def _run(tree: Tree, place: Place, name: str, run_dir: RunDir) -> None:
    if name == "accuracy":
        to, log = tree.accuracy(place), tree.accuracy(place).accuracy_log
    elif name == "performance":
        to, log = tree.performance(place), tree.performance(place).accuracy_log
    else:
        to = RunDir(tree.audit(place, name) / "performance" / "run_1")
        log = tree.audit(place, name) / "accuracy" / run_dir.accuracy_log.name
    for folder in {to.root, log.parent}:
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(run_dir.detail, to.detail)
    shutil.copy(run_dir.summary, to.summary)
    shutil.copy(run_dir.accuracy_log, log)
    if name == "accuracy":
        entries = json.loads(run_dir.accuracy_log.read_text())
        tokens = sum(len(entry["data"]) // 8 for entry in entries) / len(entries)
        stated = f", 'tokens_per_sample': {tokens:.2f}" if place.benchmark == WITH_TOKENS else ""
        to.accuracy_text.write_text(f"{{'exact_match': 83.1, 'gen_num': {SAMPLES}{stated}}}\nhash={sha256_of(log)}\n")
    elif name != "performance":
        for file, text in _texts(tree, place, name, json.loads(log.read_text())):
            (tree.audit(place, name) / file).write_text(text)


def _texts(tree: Tree, place: Place, test: str, responses: list[dict[str, object]]) -> Iterator[tuple[str, str]]:
    reference = read_detail(tree.performance(place).detail)
    tested = read_detail(RunDir(tree.audit(place, test) / "performance" / "run_1").detail)
    if test == "TEST01":
        yield (
            "verify_accuracy.txt",
            "Verifying accuracy. This might take a while...\nReading accuracy mode results...\n"
            f"Reading performance mode results...\nnum_acc_log_entries = {SAMPLES}\nnum_acc_log_duplicate_keys = 0\n"
            f"num_acc_log_data_mismatch = 0\nnum_perf_log_entries = {len(responses)}\n"
            f"num_perf_log_qsl_idx_match = {len(responses)}\nnum_perf_log_data_mismatch = 0\nnum_missing_qsl_idxs = 0\n"
            "TEST PASS\n\n",
        )
        yield "verify_performance.txt", _scores("Reference", "Test", _score(reference), _score(tested))
    elif test == "TEST04":
        scores = _score(reference), _score(tested)
        values = scores if reference.scenario in ("Offline", "Server") else [1e9 / score for score in scores]
        yield "verify_performance.txt", _scores("reference", "test", *values)
    elif test == "TEST07":
        yield (
            "verify_accuracy.txt",
            "{'exact_match': 66.2}\n\nTEST07 ResultVerdict Summary\nAccuracy score: 66.2\nAccuracy threshold: 60.698\n"
            "Accuracy check pass: True\nTEST PASS\n",
        )
    elif test == "TEST09":
        lengths = [len(str(response["data"])) // 8 for response in responses]
        yield (
            "verify_output_len.txt",
            f"Total samples: {len(lengths)}\nMean output tokens: {sum(lengths) / len(lengths):.2f}\n"
            f"Min output tokens: {min(lengths)}\nMax output tokens: {max(lengths)}\nStd deviation: 35.00\n\n"
            f"Mean output tokens: {sum(lengths) / len(lengths):.2f}\nMin threshold: 1.0\nMax threshold: 1406.02\n"
            "Min check pass: True\nMax check pass: True\n\nTEST PASS\n",
        )


def _score(log: DetailLog) -> float:
    return float(log.number(_SCORE[log.scenario]))


def _scores(first: str, second: str, reference: float, test: float) -> str:
    return f"Verifying performance.\n{first} score = {reference}\n{second} score = {test}\nTEST PASS\n"
