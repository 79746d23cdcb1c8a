"""The plain types of vLLM's engine arguments, read from its source: importing it takes as long as an engine's start."""

import ast
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runs.errors import InputError

_CLASSES = ("EngineArgs", "AsyncEngineArgs")
_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}


def check_types(asked: dict[str, Any], source: Path | None = None) -> None:
    """Refuse values of another type than vLLM declares for the argument.

    Only arguments that are declared with plain types are judged; a name that is not there is left to vLLM itself.

    Args:
        source: the file that declares them. Default: that of the vLLM that is installed.

    Raises:
        InputError: naming the argument, its value and what is taken.
    """
    declared = _declared(source or _installed()) if asked else {}
    for name, value in asked.items():
        taken = declared.get(name)
        if value is None or taken is None or any(_fits(value, one) for one in taken):
            continue
        words = " or ".join(_WORDS.get(one, one) for one in taken if one != "None")
        fix = f"write --engine-arg {name}='\"{value}\"'" if "str" in taken else f"give {words}"
        raise InputError(f"--engine-arg {name}={value}: vLLM takes {words} there", fix)


def _fits(value: Any, taken: str) -> bool:
    if taken == "float":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if taken in _WORDS:
        return type(value).__name__ == taken
    return bool(value == taken)


def _installed() -> Path | None:
    spec = importlib.util.find_spec("vllm")
    folders = spec.submodule_search_locations if spec else None
    return Path(next(iter(folders))) / "engine" / "arg_utils.py" if folders else None


@functools.cache
def _declared(source: Path | None) -> dict[str, tuple[str, ...]]:
    """Argument → the plain types and words it takes; without those that take anything else."""
    try:
        module = ast.parse(source.read_bytes()) if source else ast.Module([], [])
    except (OSError, SyntaxError):  # another vLLM: it judges by itself
        return {}
    found = {}
    for owner in module.body:
        if isinstance(owner, ast.ClassDef) and owner.name in _CLASSES:
            for field in owner.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    taken = tuple(_atoms(field.annotation))
                    if "" not in taken:
                        found[field.target.id] = taken
    return found


def _atoms(annotation: ast.expr) -> Iterator[str]:
    """The members of a union; an empty text for one that is not plain."""
    if isinstance(annotation, ast.BinOp):
        yield from _atoms(annotation.left)
        yield from _atoms(annotation.right)
    elif isinstance(annotation, ast.Name) and annotation.id in _WORDS:
        yield annotation.id
    elif isinstance(annotation, ast.Constant) and annotation.value is None:
        yield "None"
    elif isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        words = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        yield from (str(word.value) if isinstance(word, ast.Constant) else "" for word in words)
    else:
        yield ""
