"""The archive of the back-test: real legs, and of every faulty case the files that its faults changed.

`python -m tests.signoff.forge.archive` forges all cases of recipes.jsonl anew from the legs in the archive, and packs
both. A record of another form needs new legs (make_runs.py). Cases are stored as they were forged, each leg sealed
anew, as somebody would who forges with care.
"""

import io
import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from runs.record.layout import RunDir
from tests.signoff.backtest import CASES_NAME, DEFAULT_FOLDER, FORGED, LEGS, RUNS_NAME, Case, read_cases
from tests.signoff.forge.faults import inject

RECIPES = Path(__file__).with_name("recipes.jsonl")
DICTIONARY_BYTES = 64 << 20  # larger than all files together: most are near copies of others


@dataclass(frozen=True)
class Recipe:
    """The faults of one case: by a leg's name there, [fault, argument, …] in order."""

    name: str
    faults: dict[str, list[list[Any]]]


@dataclass(frozen=True)
class Forged:
    """What the faults changed, by the path in the case's folder."""

    changed: dict[str, bytes]
    removed: list[str]


def read_recipes() -> list[Recipe]:
    return [Recipe(**orjson.loads(line)) for line in RECIPES.read_bytes().splitlines()]


def unpack(folder: Path) -> None:
    """The whole archive: `legs/` and `forged/`."""
    with tarfile.open(DEFAULT_FOLDER / RUNS_NAME) as archive:
        archive.extractall(folder, filter="data")


def forge_all(legs: Path) -> Iterator[tuple[Case, Forged]]:
    """Every faulty case, made from the legs."""
    cases = {case.name: case for case in read_cases()}
    for recipe in read_recipes():
        case = cases[recipe.name]
        with tempfile.TemporaryDirectory(prefix="forge-") as temporary:
            yield case, _forge(case, recipe, legs, Path(temporary))


def _forge(case: Case, recipe: Recipe, legs: Path, place: Path) -> Forged:
    for name, source in case.legs():
        shutil.copytree(legs / source, place / name)
    before = _files(place)
    for name, _ in case.legs():
        for fault, *arguments in recipe.faults.get(name, []):
            inject(RunDir(place / name), fault, arguments, legs)
    after = _files(place)
    changed = {name: content for name, content in after.items() if before.get(name) != content}
    return Forged(changed, sorted(before.keys() - after.keys()))


def _files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pack(files: dict[str, bytes]) -> None:
    """Write the archive, without anything that differs from packing to packing; like files beside each other."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in sorted(files, key=lambda name: (name.rpartition("/")[2], name)):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            archive.addfile(entry, io.BytesIO(files[name]))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": DICTIONARY_BYTES}]
    (DEFAULT_FOLDER / RUNS_NAME).write_bytes(lzma.compress(buffer.getvalue(), filters=filters))


def pack_with_cases(legs: Path) -> None:
    """Forge every case from the legs in a folder, pack both, and note in cases.jsonl what is taken away."""
    files = {f"{LEGS}/{name}": content for name, content in _files(legs).items()}
    removed: dict[str, list[str]] = {}
    for case, forged in forge_all(legs):
        files |= {f"{FORGED}/{case.name}/{name}": content for name, content in forged.changed.items()}
        removed[case.name] = forged.removed
    pack(files)
    lines = []
    for case in read_cases():
        noted = case.model_copy(update={"removed": removed.get(case.name, [])})
        lines.append(orjson.dumps(noted.model_dump(exclude_defaults=True)) + b"\n")
    (DEFAULT_FOLDER / CASES_NAME).write_bytes(b"".join(lines))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="forge-") as temporary:
        unpack(Path(temporary))
        pack_with_cases(Path(temporary) / LEGS)


if __name__ == "__main__":
    main()
