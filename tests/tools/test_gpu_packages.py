"""Packages for a GPU host: libraries are reduced, and parts are installed together or not at all."""

import re
import struct
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from runs.errors import InputError
from tests.conftest import ROOT
from tools.gpu import unpack
from tools.gpu.pack import ARCHIVE, PACKAGES, files_of, find_wheel, split, write_archive
from tools.gpu.slim import MAX_PTX_BYTES, slim

PTX, MACHINE_CODE = 1, 2


def entry(kind: int, architecture: int, code: bytes) -> bytes:
    """Return an entry of a fat binary with a header of 64 bytes."""
    header = bytearray(64)
    struct.pack_into("<HHIQ", header, 0, kind, 257, len(header), len(code))
    struct.pack_into("<I", header, 28, architecture)
    return bytes(header) + code


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_a_library_keeps_only_the_code_of_one_architecture() -> None:
    native, older, newer = (entry(MACHINE_CODE, number, b"%d" % number * 40) for number in (90, 80, 100))
    ptx, newer_ptx = entry(PTX, 75, b"small"), entry(PTX, 100, b"small")
    large = entry(PTX, 90, b"p" * MAX_PTX_BYTES)
    by_chance = struct.pack("<IHHQ", 0xBA55ED50, 7, 16, 5)
    parts = [b"before", container(older, native, newer), by_chance, container(older, ptx, newer_ptx), container(large)]
    library = b"".join([*parts, b"after"])
    slimmed = slim(library)
    assert len(slimmed.content) == len(library)
    places = [sum(map(len, parts[:number])) for number in (1, 3, 4)]
    for place, kept in zip(places, (native, ptx, min(older, newer, key=len)), strict=True):
        assert slimmed.content[place : place + 16 + len(kept)] == container(kept)
    rest = places[0] + 16 + len(native)
    assert slimmed.content[rest : places[0] + len(parts[1])].strip(b"\0") == b""
    assert slimmed.content.startswith(b"before")
    assert slimmed.content.endswith(b"after")
    assert slimmed.containers == {"machine code of sm_90": 1, "PTX": 1, "no code for the GPU": 1}


@pytest.mark.parametrize("library", [b"no code here", container(b"x" * 64)], ids=["none", "unknown entry"])
def test_a_library_of_unknown_layout_is_refused(library: bytes) -> None:
    with pytest.raises(InputError):
        slim(library)


def make_wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in files.items():
            archive.writestr(member, text)
    return path


def test_a_package_in_parts_is_installed_when_complete(tmp_path: Path) -> None:
    files = {
        "a_b/__init__.py": "one = 1\n" * 500,
        "a_b/types.pyi": "one: int",
        "a_b/x.cpython-311-x86_64-linux-gnu.so": "for another Python",
        "a_b-1.0.data/scripts/program": "#!/bin/sh",
        "a_b-1.0.data/headers/a.h": "int a;",
    }
    wheel = make_wheel(tmp_path, "a_b", files)
    assert find_wheel(tmp_path, "A.b", "1.0") == wheel
    assert find_wheel(tmp_path, "a-b", "2.0") is None
    carried, aside, site = tmp_path / "carried", tmp_path / "aside", tmp_path / "site"
    for folder in (carried, aside):
        folder.mkdir()
    assert unpack.install(carried, site) == unpack.FAILED
    write_archive(list(files_of(wheel, complete=False)), tmp_path / ARCHIVE)
    first, *rest = split(tmp_path / ARCHIVE, carried, 128)
    assert rest
    first.rename(aside / first.name)
    assert unpack.install(carried, site) == unpack.FAILED
    first.write_bytes(b"damaged")
    assert unpack.install(carried, site) == unpack.FAILED
    assert not site.exists()
    for part in rest:  # kept on the host from now on
        part.unlink()
    (aside / first.name).rename(first)
    assert unpack.install(carried, site) == unpack.INSTALLED
    installed = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert {name for name in installed if "__pycache__" not in name} == {"a_b/__init__.py", "bin/program", ".complete"}
    assert (site / "bin" / "program").stat().st_mode & 0o111
    (site / "a_b" / "__init__.py").unlink()
    assert unpack.install(tmp_path / "none", site) == unpack.INSTALLED  # used at once, and not created again
    assert not (site / "a_b" / "__init__.py").exists()


def test_each_dependency_is_packed_available_or_unused() -> None:
    listed = yaml.safe_load(PACKAGES.read_text())
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.split("[=<>~]", line)[0] for line in declared}
    assert names <= {*listed["carried"], *listed["in_the_image"], *listed["not_used"]}
    pinned = dict(line.split("==") for line in declared if "==" in line)
    assert {name: listed["carried"][name] for name in pinned} == pinned
