"""`check` on clean trees and on every way to spoil them."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compliance.finding import Finding
from compliance.submission.check.check_tree import check_tree
from compliance.submission.check.copies import check_duplicates
from compliance.submission.check.findings import Findings, place_of
from compliance.submission.check.legs import ComparedLeg
from compliance.submission.check.scenario import ScenarioOutcome
from compliance.submission.tree import Place, Tree
from runs.benchmark import Scenario
from runs.errors import ExitCode
from runs.loadgen.detail_log import read_detail
from runs.record.layout import RunDir
from runs.rounds import CURRENT_ROUND, ROUNDS
from tests.support import tree_mutations, trees
from tests.support.published import PUBLISHED_MARKS
from tests.support.tree_mutations import MUTATIONS, Mutation

# Another clean tree to spoil, and its round: a directory that `submit` built.
OTHER_TREE, OTHER_ROUND = os.environ.get("CHECK_TREE"), os.environ.get("CHECK_ROUND", "v6.1")


@pytest.fixture(scope="module")
def short_tree() -> Tree:
    return trees.short_tree()[0]


@pytest.fixture(scope="module")
def published_tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return trees.build_published_tree(tmp_path_factory.mktemp("trees"))


TREES = ["short", pytest.param("published", marks=PUBLISHED_MARKS), *(["other"] if OTHER_TREE else [])]


@pytest.fixture(scope="module", params=TREES)
def clean(request: pytest.FixtureRequest) -> Iterator[tuple[Tree, set[Finding]]]:
    """A clean tree, and what is known of it. The short runs are held to short rules."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if request.param == "other":
            assert OTHER_TREE is not None
            assert OTHER_ROUND in ROUNDS
            tree = Tree(Path(OTHER_TREE).resolve(), ROUNDS[OTHER_ROUND])
        else:
            tree = request.getfixturevalue(f"{request.param}_tree")
        if request.param == "short":
            trees.shorten_rules(monkeypatch)
        yield tree, set(check_tree(tree.root, tree.round).findings)


def test_nothing_is_said_against_a_clean_tree(clean: tuple[Tree, set[Finding]]) -> None:
    _, findings = clean
    assert {finding for finding in findings if finding.rule != "rehearsal"} == set()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_change_is_found(
    clean: tuple[Tree, set[Finding]], mutation: Mutation, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    original, known = clean
    tree = Tree(tmp_path / "tree", original.round)
    shutil.copytree(original.root, tree.root, symlinks=True)
    spoilt = mutation.change(tree)
    if spoilt is None:
        assert original is not request.getfixturevalue("short_tree")  # it has everything: no change goes untested
        pytest.skip("this tree has nothing of the kind")
    if "rehearsal" in mutation.rules and any(finding.rule == "rehearsal" for finding in known):
        pytest.skip("this tree is a rehearsal already")
    findings = [finding for finding in check_tree(tree.root, tree.round).findings if finding not in known]
    file = spoilt.relative_to(tree.root).as_posix()
    named = {finding.rule for finding in findings if Path(file) in finding.files}
    assert named & set(mutation.rules), "\n".join(f"{f.rule} {place_of(f)}: {f.found}" for f in findings)


def test_check_gives_the_same_verdicts_without_a_word(
    short_tree: Tree, tmp_path: Path, wordless: Callable[[], None]
) -> None:
    """With the rules as they are: the short runs then break many, and each change some more."""
    changed = []
    for mutation in MUTATIONS[::4]:
        tree = Tree(tmp_path / mutation.name, short_tree.round)
        shutil.copytree(short_tree.root, tree.root)
        mutation.change(tree)
        changed.append(tree)

    def judged(tree: Tree) -> tuple[list[object], list[ExitCode]]:
        checked = check_tree(tree.root, tree.round)
        rows = {(place_of(found), found.rule, found.severity) for found in checked.findings}
        return sorted(rows), [checked.exit_code(strict=strict) for strict in (False, True)]

    before = [judged(tree) for tree in changed]
    assert len({rule for rows, _ in before for _, rule, _ in rows}) > 12
    wordless()
    assert [judged(tree) for tree in changed] == before


@pytest.fixture
def copied(short_tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    trees.shorten_rules(monkeypatch)
    return Tree(Path(shutil.copytree(short_tree.root, tmp_path / "tree")))


def found_in(tree: Tree) -> dict[str, str]:
    """What was found, by rule."""
    return {finding.rule: finding.found for finding in check_tree(tree.root, tree.round).findings}


def test_logs_of_a_loadgen_that_counts_no_errors_are_whole(copied: Tree) -> None:
    for place in copied.places():
        for run in (copied.performance(place), copied.accuracy(place)):
            tree_mutations.edit_detail(run, "loadgen_version", "5.0.15 @ a09ef11160")
        audit = RunDir(copied.audit(place, "TEST06") / "performance" / "run_1")
        tree_mutations.edit_detail(audit, "loadgen_version", "5.0.15 @ a09ef11160")
        tree_mutations.edit_detail(copied.performance(place), "num_errors", None)
    assert found_in(copied) == {}


def test_a_number_that_was_cut_off_with_the_log_is_none(copied: Tree) -> None:
    """The official tool cuts after so many bytes, wherever that is."""
    path = copied.accuracy(next(copied.places())).accuracy_log
    content, cut = path.read_bytes(), b'{ "seq_id" : 0, "qsl_idx" : 9'
    path.write_bytes(content[: 4096 - len(cut)] + cut + content[4096:])
    assert found_in(copied) == {}
    path.write_bytes(content[: 4096 - len(cut) - 1] + cut + b"," + content[4096:])
    assert "seq_id 0" in found_in(copied)["log-order"]


@pytest.mark.parametrize(("name", "said"), [("/loadgen-6.0.17-cp311.whl", ""), ("/patch.cc", "/patch.cc 0000"),
                                            ("/loadgen.cc", "/loadgen.cc 0000")])  # fmt: skip
def test_loadgen_is_told_by_its_sources(copied: Tree, name: str, said: str) -> None:
    run = copied.performance(next(copied.places()))
    sources = read_detail(run.detail).get("loadgen_file_sha1")
    tree_mutations.edit_detail(run, "loadgen_file_sha1", {**sources, name: "0" * 40})
    found = found_in(copied)
    assert list(found) == (["log-config"] if said else [])
    assert said in found.get("log-config", "")


def test_a_scenario_in_lower_case_is_accepted_where_it_is_the_only_one(copied: Tree) -> None:
    folder = copied.scenario(next(copied.places()))
    folder.rename(folder.with_name(folder.name.lower()))
    assert {finding.severity for finding in check_tree(copied.root, copied.round).findings} == {"warning"}


def test_files_that_are_no_evidence_may_lie_anywhere(copied: Tree) -> None:
    place = next(copied.places())
    run, home = copied.performance(place).root, copied.organisation("closed", "Example")
    for path in (copied.measurements_folder(place) / "mlperf.conf", run / "results.json", run.parent / "more" / "a.md",
                 home.parent / "summary.html", home / "power_settings.txt",
                 copied.audit(place, "TEST06") / "metadata.json"):  # fmt: skip
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert found_in(copied) == {}


@pytest.mark.parametrize("said", ["No", "none", "N/A", "not retrained", "We don’t retrain the model weight."])
def test_that_nothing_was_retrained_may_be_said_in_several_ways(copied: Tree, said: str) -> None:
    tree_mutations.edit_object(copied.measurements(next(copied.places())), retraining=said)
    assert found_in(copied) == {}


def test_the_network_division_allows_no_more_than_closed(copied: Tree) -> None:
    (copied.root / "closed").rename(copied.root / "network")
    place = next(copied.places())
    tree_mutations.edit_object(copied.measurements(place), retraining="LoRA", starting_weights_filename="Another-1B")
    assert {"measurements-retraining", "measurements-model"} <= found_in(copied).keys()


def test_the_open_division_has_rules_of_its_own(short_tree: Tree, tmp_path: Path) -> None:
    """No set of scenarios, no audit, no targets; but every log is held to its rules."""
    root = tmp_path / "tree"
    shutil.copytree(short_tree.root / "closed", root / "open")
    tree = Tree(root)
    offline, server = tree.places()
    shutil.rmtree(tree.scenario(offline))
    shutil.rmtree(tree.audit(server, "TEST06"))
    tree_mutations.edit_object(tree.system("open", "Example", "one-node"), division="open")
    text = tree.accuracy(server).accuracy_text
    tree_mutations.edit_text(text, "'rouge1': '38.", "'rouge1': '30.")
    renamed = tree.scenario(server).parent.rename(tree.scenario(server).parent.with_name("my-model"))
    tree_mutations.edit_detail(tree.performance(server_of(tree)), "result_validity", "INVALID")
    with pytest.MonkeyPatch.context() as monkeypatch:
        trees.shorten_rules(monkeypatch)
        assert "tree-benchmark" in {finding.rule for finding in check_tree(root, CURRENT_ROUND).findings}
        (root / "open" / "Example" / "model_mapping.json").write_text('{"my-model": "llama3.1-8b"}')
        checked = check_tree(root, CURRENT_ROUND)
    assert renamed.is_dir()
    assert {finding.rule for finding in checked.findings} == {"perf-validity", "log-arithmetic", "log-summary"}
    free = [one.rules for several in checked.judged.values() for one in several if "open division" in one.why]
    assert len(free) == len(checked.places)
    assert all("accuracy-target" in rules for rules in free)


@pytest.mark.parametrize(("division", "found"), [("closed", {"test06-length"}), ("open", set())])
def test_answers_of_an_open_model_may_be_longer(
    short_tree: Tree, tmp_path: Path, division: str, found: set[str]
) -> None:
    root = tmp_path / "tree"
    shutil.copytree(short_tree.root / "closed", root / division)
    tree = Tree(root)
    place = next(place for place in tree.places() if place.scenario == "Offline")
    tree_mutations.edit_object(tree.system(division, "Example", "one-node"), division=division)
    log = tree.audit(place, "TEST06") / "accuracy" / "mlperf_log_accuracy.json"
    entries = json.loads(log.read_text())
    for entry in entries:
        ids = bytes.fromhex(entry["data"])
        ids = ids[:4] * (129 - len(ids) // 4) + ids
        entry |= {"data": ids.hex().upper(), "token_count": 129}
    log.write_text(json.dumps(entries))
    with pytest.MonkeyPatch.context() as monkeypatch:
        trees.shorten_rules(monkeypatch)
        said = {one.rule for one in check_tree(root, CURRENT_ROUND).findings if "length" in one.found}
    assert said == found


def test_what_git_keeps_in_a_checkout_is_no_file_of_the_tree(short_tree: Tree, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    shutil.copytree(short_tree.root, root)
    (root / ".git").mkdir()
    (root / ".git" / "HEAD").symlink_to("nowhere")
    with pytest.MonkeyPatch.context() as monkeypatch:
        trees.shorten_rules(monkeypatch)
        assert check_tree(root, CURRENT_ROUND).findings == []
        (root / "closed" / "Example" / ".git").mkdir()
        assert {one.rule for one in check_tree(root, CURRENT_ROUND).findings} == {"tree-dot-file"}


def server_of(tree: Tree) -> Place:
    (place,) = tree.places()
    return place


def outcome_of(tree: Tree, scenario: Scenario, detail: str, system: str = "one") -> ScenarioOutcome:
    """A scenario whose accuracy log is the same as that of every other one."""
    place = Place("closed", "Example", system, "llama3.1-8b", scenario)
    run = tree.accuracy(place)
    leg = ComparedLeg("accuracy", run.detail, {run.detail: detail}, answers="a" * 64, answers_file=run.accuracy_text)
    return ScenarioOutcome(place, [], [leg], scenario)


@pytest.mark.parametrize(
    ("scenario", "detail", "system", "rules"),
    [
        ("Interactive", "other", "one", set()),  # one order of issue: a deterministic engine answers both alike
        ("Interactive", "first", "one", {"log-duplicate"}),  # one run, handed in twice
        ("Offline", "other", "one", {"log-same-answers"}),  # another order of issue
        ("Server", "other", "two", {"log-same-answers"}),
    ],
)
def test_the_same_answers_twice(tmp_path: Path, scenario: Scenario, detail: str, system: str, rules: set[str]) -> None:
    tree = Tree(tmp_path)
    findings = Findings(tree.root)
    check_duplicates([outcome_of(tree, "Server", "first"), outcome_of(tree, scenario, detail, system)], findings)
    assert {finding.rule for finding in findings.items} == rules


def test_two_systems_with_the_same_logs_are_one_finding(tmp_path: Path) -> None:
    tree, outcomes = Tree(tmp_path), []
    for system in ("one", "two"):
        place = Place("closed", "Example", system, "rgat", "Offline")
        logs = [tree.scenario(place) / str(number) / "mlperf_log_detail.txt" for number in range(6)]
        legs = [ComparedLeg(str(number), path, {path: str(number)}) for number, path in enumerate(logs)]
        outcomes.append(ScenarioOutcome(place, [], legs))
    findings = Findings(tree.root)
    check_duplicates(outcomes, findings)
    (found,) = findings.items
    assert found.files[0] == Path("closed/Example/results/two")
    assert len(found.numbers["logs"]) == 6
    assert found.numbers["results"] == ["closed/Example/two/rgat/Offline"]


def test_there_are_enough_changes() -> None:
    assert len(MUTATIONS) >= 40
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
