"""Where things lie: sets of scenarios, names, kinds and sizes of files, marks of a rehearsal."""

import os
import shutil
from pathlib import Path

from compliance.submission.tree import Tree
from tests.support.tree_mutations.registry import accuracy, first, mutation, performance, some


@mutation("scenario-set")
def no_offline(tree: Tree) -> Path:
    place = first(tree, "Offline")
    assert place is not None
    shutil.rmtree(tree.scenario(place))
    return tree.scenario(place).parent


@mutation("tree-scenario")
def scenario_that_the_benchmark_has_not(tree: Tree) -> Path:
    place = some(tree)
    path = tree.scenario(place)
    return _copied(path, "Server" if "edge" in place.benchmark else "SingleStream")


@mutation("tree-benchmark")
def interactive_as_a_benchmark(tree: Tree) -> Path:
    return _copied(tree.scenario(some(tree)).parent, "llama3.1-8b-interactive")


@mutation("tree-unknown")
def second_run(tree: Tree) -> Path:
    return _copied(performance(tree).root, "run_2")


def _copied(folder: Path, name: str) -> Path:
    """The same directory once more, under another name beside it."""
    return Path(shutil.copytree(folder, folder.with_name(name)))


@mutation("tree-case")
def scenario_in_lower_case(tree: Tree) -> Path:
    path = tree.scenario(some(tree))
    return path.rename(path.with_name(path.name.lower()))


@mutation("tree-case")
def scenario_in_two_cases(tree: Tree) -> Path:
    path = tree.scenario(some(tree))
    return Path(shutil.copytree(path, path.with_name(path.name.upper())))


@mutation("tree-unknown")
def text_of_an_audit_beside_the_logs(tree: Tree) -> Path:
    return _written(performance(tree).root / "verify_accuracy.txt", "TEST PASS")


@mutation("tree-dot-file")
def dot_file(tree: Tree) -> Path:
    return _written(tree.scenario(some(tree)) / ".DS_Store", "x")


@mutation("tree-name")
def name_with_a_blank(tree: Tree) -> Path:
    return _written(tree.scenario(some(tree)) / "read me.txt", "x")


@mutation("rehearsal")
def mark_of_a_rehearsal_in_a_readme(tree: Tree) -> Path:
    return _written(tree.readme(some(tree)), "REHEARSAL - NOT FOR UPLOAD\n")


@mutation("rehearsal")
def file_of_a_rehearsal(tree: Tree) -> Path:
    return _written(tree.rehearsal_file(), "it was not meant seriously\n")


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@mutation("tree-symlink")
def symbolic_link_for_a_log(tree: Tree) -> Path:
    path = performance(tree).summary
    path.unlink()
    path.symlink_to("mlperf_log_detail.txt")
    return path


@mutation("tree-symlink")
def loop_of_links(tree: Tree) -> Path:
    path = tree.scenario(some(tree)) / "performance" / "again"
    path.symlink_to("..")
    return path


@mutation("tree-special")
def pipe_for_a_log(tree: Tree) -> Path:
    path = accuracy(tree).accuracy_log
    path.unlink()
    os.mkfifo(path)
    return path


@mutation("tree-size")
def file_above_50_mb(tree: Tree) -> Path:
    path = performance(tree).trace
    with path.open("wb") as stream:
        stream.truncate(60 * 1024 * 1024)
    return path
