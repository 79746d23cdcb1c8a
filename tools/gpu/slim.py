"""Reduce a CUDA library to the machine code of one GPU architecture.

A library that nvcc built embeds fat binaries: containers with an entry for each architecture, either machine code or
PTX. The CUDA driver loads the machine code of the GPU's architecture; if it is missing, it compiles the newest PTX that
is not newer than the GPU. Code refers to containers by address, so containers do not move. The kept entries move to the
front of their container, its header gets their size, and zeros, which compress well, fill the rest.

The layout is undocumented and was derived from libraries of CUDA 12 and 13. Entries with another layout are an error.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from runs.errors import InputError

HOPPER = 90
_MAGIC, _VERSION = 0xBA55ED50, 1
_CONTAINER = struct.Struct("<IHHQ")  # magic number, version, size of this header, size of the entries
_ENTRY = struct.Struct("<HHIQ")  # kind, version, size of the entry's header, size of its code
_ARCHITECTURE_AT = 28  # offset in an entry's header
_MIN_ENTRY_HEADER = 64
_PTX, _MACHINE_CODE = 1, 2
MAX_PTX_BYTES = 100_000  # larger PTX would take the driver minutes to compile


@dataclass(frozen=True)
class _Entry:
    kind: int
    architecture: int
    content: bytes


@dataclass
class Slimmed:
    """A reduced library."""

    content: bytes
    kept_bytes: int = 0
    code_bytes: int = 0  # size before the reduction
    containers: Counter[str] = field(default_factory=Counter)  # number of containers by the kind of kept entries

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} with {kept}" for kept, count in sorted(self.containers.items()))
        return f"{self.kept_bytes:,} of {self.code_bytes:,} bytes of GPU code; containers: {kinds}"


def slim(library: bytes, architecture: int = HOPPER) -> Slimmed:
    """Keep the code that a GPU of this architecture runs.

    A container without machine code and without small PTX for the architecture keeps the smallest entry that the GPU
    cannot run, because an empty container is invalid. Its kernels are then missing.

    Raises:
        InputError: If the library has no fat binary, or a fat binary of another layout.
    """
    containers = list(_containers(library))
    if not containers:
        raise InputError("the library has no fat binary", "remove the library from the list of libraries to reduce")
    foreign = [
        entry
        for _, entries in containers
        for entry in entries
        if entry.kind == _MACHINE_CODE and entry.architecture != architecture
    ]
    slimmed, content = Slimmed(b""), bytearray(library)
    for start, entries in containers:
        stand_in = min([*foreign, *entries], key=lambda entry: len(entry.content))
        kept, name = _kept(entries, architecture, stand_in)
        body, size = b"".join(entry.content for entry in kept), sum(len(entry.content) for entry in entries)
        content[start : start + size] = body + bytes(size - len(body))
        _CONTAINER.pack_into(content, start - _CONTAINER.size, _MAGIC, _VERSION, _CONTAINER.size, len(body))
        slimmed.containers[name] += 1
        slimmed.kept_bytes, slimmed.code_bytes = slimmed.kept_bytes + len(body), slimmed.code_bytes + size
    slimmed.content = bytes(content)
    return slimmed


def _containers(library: bytes) -> Iterator[tuple[int, list[_Entry]]]:
    """Yield the start of the entries of each container, and the entries."""
    magic, place = struct.pack("<I", _MAGIC), 0
    while (place := library.find(magic, place)) >= 0:
        start = place + _CONTAINER.size
        if start > len(library):
            return
        _, version, header, size = _CONTAINER.unpack_from(library, place)
        if (version, header) != (_VERSION, _CONTAINER.size) or start + size > len(library):
            place += len(magic)  # not a container: the magic number occurs by chance
            continue
        yield start, list(_entries(library, start, start + size))
        place = start + size


def _entries(library: bytes, place: int, end: int) -> Iterator[_Entry]:
    while place < end:
        kind, _, header, code = _ENTRY.unpack_from(library, place)
        if kind not in (_PTX, _MACHINE_CODE) or header < _MIN_ENTRY_HEADER or place + header + code > end:
            raise InputError(f"unknown entry in a fat binary at byte {place}", "pack the whole libraries: --whole")
        (architecture,) = struct.unpack_from("<I", library, place + _ARCHITECTURE_AT)
        yield _Entry(kind, architecture, library[place : place + header + code])
        place += header + code


def _kept(entries: list[_Entry], architecture: int, stand_in: _Entry) -> tuple[list[_Entry], str]:
    """Return the entries of a container to keep, and their kind."""
    entries_of_gpu = [entry for entry in entries if (entry.kind, entry.architecture) == (_MACHINE_CODE, architecture)]
    if entries_of_gpu:
        return entries_of_gpu, f"machine code of sm_{architecture}"
    older = [entry for entry in entries if entry.kind == _PTX and entry.architecture <= architecture]
    newest = max((entry.architecture for entry in older), default=0)
    ptx = [entry for entry in older if entry.architecture == newest]
    if ptx and sum(len(entry.content) for entry in ptx) <= MAX_PTX_BYTES:
        return ptx, "PTX"
    return [stand_in], "no code for the GPU"
