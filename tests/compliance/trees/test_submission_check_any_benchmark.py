"""Results of unsupported benchmarks: the table of the round judges them, and rules without input are named."""

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from compliance.judge.verdict import not_applied
from compliance.trees.check_tree import TreeReport
from compliance.trees.descriptions import mapped_benchmark
from compliance.trees.tree import Place, Tree
from runs.mlperf_endpoints.find_folders import is_for_endpoints
from runs.mlperf_endpoints.layout import MARKS
from runs.record.layout import RunDir
from runs.rounds import CURRENT_ROUND, ROUNDS, TREE_ROUNDS, Round, RoundTable
from tests.support.trees import clean_trees as trees
from tests.support.trees import tree_mutations
from tests.support.trees.checked_tree import check_submission_tree

OTHER = "gpt-oss-120b"


def short_round(**changes: object) -> Round:
    """Return the round with a benchmark that short runs can meet, with changes."""
    table = CURRENT_ROUND.table.model_dump()
    benchmarks = table["benchmarks"]
    benchmarks[OTHER] |= {
        "performance_samples": trees.SAMPLES, "data_set": trees.SAMPLES, "offline_min_samples": trees.SAMPLES,
        "accuracy_samples": {"any": trees.SAMPLES}, "audits": (),
        **{field: benchmarks["llama3.1-8b"][field] for field in ("targets", "token_limits")}, **changes,
    }  # fmt: skip
    for name in ("3d-unet-99", "3d-unet-99.9"):
        benchmarks[name] |= {**benchmarks[OTHER], "model": "3d-unet"}
    return replace(CURRENT_ROUND, other_table=RoundTable.model_validate(table | {"min_duration_ms": 500}))


SHORT = short_round()


@pytest.fixture
def tree(short_tree: Tree, tmp_path: Path) -> Tree:
    """Return the short tree as a tree of another benchmark."""
    root = tmp_path / "tree"
    shutil.copytree(short_tree.root, root)
    (place, *_) = Tree(root).places()
    folder = Tree(root).scenario(place).parent
    folder.rename(folder.with_name(OTHER))
    return Tree(root)


def rules(checked: TreeReport) -> set[str]:
    return {finding.rule for finding in checked.findings}


def test_rules_that_cannot_be_applied_are_listed_for_each_result(tree: Tree) -> None:
    checked = check_submission_tree(tree.root, SHORT)
    assert rules(checked) == set()
    assert {place.rpartition("/")[2] for place in checked.rules_not_applied} == {"Offline", "Server"}
    for entries in checked.rules_not_applied.values():
        assert any("performance/power" in entry.why and "power-readings" in entry.rules for entry in entries)


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("result_validity", "INVALID", "perf-validity"),
        ("effective_test_mode", "AccuracyOnly", "perf-mode"),
        ("effective_min_duration_ms", 1, "perf-min-duration"),
        ("effective_schedule_rng_seed", 7, "perf-seeds"),
        ("early_stopping_met", False, "perf-early-stopping"),
        ("result_99.00_percentile_latency_ns", 1, "log-arithmetic"),
        ("num_errors", 3, "log-arithmetic"),
    ],
)
def test_rules_for_any_benchmark_are_applied(tree: Tree, key: str, value: object, rule: str) -> None:
    server = next(place for place in tree.places() if place.scenario == "Server")
    tree_mutations.edit_detail(tree.performance(server), key, value)
    assert rule in rules(check_submission_tree(tree.root, SHORT))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"performance_samples": 101}, "perf-sample-count"),
        ({"offline_min_samples": 10**6}, "perf-samples"),
        ({"data_set": 101, "performance_samples": 99, "accuracy_samples": {"any": 98}}, "perf-data-set"),
        ({"accuracy_samples": {"any": 101}}, "accuracy-samples"),
        ({"token_limits": {"Server": {"ttft_ns": 10**6, "tpot_ns": 10**8}}}, "perf-limits"),
        ({"token_limits": {"Server": {"ttft_ns": 1, "tpot_ns": 1}}}, "perf-ttft"),
        ({"max_tokens": {"performance": 1}}, "perf-output-tokens"),
        ({"metrics": {"Offline": "result_inferred_tokens_per_second"}}, "perf-metric"),
        ({"percentiles": {"Server": 0.999}}, "perf-percentile"),
        ({"targets": {"any": {"ROUGE1": {"low": 99.0, "high": None}}}}, "accuracy-target"),
        ({"targets": {"any": {"ROUGE1": {"low": None, "high": 1.0}}}}, "accuracy-target"),
        ({"targets": {"any": {"mAP": {"low": 1.0, "high": None}}}}, "accuracy-text"),
        ({"audits": ("TEST07",)}, "audit-missing"),
        ({"accuracy_folders": {"images": ("1", "2")}}, "accuracy-files"),
        ({"required": {"datacenter": ("Offline", "Server", "SingleStream")}}, "scenario-set"),
        ({"required": {"edge": ("Offline", "Server")}}, "suite-benchmark"),
        ({"required": {"datacenter": ("Offline",)}, "optional": {}}, "tree-scenario"),
    ],
)
def test_requirements_of_the_round_table_are_applied(tree: Tree, changes: dict[str, object], rule: str) -> None:
    assert rule in rules(check_submission_tree(tree.root, short_round(**changes)))


def test_pictures_may_be_missing_in_a_published_round(tree: Tree) -> None:
    in_round = short_round(accuracy_folders={"images": ("1", "2")})
    assert "accuracy-files" in rules(check_submission_tree(tree.root, in_round))
    published = replace(in_round, name="v6.0")
    assert "accuracy-files" not in rules(check_submission_tree(tree.root, published))


def test_seeds_of_an_old_round_are_accepted_in_its_trees(tree: Tree) -> None:
    old = TREE_ROUNDS["v4.1"]
    in_round = replace(SHORT, name=old.name, seeds=old.seeds)
    assert "perf-seeds" in rules(check_submission_tree(tree.root, in_round))
    runs = [RunDir(path.parent) for path in tree.root.rglob("mlperf_log_detail.txt")]
    for run, kind in itertools.product(runs, ("effective", "requested")):
        for name, seed in vars(old.seeds).items():
            tree_mutations.edit_detail(run, f"{kind}_{name}", seed)
    assert not {"perf-seeds", "accuracy-seeds"} & rules(check_submission_tree(tree.root, in_round))


def test_an_ended_audit_is_known_in_the_trees_of_its_round(tree: Tree) -> None:
    text = tree.audit(next(tree.places()), "TEST05") / "verify_performance.txt"
    text.parent.mkdir(parents=True)
    text.write_text("TEST PASS\n")
    assert "tree-unknown" in rules(check_submission_tree(tree.root, SHORT))
    in_round = replace(SHORT, ended_audits=TREE_ROUNDS["v4.1"].ended_audits)
    assert rules(check_submission_tree(tree.root, in_round)) == set()


def test_an_optional_score_may_be_missing(tree: Tree) -> None:
    optional = {"targets": {"any": {"mAP": {"low": None, "high": 1.0}}}}
    assert rules(check_submission_tree(tree.root, short_round(**optional))) == set()


def test_each_stated_score_must_meet_the_target(tree: Tree) -> None:
    text = tree.accuracy(next(tree.places())).accuracy_text
    content = text.read_text()
    lower = {"accuracy-target", "accuracy-numbers"}  # ROUGE-2 is then above ROUGE-1
    for score, broken in (("40.0", set()), ("1.0", lower), ("1.0.0", {"accuracy-text", "accuracy-numbers"})):
        text.write_text(f"{{'rouge1': {score}}}\n{content}")
        assert rules(check_submission_tree(tree.root, SHORT)) == broken


def test_an_unread_number_format_is_not_a_finding(tree: Tree) -> None:
    text = tree.accuracy(next(tree.places())).accuracy_text
    text.write_text(f"{{'gen_other': np.int64(7)}}\n{text.read_text()}")
    assert rules(check_submission_tree(tree.root, SHORT)) == set()


def test_both_runs_may_have_different_datasets_if_the_rules_allow_it(tree: Tree) -> None:
    (place, *_) = tree.places()
    tree_mutations.edit_detail(tree.accuracy(place), "qsl_reported_total_count", 60)
    assert "log-config" in rules(check_submission_tree(tree.root, SHORT))
    assert "log-config" not in rules(check_submission_tree(tree.root, short_round(accuracy_samples={"any": 60})))


def test_user_conf_may_have_the_sample_count_of_the_accuracy_run(tree: Tree) -> None:
    place = next(place for place in tree.places() if place.scenario == "Server")
    conf = tree.user_conf(place)
    conf.write_text(f"{conf.read_text()}\n*.Server.performance_sample_count_override = 60\n")
    assert "user-conf-differs" in rules(check_submission_tree(tree.root, SHORT))
    assert "user-conf-differs" not in rules(check_submission_tree(tree.root, short_round(accuracy_samples={"any": 60})))


def test_another_accuracy_variant_of_a_supported_model_is_judged(tree: Tree) -> None:
    folder = tree.scenario(next(tree.places())).parent
    folder.rename(folder.with_name("llama2-70b-99"))
    checked = check_submission_tree(tree.root, ROUNDS["v6.0"])
    assert not [verdict.why for verdict in not_applied(*checked.verdict.all_verdicts) if "not known" in verdict.why]
    assert "tree-benchmark" not in rules(checked)


def test_a_duplicate_key_is_reported_and_the_other_fields_are_checked(tree: Tree) -> None:
    path = tree.measurements(next(tree.places()))
    text = path.read_text().strip()
    path.write_text('{"retraining": "", ' + text[1:].replace('"weight_data_types"', '"weight_data"'))
    messages = [
        finding.found
        for finding in check_submission_tree(tree.root, SHORT).findings
        if finding.rule == "measurements-field"
    ]
    assert any("'retraining' occurs twice" in message for message in messages)
    assert any("weight_data_types is missing" in message for message in messages)


def test_scores_in_all_files_of_an_accuracy_run_are_equal(tree: Tree) -> None:
    server = next(place for place in tree.places() if place.scenario == "Server")
    summary = tree.accuracy(server).summary
    content = summary.read_text()
    for changed in (content * 2, content.replace("No errors", "3 ERRORS")):
        assert changed != content
        summary.write_text(changed)
        assert "log-summary" in rules(check_submission_tree(tree.root, SHORT))


def test_a_target_rate_missing_from_the_log_is_reported(tree: Tree) -> None:
    server = next(place for place in tree.places() if place.scenario == "Server")
    conf = tree.user_conf(server)
    conf.write_text("*.Server.target_qps = 7\n")
    assert "user-conf-differs" in rules(check_submission_tree(tree.root, SHORT))
    # A line for a model with an unknown name may take precedence.
    conf.write_text("*.Server.target_qps = 7\nsome-model.Server.target_qps = 500\n")
    assert "user-conf-differs" not in rules(check_submission_tree(tree.root, SHORT))


def test_a_missing_log_is_reported(tree: Tree) -> None:
    offline = next(place for place in tree.places() if place.scenario == "Offline")
    tree.accuracy(offline).detail.unlink()
    checked = check_submission_tree(tree.root, SHORT)
    assert rules(checked) == {"log-missing"}
    lacking = {entry.why: entry.rules for entry in checked.rules_not_applied[str(offline)] if entry.lacks_input}
    assert "accuracy-mode" in lacking["accuracy/mlperf_log_detail.txt"]


@pytest.mark.parametrize(("name", "valid"), [("yolo-95", True), ("resnet", True), ("yolo95", False), ("llama3", False)])
def test_a_closed_result_must_be_of_a_benchmark_of_the_round(tree: Tree, name: str, valid: bool) -> None:
    (place, *_) = tree.places()
    folder = tree.scenario(place).parent
    folder.rename(folder.with_name(name))
    assert ("tree-benchmark" in rules(check_submission_tree(tree.root, SHORT))) is not valid


@pytest.mark.parametrize(
    ("division", "name", "benchmark"), [("open", "v5.1", "resnet"), ("closed", "v5.1", None), ("open", "v6.1", None)]
)
def test_an_unmapped_model_is_resnet_only_in_open_of_v5_1(
    tmp_path: Path, division: str, name: str, benchmark: str | None
) -> None:
    place = Place(division, "Example", "one-node", "efficientnet-lite3", "offline")
    assert mapped_benchmark(Tree(tmp_path, ROUNDS[name]), place) == benchmark


def test_a_log_of_another_system_is_reported_as_duplicate(tree: Tree) -> None:
    (place, *_) = tree.places()
    folder = tree.scenario(place).parent
    both = [folder.with_name("3d-unet-99"), folder.with_name("3d-unet-99.9")]
    shutil.copytree(folder, both[0])
    folder.rename(both[1])
    assert "log-duplicate" not in rules(check_submission_tree(tree.root, SHORT))
    copied_system = folder.parent.with_name("another-node")
    shutil.copytree(folder.parent, copied_system)
    description = tree.system(place.division, place.organization, place.system)
    shutil.copy(description, description.with_name("another-node.json"))
    paths = [
        finding.files[0]
        for finding in check_submission_tree(tree.root, SHORT).findings
        if finding.rule == "log-duplicate"
    ]
    assert paths
    assert len(paths) == len({path.parent for path in paths})  # one finding per run


def test_only_edge_results_may_infer_a_scenario(tree: Tree) -> None:
    (offline, *_) = tree.places()
    singlestream = tree.scenario(offline)
    tree_mutations.edit_detail(tree.performance(offline), "effective_scenario", "SingleStream")
    tree_mutations.edit_detail(tree.performance(offline), "requested_scenario", "SingleStream")
    assert singlestream.is_dir()
    assert "perf-scenario" in rules(check_submission_tree(tree.root, SHORT))
    description = tree.system(offline.division, offline.organization, offline.system)
    tree_mutations.edit_object(description, system_type="edge")
    assert "perf-scenario" not in rules(check_submission_tree(tree.root, SHORT))


def test_parallel_checks_have_the_same_findings(tree: Tree) -> None:
    server = next(place for place in tree.places() if place.scenario == "Server")
    tree_mutations.edit_detail(tree.performance(server), "result_validity", "INVALID")
    alone = check_submission_tree(tree.root, CURRENT_ROUND)
    beside = check_submission_tree(tree.root, CURRENT_ROUND, parallel_from=1)
    assert beside.findings == alone.findings
    assert beside.rules_not_applied == alone.rules_not_applied


def test_a_tree_that_contains_an_endpoints_run_is_checked_as_tree(short_tree: Tree, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    shutil.copytree(short_tree.root, root)
    (division, organization), *_ = Tree(root).organizations()
    folder = root / division / organization / "src" / "curve"
    for name in MARKS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    assert not is_for_endpoints(root)
    assert is_for_endpoints(folder)
    assert is_for_endpoints(folder.parent)
    checked = check_submission_tree(root, short_tree.round)
    assert len(checked.places) == len(list(short_tree.places()))
    (foreign,) = [finding for finding in checked.findings if "MLPerf Endpoints" in finding.found]
    assert (foreign.rule, foreign.severity, foreign.files[0]) == ("tree-unknown", "warning", folder.relative_to(root))
