"""The check of a tree, with a choice of processes."""

from collections.abc import Sequence
from pathlib import Path

from compliance.judge.verdict import judge
from compliance.trees.check_tree import CHECK, PARALLEL_FROM, TreeReport, in_processes, whole_tree
from runs.rounds import Round


def check_submission_tree(
    root: Path, in_round: Round, parallel_from: int = PARALLEL_FROM, against: Sequence[Path] = ()
) -> TreeReport:
    verdict = judge(whole_tree(root, in_round, against), CHECK, in_processes(parallel_from))
    if verdict.error is not None:
        raise verdict.error
    return TreeReport(verdict)
