"""Fixtures: a clean tree of short runs, and a copy of it."""

import shutil
from pathlib import Path

import pytest

from compliance.trees.tree import Tree
from tests.support.trees import clean_trees as trees


@pytest.fixture(scope="session")
def short_tree() -> Tree:
    return trees.short_tree()[0]


@pytest.fixture
def tree_copy(short_tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Return a copy of the short tree, with the rules of short runs."""
    trees.shorten_rules(monkeypatch)
    return Tree(Path(shutil.copytree(short_tree.root, tmp_path / "tree")))
