"""The inputs of the commands: all inputs of the tests, created by the functions of the tests.

An input is created in an empty folder, or it is a recorded one that is only read.
"""

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from compliance.trees.tree import Place, Tree
from qsl.embedded.articles import bundled_dataset
from runs.files.writing import sha256_of
from runs.mlperf_endpoints.layout import CONFIG, EVENTS, REPORT, SNAPSHOT, SUMMARY
from runs.mlperf_endpoints.layout import SAMPLES as SAMPLES_OF_ENDPOINTS
from runs.record.layout import CampaignDir, Folder, ResultDir, RunDir
from runs.rounds import CURRENT_ROUND, ROUNDS
from tests.compliance.mlperf_endpoints.test_changes import ALL as OF_FOLDERS
from tests.compliance.results.test_verify_damage import CHANGES as OF_RUNS
from tests.compliance.results.test_verify_damage import DAMAGED, DAMAGES, OWN_FILES
from tests.compliance.submission.test_submission_build_refusals import CHANGES as OF_CAMPAIGNS
from tests.compliance.trees.test_log_mutations import MUTATIONS as OF_LOGS
from tests.compliance.trees.test_log_mutations import place_of
from tests.compliance.trees.test_submission_check import DIFFERENT
from tests.compliance.trees.test_submission_check_damage import CONTENTS as NONSENSE
from tests.compliance.trees.test_submission_check_damage import PATHS, write
from tests.conftest import run_here
from tests.honest.pair import Pair
from tests.honest.variations import LATE, OFFLINE_TOO, STEPPED, VARIATIONS
from tests.scenarios.commands.test_gate_command import ROWS
from tests.signoff import backtest
from tests.support.files.editing import edit_detail, reseal, set_at
from tests.support.mlperf_endpoints.endpoints_client import unpack
from tests.support.official import change_benchmarks, targets_with_share
from tests.support.once import make_and_keep
from tests.support.runs.dummy_runs import OURS, DummyRuns
from tests.support.runs.loadgen_runs import ALL
from tests.support.runs.recorded import NULL, OVER_HTTP, RESULTS, recorded
from tests.support.runs.submission_runs import BENCHMARK, CALIBRATION, SAMPLES, SYSTEM
from tests.support.trees import any_tree
from tests.support.trees import clean_trees as trees
from tests.support.trees.tree_mutations import MUTATIONS
from tests.untrusted.mutations import CONTENTS, KINDS
from tests.untrusted.test_tamperings import TAMPERINGS, VLLM, log_cut

Rules = Callable[[pytest.MonkeyPatch], object]


def product_rules(_: pytest.MonkeyPatch) -> None:
    """Use the rules of the product."""


def rules_for_short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use rules that the recorded runs of the dummy engine meet: their duration, dataset and scores."""
    scores = targets_with_share(RunDir(recorded() / RESULTS["Offline"] / "accuracy"), 1.0)
    change_benchmarks(monkeypatch, SAMPLES, min_duration_ms=100, data_sha256=None, targets=scores)


@dataclass(frozen=True)
class Input:
    """One input.

    Attributes:
        make: Fills an empty folder, and returns the path for the command.
        base: Input from which this one was changed.
        rules: Patches the rules.
    """

    name: str
    make: Callable[[Path], Path]
    base: str = ""
    rules: Rules = product_rules


def recorded_input(path: Callable[[], Path]) -> Callable[[Path], Path]:
    """Return a function that gives a recorded input unchanged."""
    return lambda _: path()


# Runs of this harness, and bare LoadGen logs --------------------------------------------------------------------------

RUNS = DummyRuns()
_OTHERS = (
    "campaign", "caching", "caching/performance/run_1", "caching-of-an-earlier-version", "replicas",
    f"{OVER_HTTP}/campaign",
    *(f"{OVER_HTTP}/campaign/llama3.1-8b/{scenario}" for scenario in ("Offline", "Server")),
)  # fmt: skip


def results() -> Iterator[Input]:
    """Yield recorded results and single runs."""
    for scenario, place in RESULTS.items():
        yield Input(scenario, recorded_input(lambda place=place: recorded() / place))
    for scenario in RESULTS:
        yield Input(
            f"{scenario} by the rules of short runs",
            recorded_input(lambda place=RESULTS[scenario]: recorded() / place),
            base=scenario,
            rules=rules_for_short_runs,
        )
    for name in (*_OTHERS, *(f"{NULL}/{name}" for name in ALL)):
        yield Input(name, recorded_input(lambda name=name: recorded() / name))


def _changed_run(
    folder: Path, scenario: str, mode: str, change: Callable[[RunDir], object], bare: bool = False
) -> Path:
    run = RUNS.copy(folder / "run", scenario, mode, bare=bare)
    change(run)
    return run.root


def changed_runs() -> Iterator[Input]:
    """Yield runs with damaged, exchanged or edited files."""

    def run(name: str, mode: str, bare: bool, change: Callable[[RunDir], object]) -> Input:
        base = f"Server {mode}{' bare' if bare else ''}"
        make = partial(_changed_run, scenario="Server", mode=mode, change=change, bare=bare)
        return Input(f"{base}: {name}" if name else base, make, base=base if name else "")

    for mode in ("performance", "accuracy"):
        for bare in (False, True):
            yield run("", mode, bare, lambda run_dir: None)
    for mode, file, bare, how in DAMAGED:
        yield run(
            f"{file} {how}", mode, bare, lambda run_dir, file=file, how=how: DAMAGES[how](run_dir.root / file),
        )  # fmt: skip
    for mode, file in OWN_FILES:
        yield run(
            f"{file} of Interactive", mode, False,
            lambda run_dir, mode=mode, file=file: shutil.copy(RUNS("Interactive", mode) / file, run_dir.root / file),
        )  # fmt: skip
    for name, (mode, bare, change, *_) in OF_RUNS.items():

        def make(
            folder: Path, mode: str = mode, bare: bool = bare, change: Callable[[RunDir], object] = change
        ) -> Path:
            RUNS.copy(folder / "accuracy", "Server", "accuracy")
            return _changed_run(folder, "Server", mode, change, bare)

        yield Input(f"Server {mode}: {name}", make, base=f"Server {mode}{' bare' if bare else ''}")


# Submission trees -----------------------------------------------------------------------------------------------------


def _changed_tree(folder: Path, change: Callable[[Tree], object]) -> Path:
    tree = Tree(folder / "tree")
    shutil.copytree(trees.short_tree()[0].root, tree.root, symlinks=True)
    change(tree)
    return tree.root


def short_trees() -> Iterator[Input]:
    """Yield the tree of short runs, and each change of it."""
    make_tree = recorded_input(lambda: trees.short_tree()[0].root)
    yield Input("short tree", make_tree, rules=trees.shorten_rules)
    yield Input("short tree by the rules of whole runs", make_tree, base="short tree")
    changes = [(mutation.name, mutation.change) for mutation in MUTATIONS] + [
        (name, DIFFERENT[name][0]) for name in DIFFERENT
    ]
    for name, change in changes:
        yield Input(
            f"short tree: {name}",
            partial(_changed_tree, change=change),
            base="short tree",
            rules=trees.shorten_rules,
        )


# Run directories of the MLPerf Endpoints client -----------------------------------------------------------------------

_FOLDERS = (
    "accuracy", "audit-cached", "audit-honest", "audit-honest-concurrency", "concurrency", "cut-by-time", "interrupted",
    "offline", "poisson", "server-died", "warm-up",
)  # fmt: skip


def endpoints() -> Path:
    """Return all recorded directories. Only read them."""
    return make_and_keep("endpoints-folders", unpack, data=["tests/compliance/mlperf_endpoints/folders.tar.xz"])


def folders() -> Iterator[Input]:
    """Yield recorded run directories, and each change of their files."""
    for name in _FOLDERS:
        yield Input(name, recorded_input(lambda name=name: endpoints() / name))
    changes = [(name, change) for name in OF_FOLDERS for change in OF_FOLDERS[name]]
    for name, change in changes:

        def make(folder: Path, name: str = name, change: str = change) -> Path:
            shutil.copytree(endpoints() / "concurrency", folder / "another")
            copy = Path(shutil.copytree(endpoints() / name, folder / name))
            OF_FOLDERS[name][change][0](copy)
            return copy

        yield Input(f"{name}: {change}", make, base=name)


# The tree of any benchmark --------------------------------------------------------------------------------------------


def rules_for_any_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use rules that short runs of any benchmark meet."""
    monkeypatch.setitem(ROUNDS, CURRENT_ROUND.name, any_tree.ROUND)


def any_trees() -> Iterator[Input]:
    """Yield the tree of runs of multiple benchmarks, and each change of its logs and audits."""
    make_tree = recorded_input(lambda: any_tree.any_tree().root)
    yield Input("any tree", make_tree, rules=rules_for_any_benchmark)
    yield Input("any tree by the rules of whole runs", make_tree, base="any tree")
    for name, (result, change, _) in OF_LOGS.items():

        def make(folder: Path, result: str = result, change: Callable[[Tree, Place], object] = change) -> Path:
            tree = Tree(Path(shutil.copytree(any_tree.any_tree().root, folder / "tree")), any_tree.ROUND)
            change(tree, place_of(tree, result))
            return tree.root

        yield Input(f"any tree: {name}", make, base="any tree", rules=rules_for_any_benchmark)


# Results in trees, which have only the logs of LoadGen, and trees of damaged files ------------------------------------


def results_in_trees() -> Iterator[Input]:
    """Yield the results of the short tree and of the tree of any benchmark, and changes of one of them."""
    for title, tree, rules in (
        ("short tree", lambda: trees.short_tree()[0], trees.shorten_rules),
        ("any tree", any_tree.any_tree, rules_for_any_benchmark),
    ):
        for place in PLACES[title]:
            yield Input(
                f"{title}/{place}", recorded_input(lambda tree=tree, place=place: _result(tree(), place)), rules=rules
            )
    base = PLACES["short tree"][0]
    for mutation in MUTATIONS:

        def make(folder: Path, change: Callable[[Tree], object] = mutation.change) -> Path:
            return _result(Tree(_changed_tree(folder, change)), base)

        yield Input(f"short tree/{base}: {mutation.name}", make, base=f"short tree/{base}", rules=trees.shorten_rules)


PLACES = {
    "short tree": ("llama3.1-8b/Offline", "llama3.1-8b/Server"),
    "any tree": ("resnet50/SingleStream", "resnet50/MultiStream", "stable-diffusion-xl/Server", "gpt-oss-120b/Offline"),
}


def _result(tree: Tree, name: str) -> Path:
    system = "edge-box" if name.startswith("resnet50") else "one-node"
    return tree.root / "closed" / "Example" / "results" / system / name


def trees_of_nonsense() -> Iterator[Input]:
    """Yield trees in which each file has the same content."""
    for division in ("closed", "open"):
        for number, content in enumerate(NONSENSE):

            def make(folder: Path, division: str = division, content: bytes = content) -> Path:
                for name in PATHS:
                    write(folder / "tree" / division / "Example" / name, content)
                return folder / "tree"

            yield Input(f"{division} tree of content {number}", make)


# Tampered results, and honest variations of results -------------------------------------------------------------------

# Changes that need special permissions, or whose result cannot be given to a command.
_NOT_EVERYWHERE = {"of-another-user", "name-of-no-text"}


def signoff_runs() -> Path:
    """Return the runs of the sign-off's back-test, with the dataset of this host if it exists. Only read them."""
    return make_and_keep("signoff-legs", _relocated, data=["tests/signoff/runs.tar.xz"]) / backtest.RUNS


def _relocated(folder: Path) -> None:
    backtest.unpack(folder)
    here, nowhere = bundled_dataset("bytes"), "/recorded-elsewhere"
    digest = sha256_of(here)
    for path in (folder / backtest.RUNS).iterdir():
        run = RunDir(path)
        plan = json.loads(run.manifest.read_bytes())["plan"]
        is_here = plan["dataset_sha256"] == digest
        set_at(run.manifest, "plan.dataset_path", str(here) if is_here else f"{nowhere}/data.json")
        set_at(run.manifest, "plan.model_path", plan["model_path"] if is_here else f"{nowhere}/model")
        if run.seal.is_file():
            reseal(run)


def _pair(folder: Path, scenario: str) -> Pair:
    pair = Pair(folder / "result")
    for mode, name, run in zip(("performance", "accuracy"), ("vllm-off", "vllm-off-acc"), pair.runs, strict=True):
        shutil.copytree(signoff_runs() / name if scenario == VLLM else RUNS(scenario, mode), run.root)
    return pair


def _changed_pair(folder: Path, scenario: str, change: Callable[[Pair], object]) -> Path:
    pair = _pair(folder, scenario)
    changed = change(pair)
    return changed if isinstance(changed, Path) else pair.root


def _exchange(first: Path, second: Path) -> None:
    beside = first.with_name("exchanged")
    first.rename(beside)
    second.rename(first)
    beside.rename(second)


def _of_loadgen_alone(pair: Pair) -> None:
    for run in pair.runs:
        for name in OURS:
            (run.root / name).unlink(missing_ok=True)


def _as_of_loadgen_41(pair: Pair) -> None:
    """Write a log in the form of LoadGen 4.1, which counts no errors and gives no reason."""
    for run in pair.runs:
        edit_detail(run, "loadgen_version", "4.1 @ 0000000000")
        edit_detail(run, "effective_sample_concatenate_permutation", None)
    edit_detail(pair.performance, "num_errors", None)


def _scores(old: str, new: str) -> Callable[[Pair], object]:
    def change(pair: Pair) -> None:
        _of_loadgen_alone(pair)
        text = pair.accuracy.accuracy_text
        text.write_text(re.sub(old, new, text.read_text()))

    return change


# Unexpected directories and logs, and files as other harnesses write them.
ODD: dict[str, Callable[[Pair], object]] = {
    "runs swapped": lambda pair: _exchange(pair.performance.root, pair.accuracy.root),
    "accuracy run in both": lambda pair: [
        shutil.rmtree(pair.performance.root), shutil.copytree(pair.accuracy.root, pair.performance.root)
    ],
    "performance run in both": lambda pair: [
        shutil.rmtree(pair.accuracy.root), shutil.copytree(pair.performance.root, pair.accuracy.root)
    ],
    "performance log in the accuracy run": lambda pair: shutil.copy(pair.performance.detail, pair.accuracy.detail),
    "bare logs": _of_loadgen_alone,
    "bare logs swapped": lambda pair: [
        _of_loadgen_alone(pair), _exchange(pair.performance.root, pair.accuracy.root)
    ],
    "bare logs, performance log in the accuracy run": lambda pair: [
        _of_loadgen_alone(pair), shutil.copy(pair.performance.detail, pair.accuracy.detail)
    ],
    "bare logs of LoadGen 4.1": lambda pair: [_of_loadgen_alone(pair), _as_of_loadgen_41(pair)],
    "bare logs, answers cut": lambda pair: [_of_loadgen_alone(pair), log_cut(pair.accuracy)],
    "answers cut": lambda pair: log_cut(pair.accuracy),
    "second run": lambda pair: shutil.copytree(pair.performance.root, pair.performance.root.with_name("run_2")),
    "second run alone": lambda pair: pair.performance.root.rename(pair.performance.root.with_name("run_2")),
    "no accuracy run": lambda pair: shutil.rmtree(pair.accuracy.root),
    "no performance run": lambda pair: shutil.rmtree(pair.performance.root),
    "scores as NumPy writes them": _scores(r"'(rouge\w+)': '?([\d.]+)'?", r"'\1': np.float64(\2)"),
    "scores with an exponent": _scores(r"'(rouge\w+)': '?([\d.]+)'?", r"'\1': \2e0"),
    "scores as JSON": _scores("'", '"'),
    "no scores": _scores("(?s).*", ""),
}  # fmt: skip


def unusual_pairs() -> Iterator[Input]:
    """Yield a result of two runs, and the same result with its files in other places or forms."""
    base = "pair Server"
    yield Input(base, partial(_changed_pair, scenario="Server", change=lambda pair: None))
    for name, change in ODD.items():
        make = partial(_changed_pair, scenario="Server", change=change)
        yield Input(f"{base}: {name}", make, base=base)


def pairs() -> Iterator[Input]:
    """Yield results of two runs: unchanged, unusual, tampered, and under other circumstances."""
    yield from unusual_pairs()
    scenarios = (*RESULTS, VLLM)  # runs of others are not recorded
    for scenario in scenarios:
        if scenario != "Server":
            yield Input(f"pair {scenario}", partial(_changed_pair, scenario=scenario, change=lambda pair: None))
    changes = [
        (f"tampered {tampering.name}", tampering.scenario, tampering.apply)
        for tampering in TAMPERINGS
        if tampering.scenario in scenarios
    ]
    honest = {**VARIATIONS, **LATE, **STEPPED}
    changes += [(name, "Server", honest[name]) for name in honest if name not in _NOT_EVERYWHERE]
    changes += [(name, "Offline", VARIATIONS[name]) for name in sorted(OFFLINE_TOO)]
    for name, scenario, change in changes:
        yield Input(
            f"pair {scenario}: {name}",
            partial(_changed_pair, scenario=scenario, change=change),
            base=f"pair {scenario}",
        )


# Mutated files, and other objects in their place ----------------------------------------------------------------------

# Files of a run, a tree and an Endpoints directory. Other files have paths of this host, or output of the product.
_OF_A_RUN = {
    "performance": ("mlperf_log_detail.txt", "mlperf_log_summary.txt", "requests.jsonl"),
    "accuracy": ("mlperf_log_detail.txt", "mlperf_log_accuracy.json", "accuracy.txt"),
}
_OF_A_TREE = (
    "performance/run_1/mlperf_log_detail.txt", "performance/run_1/mlperf_log_summary.txt", "accuracy/accuracy.txt",
    "accuracy/mlperf_log_detail.txt", "accuracy/mlperf_log_accuracy.json", "TEST06/verify_accuracy.txt",
    "TEST06/performance/run_1/mlperf_log_detail.txt", "TEST06/accuracy/mlperf_log_accuracy.json", "measurements.json",
    "user.conf",
)  # fmt: skip
_OF_ENDPOINTS = (CONFIG, EVENTS, SAMPLES_OF_ENDPOINTS, SNAPSHOT, SUMMARY, REPORT)
_HOWS = (*CONTENTS, *(kind for kind in KINDS if kind not in ("sparse", "large")))  # objects that take long to read


def _mutate(path: Path, how: str) -> None:
    if how in CONTENTS:
        path.write_bytes(CONTENTS[how](path.read_bytes(), random.Random(f"frozen {path.name} {how}")))
    else:
        path.unlink()
        KINDS[how](path)


def mutated_runs() -> Iterator[Input]:
    """Yield one file of a run, changed in each way."""
    for mode, names in _OF_A_RUN.items():
        for file, how in product(names, _HOWS):
            bare = file != "requests.jsonl"
            base = f"Server {mode}{' bare' if bare else ''}"
            change = partial(_in_folder, name=file, how=how)
            make = partial(_changed_run, scenario="Server", mode=mode, change=change, bare=bare)
            yield Input(f"{base}: {file} {how} by chance", make, base=base)


def _in_folder(folder: Folder, name: str, how: str) -> None:
    _mutate(folder.root / name, how)


def mutated_trees() -> Iterator[Input]:
    """Yield one file of the short tree, changed in each way."""
    for file, how in product(_OF_A_TREE, _HOWS):

        def change(tree: Tree, file: str = file, how: str = how) -> None:
            _mutate(_result(tree, "llama3.1-8b/Server") / file, how)

        make = partial(_changed_tree, change=change)
        yield Input(f"short tree: {file} {how} by chance", make, base="short tree", rules=trees.shorten_rules)


def mutated_folders() -> Iterator[Input]:
    """Yield one file of an Endpoints run directory, changed in each way."""
    for file, how in product(_OF_ENDPOINTS, _HOWS):

        def make(folder: Path, file: str = file, how: str = how) -> Path:
            copy = Path(shutil.copytree(endpoints() / "poisson", folder / "poisson"))
            _mutate(copy / file, how)
            return copy

        yield Input(f"poisson: {file} {how} by chance", make, base="poisson")


# Cases of the sign-off ------------------------------------------------------------------------------------------------


def signoff_cases() -> Iterator[tuple[backtest.BacktestCase, Input]]:
    """Yield the cases of the back-test."""
    for case in backtest.read_cases():

        def make(folder: Path, case: backtest.BacktestCase = case) -> Path:
            backtest.lay_out(case, signoff_runs(), folder)
            return folder

        yield case, Input(f"case {case.name}", make)


# Rows of a store ------------------------------------------------------------------------------------------------------


def rows() -> Iterator[Input]:
    """Yield files of rows."""
    for number, (content, *_) in enumerate(ROWS):

        def make(folder: Path, content: object = content) -> Path:
            (folder / "rows.json").write_text(json.dumps(content))
            return folder / "rows.json"

        yield Input(f"rows {number}", make)


# Campaigns to be submitted --------------------------------------------------------------------------------------------


def _campaign(folder: Path, change: Callable[[ResultDir], object]) -> Path:
    """Return a copy of the recorded campaign, and beside it the other inputs of `submit`."""
    campaign = CampaignDir(Path(shutil.copytree(recorded() / "campaign", folder / "campaign")))
    (folder / "code").mkdir()
    (folder / "code" / "main.py").write_text("print('the code that ran')\n")
    (folder / "documents").mkdir()
    (folder / "documents" / "calibration.md").write_bytes(CALIBRATION)
    (folder / "system.yaml").write_text(json.dumps({"system": SYSTEM}))
    change(campaign.result(BENCHMARK, "Server"))
    return campaign.root


def campaigns() -> Iterator[Input]:
    """Yield the recorded campaign, and changes of one of its results."""
    yield Input("campaign", partial(_campaign, change=lambda result: None), rules=rules_for_short_runs)
    for name, (change, _) in OF_CAMPAIGNS.items():
        make = partial(_campaign, change=change)
        yield Input(f"campaign: {name}", make, base="campaign", rules=rules_for_short_runs)


# A tree that was built from runs, beside them
_IN_BUILT_TREES = (
    "other_digit_in_the_summary", "rouge_below_its_target", "audit_text_says_no", "empty_audit_log", "no_measurements",
    "user_conf_of_another_run", "empty_readme", "no_code", "no_audit", "accuracy_log_cut_elsewhere", "no_offline",
)  # fmt: skip


def _built(folder: Path, change: Callable[[Tree], object]) -> Path:
    campaign = _campaign(folder, lambda result: None)
    arguments = {"system": folder / "system.yaml", "source": folder / "code", "documentation": folder / "documents"}
    options = [word for name, path in arguments.items() for word in (f"--{name}", path)]
    built = run_here(
        "submit", campaign, "--organization", "Org", "--system-name", "Box", "--output", folder / "tree", "--rehearsal",
        *options,
    )  # fmt: skip
    assert built.code == 0, built.stderr
    change(Tree(folder / "tree"))
    return folder / "tree"


def built_trees() -> Iterator[Input]:
    """Yield a rehearsal tree of the recorded campaign, and changes of its files."""
    make_tree = partial(_built, change=lambda tree: None)
    yield Input("tree of its runs", make_tree, rules=rules_for_short_runs)
    for mutation in MUTATIONS:
        if mutation.name in _IN_BUILT_TREES:
            make = partial(_built, change=mutation.change)
            yield Input(f"tree of its runs: {mutation.name}", make, base="tree of its runs", rules=rules_for_short_runs)
