"""`check` on clean trees and on each change of them."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compliance.judge.verdict import Finding
from compliance.trees.copies import check_duplicates
from compliance.trees.findings import file_text, presented
from compliance.trees.scenario import PlaceDetails
from compliance.trees.scenario_directory import RunIdentity
from compliance.trees.tree import Place, Tree
from runs.benchmark import Scenario
from runs.loadgen.detail_log import read_detail
from runs.record.layout import RunDir
from runs.rounds import CURRENT_ROUND, ROUNDS
from tests.support.files.editing import edit_detail
from tests.support.published import PUBLISHED_MARKS
from tests.support.runs.counted_reads import count_reads
from tests.support.trees import clean_trees as trees
from tests.support.trees.checked_tree import check_submission_tree
from tests.support.trees.tree_mutations import MUTATIONS, Mutation, edit_object, edit_text

Change = Callable[[Tree], object]
# Another clean tree and its round: a directory that `submit` built
OTHER_TREE, OTHER_ROUND = os.environ.get("CHECK_TREE"), os.environ.get("CHECK_ROUND", "v6.1")


@pytest.fixture(scope="module")
def published_tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return trees.build_published_tree(tmp_path_factory.mktemp("trees"))


TREES = ["short", pytest.param("published", marks=PUBLISHED_MARKS), *(["other"] if OTHER_TREE else [])]


@pytest.fixture(scope="module", params=TREES)
def clean_tree(request: pytest.FixtureRequest) -> Iterator[tuple[Tree, set[Finding]]]:
    """Return a clean tree and its findings. Short runs are checked by the rules of short runs."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if request.param == "other":
            assert OTHER_TREE is not None
            assert OTHER_ROUND in ROUNDS
            tree = Tree(Path(OTHER_TREE).resolve(), ROUNDS[OTHER_ROUND])
        else:
            tree = request.getfixturevalue(f"{request.param}_tree")
        if request.param == "short":
            trees.shorten_rules(monkeypatch)
        yield tree, set(check_submission_tree(tree.root, tree.round).findings)


def test_a_clean_tree_has_no_findings(clean_tree: tuple[Tree, set[Finding]]) -> None:
    _, findings = clean_tree
    assert {finding for finding in findings if finding.rule != "rehearsal"} == set()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_each_change_of_a_tree_violates_its_rules(
    clean_tree: tuple[Tree, set[Finding]], mutation: Mutation, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    original, clean_findings = clean_tree
    tree = Tree(tmp_path / "tree", original.round)
    shutil.copytree(original.root, tree.root, symlinks=True)
    spoilt = mutation.change(tree)
    if spoilt is None:
        # This tree has all parts, so each change is tested
        assert original is not request.getfixturevalue("short_tree")
        pytest.skip("this tree has nothing of the kind")
    if "rehearsal" in mutation.rules and any(finding.rule == "rehearsal" for finding in clean_findings):
        pytest.skip("this tree is a rehearsal already")
    findings = [
        finding for finding in check_submission_tree(tree.root, tree.round).findings if finding not in clean_findings
    ]
    file = spoilt.relative_to(tree.root).as_posix()
    named = {finding.rule for finding in findings if Path(file) in finding.files}
    assert named & set(mutation.rules), "\n".join(f"{f.rule} {file_text(f)}: {f.found}" for f in findings)


# Trees that differ ----------------------------------------------------------------------------------------------------


def older_loadgen(tree: Tree) -> None:
    """Write logs of a version that counts no errors."""
    for place in tree.places():
        audit = RunDir(tree.audit(place, "TEST06") / "performance" / "run_1")
        for run in (tree.performance(place), tree.accuracy(place), audit):
            edit_detail(run, "loadgen_version", "5.0.15 @ a09ef11160")
        edit_detail(tree.performance(place), "num_errors", None)


def cut_at(end: bytes) -> Change:
    """Truncate a log after this many bytes, as the official tool does."""

    def change(tree: Tree) -> None:
        path = tree.accuracy(next(tree.places())).accuracy_log
        content, cut = path.read_bytes(), b'{ "seq_id" : 0, "qsl_idx" : 9' + end
        path.write_bytes(content[: 4096 - len(cut)] + cut + content[4096:])

    return change


def source(name: str) -> Change:
    """Change the hash of a source file of LoadGen."""

    def change(tree: Tree) -> None:
        run = tree.performance(next(tree.places()))
        sources = read_detail(run.detail).get("loadgen_file_sha1")
        edit_detail(run, "loadgen_file_sha1", {**sources, name: "0" * 40})

    return change


def no_evidence(tree: Tree) -> None:
    """Add files that may be anywhere."""
    place = next(tree.places())
    run, home = tree.performance(place).root, tree.organization("closed", "Example")
    for path in (tree.measurements_folder(place) / "mlperf.conf", run / "results.json", run.parent / "more" / "a.md",
                 home.parent / "summary.html", home / "power_settings.txt",
                 tree.audit(place, "TEST06") / "metadata.json"):  # fmt: skip
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")


def measured(**values: str) -> Change:
    return lambda tree: edit_object(tree.measurements(next(tree.places())), **values)


def in_network(tree: Tree) -> None:
    (tree.root / "closed").rename(tree.root / "network")
    measured(retraining="LoRA", starting_weights_filename="Another-1B")(tree)
    edit_object(tree.system("network", "Example", "one-node"), system_type="edge")


def checkout(folder: str) -> Change:
    """Add files of git, which are not files of the tree."""

    def change(tree: Tree) -> None:
        git = tree.root / folder / ".git"
        git.mkdir()
        (git / "HEAD").symlink_to("nowhere")

    return change


def longer_responses(division: str) -> Change:
    """Add longer responses to an open result, whose model may have another limit."""

    def change(tree: Tree) -> None:
        (tree.root / "closed").rename(tree.root / division)
        edit_object(tree.system(division, "Example", "one-node"), division=division)
        place = next(place for place in tree.places() if place.scenario == "Offline")
        log = tree.audit(place, "TEST06") / "accuracy" / "mlperf_log_accuracy.json"
        entries = json.loads(log.read_text())
        for entry in entries:
            ids = bytes.fromhex(entry["data"])
            ids = ids[:4] * (129 - len(ids) // 4) + ids
            entry |= {"data": ids.hex().upper(), "token_count": 129}
        log.write_text(json.dumps(entries))

    return change


# Change → violated rules, and the text of a finding
DIFFERENT: dict[str, tuple[Change, set[str], str]] = {
    "an older LoadGen": (older_loadgen, {"log-sources"}, "sources of LoadGen 5.0.15"),
    "cut within a number": (cut_at(b""), set(), ""),
    "cut behind a number": (cut_at(b","), {"log-order"}, "seq_id 0"),
    "another wheel": (source("/loadgen-6.0.17-cp311.whl"), set(), ""),
    "a source more": (source("/patch.cc"), {"log-config", "log-sources"}, "/patch.cc 0000"),
    "another source": (source("/loadgen.cc"), {"log-config", "log-sources"}, "/loadgen.cc 0000"),
    "files that are no evidence": (no_evidence, set(), ""),
    "the network division": (in_network, {"measurements-retraining", "measurements-model", "system-type"}, "LoRA"),
    "a checkout": (checkout("."), set(), ""),
    "a checkout in a tree": (checkout("closed/Example"), {"tree-dot-file", "tree-symlink"}, ".git"),
    "longer answers": (longer_responses("closed"), {"test06-length"}, "length"),
    "longer answers of an open model": (longer_responses("open"), set(), ""),
    **{
        f"retraining: {statement}": (measured(retraining=statement), set(), "")
        for statement in ("No", "none", "N/A", "not retrained", "We don’t retrain the model weight.")
    },
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_permitted_differences_violate_no_other_rules(tree_copy: Tree, case: str) -> None:
    change, rules, sentence = DIFFERENT[case]
    change(tree_copy)
    findings = check_submission_tree(tree_copy.root, tree_copy.round).findings
    broken = {finding.rule for finding in findings}
    assert rules <= broken if case == "the network division" else rules == broken
    assert not sentence or any(sentence in finding.sentence for finding in findings)


def test_a_lower_case_scenario_directory_is_a_warning(tree_copy: Tree) -> None:
    folder = tree_copy.scenario(next(tree_copy.places()))
    folder.rename(folder.with_name(folder.name.lower()))
    assert {finding.severity for finding in check_submission_tree(tree_copy.root, tree_copy.round).findings} == {
        "warning"
    }


def test_check_reads_each_log_once(tree_copy: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = count_reads(monkeypatch)
    check_submission_tree(tree_copy.root, tree_copy.round)
    assert {name for name, _ in reads} >= {"read_detail", "read_summary", "read_accuracy_log"}
    assert {key for key, count in reads.items() if count > 1} == set()


def test_an_open_tree_requires_neither_audits_nor_all_scenarios(tree_copy: Tree) -> None:
    """An open tree may miss scenarios, audits and targets. The rules on logs apply."""
    (tree_copy.root / "closed").rename(tree_copy.root / "open")
    offline, server = tree_copy.places()
    shutil.rmtree(tree_copy.scenario(offline))
    shutil.rmtree(tree_copy.audit(server, "TEST06"))
    edit_object(tree_copy.system("open", "Example", "one-node"), division="open")
    edit_text(tree_copy.accuracy(server).accuracy_text, "'rouge1': '38.", "'rouge1': '37.")
    edit_detail(tree_copy.performance(server), "result_validity", "INVALID")
    tree_copy.scenario(server).parent.rename(tree_copy.scenario(server).parent.with_name("my-model"))
    assert "tree-benchmark" in {
        finding.rule for finding in check_submission_tree(tree_copy.root, CURRENT_ROUND).findings
    }
    (tree_copy.root / "open" / "Example" / "model_mapping.json").write_text('{"my-model": "llama3.1-8b"}')
    checked = check_submission_tree(tree_copy.root, CURRENT_ROUND)
    assert {finding.rule for finding in checked.findings} == {"perf-validity", "log-arithmetic", "log-summary"}
    free = [
        entry.rules for group in checked.rules_not_applied.values() for entry in group if "open division" in entry.why
    ]
    assert len(free) == len(checked.places)
    assert all("accuracy-target" in rules for rules in free)


def outcome_of(tree: Tree, scenario: Scenario, detail: str, system: str = "one") -> PlaceDetails:
    """Return a scenario whose accuracy log equals that of all other scenarios."""
    place = Place("closed", "Example", system, "llama3.1-8b", scenario)
    run = tree.accuracy(place)
    identity = RunIdentity(
        "accuracy", run.detail, {run.detail: detail}, responses="a" * 64, responses_file=run.accuracy_text
    )
    return PlaceDetails(place, [identity])


@pytest.mark.parametrize(
    ("scenario", "detail", "system", "rules"),
    [
        ("Interactive", "other", "one", set()),  # one order of issue, so a deterministic engine gives equal responses
        ("Interactive", "first", "one", {"log-duplicate"}),  # one run, submitted twice
        ("Offline", "other", "one", {"log-same-answers"}),  # another order of issue
        ("Server", "other", "two", {"log-same-answers"}),
    ],
)
def test_equal_responses_of_two_results_are_reported(
    tmp_path: Path, scenario: Scenario, detail: str, system: str, rules: set[str]
) -> None:
    tree = Tree(tmp_path)
    outcomes = [outcome_of(tree, "Server", "first"), outcome_of(tree, scenario, detail, system)]
    assert {finding.rule for finding in check_duplicates(tree.root, outcomes)} == rules


def test_two_systems_with_equal_logs_are_one_finding(tmp_path: Path) -> None:
    tree, outcomes = Tree(tmp_path), []
    for system in ("one", "two"):
        place = Place("closed", "Example", system, "rgat", "Offline")
        logs = [tree.scenario(place) / str(number) / "mlperf_log_detail.txt" for number in range(6)]
        runs = [RunIdentity(str(number), path, {path: str(number)}) for number, path in enumerate(logs)]
        outcomes.append(PlaceDetails(place, runs))
    (finding,) = presented(tree.root, check_duplicates(tree.root, outcomes))
    assert finding.files[0] == Path("closed/Example/results/two")
    assert len(finding.numbers["logs"]) == 6
    assert finding.numbers["results"] == ["closed/Example/two/rgat/Offline"]
