"""seal.json: every file of a finished leg with its length and SHA-256, written last.

Whoever has the seal's own digest, which the closing summary shows, can tell whether any byte of the leg was changed
since. A digest that was made public when the leg ended (a commit, a time-stamping service) also binds it in time.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from runs.files import sha256_of, write_json
from runs.reading import MAX_WEIGHTS_BYTES, files_below, read_as
from runs.record.layout import RunDir

_FIX = "take the unchanged run directory, or run the leg again"


class SealedFile(BaseModel):
    """One file as it was when the leg ended."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Seal(BaseModel):
    """The content of seal.json. `files` is keyed by the path relative to the run directory."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    schema_version: Literal[1]
    sealed_ns: int
    files: dict[str, SealedFile]


@dataclass(frozen=True)
class BrokenFile:
    """A file that is not as it was sealed."""

    name: str
    state: Literal["changed", "missing", "added"]
    sealed: SealedFile | None
    sha256: str | None  # of the file that is there; None where its length tells enough


def write_seal(run: RunDir, sealed_ns: int | None = None) -> str:
    """Seal a finished leg; nothing of it may be written afterwards.

    Args:
        sealed_ns: when, in ns since 1970; None: now.

    Returns:
        The hex SHA-256 of seal.json.
    """
    files = {
        name: SealedFile(bytes=path.stat().st_size, sha256=sha256_of(path, max_bytes=MAX_WEIGHTS_BYTES))
        for name, path in _files(run)
    }
    seal = Seal(schema_version=1, sealed_ns=time.time_ns() if sealed_ns is None else sealed_ns, files=files)
    write_json(run.seal, seal.model_dump())
    return sha256_of(run.seal)


def read_seal(run: RunDir) -> Seal:
    """Read the seal of a leg.

    Raises:
        InputError: missing, damaged, or of another form.
    """
    return read_as(run.seal, Seal, _FIX, within=run.root)


def broken_files(run: RunDir, seal: Seal) -> Iterator[BrokenFile]:
    """Files that were changed or taken away, and files with a name of the leg's own that came later.

    Other files (a verdict written beside the leg) are nobody's matter.
    """
    present = dict(_files(run))
    for name, sealed in sorted(seal.files.items()):
        if name not in present:
            yield BrokenFile(name, "missing", sealed, None)
        elif present[name].stat().st_size != sealed.bytes:  # without reading what may have no end
            yield BrokenFile(name, "changed", sealed, None)
        elif (found := sha256_of(present[name])) != sealed.sha256:
            yield BrokenFile(name, "changed", sealed, found)
    for name in sorted(run.own_names & present.keys() - seal.files.keys()):
        yield BrokenFile(name, "added", None, sha256_of(present[name]))


def _files(run: RunDir) -> Iterator[tuple[str, Path]]:
    for path in files_below(run.root):
        if path != run.seal and path.is_file():
            yield path.relative_to(run.root).as_posix(), path
