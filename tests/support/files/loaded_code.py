"""The files of the checkout that Python files import, and those that these import.

The source text is searched, so nothing is imported. Imports inside of functions count. Modules that are imported by a
computed name are not found.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_FROM = re.compile(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|.*)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import[ \t]+(.*)", re.MULTILINE)


def loaded_files(files: Iterable[Path], root: Path = ROOT) -> list[Path]:
    """Return the files and all files below `root` that they import, directly or through others."""
    loaded: set[Path] = set()
    remaining = set(files)
    while remaining:
        path = remaining.pop()
        loaded.add(path)
        remaining |= _direct_imports(path, root) - loaded
    return sorted(loaded)


def module_files(name: str, root: Path = ROOT) -> Iterator[Path]:
    """Yield the files that an import of a module executes: its own, and `__init__.py` of each package around it."""
    place = root.joinpath(*name.split("."))
    packages = [place, *place.parents]
    for path in (place.with_suffix(".py"), *(folder / "__init__.py" for folder in packages[: packages.index(root)])):
        if path.is_file():
            yield path


@cache
def _direct_imports(path: Path, root: Path) -> frozenset[Path]:
    text = path.read_text()
    names = {name for line in _IMPORT.findall(text) for name in re.findall(r"\w[\w.]*", line)}
    for package, members in _FROM.findall(text):
        names |= {package, *(f"{package}.{member}" for member in re.findall(r"\w+", members))}
    return frozenset(file for name in names if not name.startswith(".") for file in module_files(name, root))
