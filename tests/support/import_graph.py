"""Which of the product's files a file imports, directly or not, by their syntax trees; nothing is imported.

Imports inside functions count, and those for type checkers do not.
"""

import ast
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = frozenset({"compliance", "qsl", "runs", "scenarios", "scripts", "sut"})

Edge = tuple[Path, Path]  # an importing file, and the file that it imports


def _statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield from _statements(other)
        else:
            yield from _statements(child)


def _names(file: Path) -> Iterator[str]:
    """Dotted names that may be modules."""
    for statement in _statements(ast.parse(file.read_text())):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        else:
            assert statement.module is not None, f"{file}: a relative import"
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


@cache
def imported_by(file: Path) -> frozenset[Path]:
    """The files that a file imports itself, with the packages that they are in."""
    found = set()
    for name in _names(file):
        parts = name.split(".") if name.partition(".")[0] in PACKAGES else []
        for length in range(1, len(parts) + 1):
            place = ROOT.joinpath(*parts[:length])
            found |= {path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()}
    return frozenset(found - {file})


def closure(files: Collection[Path], without: Edge | None = None) -> set[Path]:
    """All files that these need, and these; `without` one import."""
    found, waiting = set(files), list(files)
    while waiting:
        importing = waiting.pop()
        new = {one for one in imported_by(importing) if one not in found and (importing, one) != without}
        found |= new
        waiting += new
    return found


@cache
def line_count(file: Path) -> int:
    return file.read_bytes().count(b"\n")


def size(files: Collection[Path]) -> int:
    """Lines of files."""
    return sum(map(line_count, files))


def heaviest_edges(files: Collection[Path], count: int) -> list[tuple[int, Edge]]:
    """The imports without which the most lines would not be needed, with the number of these lines."""
    whole = closure(files)
    total = size(whole)
    edges = [(one, other) for one in sorted(whole) for other in sorted(imported_by(one))]
    return sorted(((total - size(closure(files, edge)), edge) for edge in edges), reverse=True)[:count]
