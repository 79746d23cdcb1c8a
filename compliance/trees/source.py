"""The search for a submission tree, for `check`, and what follows its rules: its runs, and the official checker."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from compliance.sources import Case, VerdictRequest
from compliance.trees.check_report import TREE
from compliance.trees.check_tree import CHECK, TreeVerdict, in_processes, whole_tree
from compliance.trees.official_checker import run_official
from runs.errors import InputError
from runs.rounds import CURRENT_ROUND

REBUILD = "compliance.submission.rebuild"  # only --runs needs this module
_OF_RUNS = ("--system", "--source", "--dataset-path", "--model-path")


def tree_cases(paths: Sequence[Path], request: VerdictRequest) -> list[Case]:
    """Return the trees.

    Raises:
        InputError: If a tree does not exist or is empty, if --runs has no run, or if an option needs --runs.
    """
    if not request.runs and not set(request.options).isdisjoint(_OF_RUNS):
        raise InputError(f"{', '.join(_OF_RUNS[:-1])} and {_OF_RUNS[-1]} require --runs", "add --runs DIR")
    rebuild = import_module(REBUILD) if request.runs else None
    inputs = rebuild and rebuild.tree_inputs(request)
    in_round = request.round or CURRENT_ROUND

    def complete(verdict: TreeVerdict) -> None:
        if verdict.error is not None:
            raise verdict.error
        verdict.details.strict = request.strict
        if rebuild is not None:
            rebuild.compare_tree_with_runs(verdict, inputs)
        if request.checker is not None:
            official = verdict.details.official = run_official(request.checker, verdict.details.tree.root, in_round)
            verdict.refused_by += [] if official.ok else ["the official checker"]

    return [
        Case(whole_tree(path, in_round, request.against), CHECK, TREE, in_processes(), complete, home=path)
        for path in paths
    ]
