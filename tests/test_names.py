"""Local names state what they hold in all packages, tests and tools. Names of tests state an outcome."""

import ast
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

VAGUE = frozenset(
    ("one", "other", "found", "of", "given", "asked", "said", "known", "there", "held", "whole", "ours", "theirs")
)
PACKAGES = ("compliance", "mlperf_llama_vllm", "qsl", "runs", "scenarios", "scripts", "sut", "tests", "tools")
Function = ast.FunctionDef | ast.AsyncFunctionDef
MIN_WORDS_OF_A_TEST = 3
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def vague_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each vague local name and parameter.

    Excepted are comprehensions and lambdas of one line, the operand of an operator such as `__add__`, and the pair of
    parameters `found` and `required`, which every finding has.
    """
    for node in ast.walk(tree):
        if isinstance(node, Function):
            parameters = {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
            excepted = {"found"} if "required" in parameters else set()
            excepted |= {"other"} if node.name.startswith("__") else set()
            yield from ((line, name) for line, name in _bindings(node) if name in VAGUE - excepted)


def _bindings(node: ast.AST) -> Iterator[tuple[int, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Comprehension | ast.Lambda) and child.lineno == child.end_lineno:
            continue
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.lineno, child.id
        elif isinstance(child, ast.arg):
            yield child.lineno, child.arg
        if not isinstance(child, Function):
            yield from _bindings(child)


@pytest.mark.parametrize("package", PACKAGES)
def test_local_names_say_what_they_hold(package: str) -> None:
    vague = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, name in vague_names(ast.parse(path.read_text()))
    ]
    assert vague == []


def vague_members(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each function, field and attribute with a vague name."""
    for node in ast.walk(tree):
        if isinstance(node, Function) and node.name.strip("_") in VAGUE:
            yield node.lineno, node.name
        elif isinstance(node, ast.ClassDef):
            fields = [child.target for child in node.body if isinstance(child, ast.AnnAssign)]
            yield from (
                (field.lineno, field.id) for field in fields if isinstance(field, ast.Name) and field.id in VAGUE
            )
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr.strip("_") in VAGUE:
            yield from [(node.lineno, node.attr)] if ast.unparse(node.value) == "self" else []


def test_functions_and_fields_of_tests_say_what_they_are() -> None:
    vague = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, name in vague_members(ast.parse(path.read_text()))
    ]
    assert vague == []


def test_names_of_tests_have_a_subject_and_an_outcome() -> None:
    short = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, Function) and node.name.startswith("test_")
        if len(node.name.split("_")) <= MIN_WORDS_OF_A_TEST and path.name != "test_examples.py"  # names of programs
    ]
    assert short == []


def test_vague_names_are_reported_outside_of_short_comprehensions() -> None:
    code = "def f(of):\n    found = [one for one in of]\n    for one in of:\n        pass\n"
    assert list(vague_names(ast.parse(code))) == [(1, "of"), (2, "found"), (3, "one")]
    assert not list(vague_names(ast.parse("def compared(found, required):\n    return found == required\n")))


def test_vague_members_are_reported() -> None:
    code = "class C:\n    given: int\n    def of(self):\n        self._asked = self.found = self.path = 1\n"
    assert [name for _, name in vague_members(ast.parse(code))] == ["given", "of", "_asked", "found"]
