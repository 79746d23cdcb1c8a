"""The source code in a submission: the repository at the commit of the runs, or the submitter's directory."""

import io
import os
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from compliance.trees.tree import MAX_FILE_BYTES
from runs.errors import InputError, SetupError
from runs.files.reading import files_below, read_whole
from runs.harness import HARNESS_ROOT, git
from runs.record.manifest import Manifest

CODE_FOLDER = "mlperf-llama-vllm"
README = "README.md"
# Directories that tools write; they do not belong to the source code. [.gitignore of this repository]
_GENERATED = frozenset({"__pycache__", "output", "dist", "build", "node_modules", "venv"})


@dataclass
class SourceCode:
    """The files by their path in the code folder, the origin of the files, and the omitted files."""

    files: dict[str, bytes]
    origin: str  # origin of the files, as a sentence
    left_out: list[str] = field(default_factory=list)

    def readme(self) -> str:
        """Return the README.md that is written next to the code folder."""
        text = f"# Source\n\nThe harness that made these results is in `{CODE_FOLDER}/`. {self.origin}\n"
        if self.left_out:
            text += "\nOmitted, because a submission contains no hidden files and no links: "
            text += ", ".join(f"`{name}`" for name in self.left_out) + ".\n"
        return text


def read_source_code(directory: Path | None, manifests: list[Manifest], repository: Path = HARNESS_ROOT) -> SourceCode:
    """Read the source code that the runs used.

    Args:
        directory: the submitter's directory; None for the repository at the commit in the manifests.

    Raises:
        InputError: If the directory contains no file.
        SetupError: If the commit is missing here, or the runs used uncommitted changes.
    """
    commit = manifests[0].observed.harness.git_commit
    changed = any(manifest.observed.harness.git_changed is not False for manifest in manifests)  # None: unknown
    if directory is not None:
        source = _from_directory(directory)
        source.origin += f" The runs used commit `{commit}`{' with uncommitted changes' if changed else ''}."
        return source
    own_code = "name the source code of the runs with --source DIR"
    if not commit:
        raise SetupError("the commit of the harness is missing in the manifests", own_code)
    if changed:
        raise SetupError(f"a run used uncommitted changes to commit {commit} of the harness", own_code)
    try:
        archive = git(repository, "archive", "--format=tar", str(commit))
    except (OSError, subprocess.SubprocessError) as error:
        raise SetupError(f"{repository}: commit {commit}, which the runs used, is missing", own_code) from error
    files: dict[str, bytes] = {}
    left_out = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            if member.isdir():
                continue
            content = tar.extractfile(member) if member.isfile() else None
            if content is None or _is_hidden(member.name):
                left_out.append(member.name)
            else:
                files[member.name] = content.read()
    return SourceCode(
        files, f"It is commit `{commit}`, version {manifests[0].observed.harness.version}.", sorted(left_out)
    )


def _from_directory(directory: Path, option: str = "--source") -> SourceCode:
    """Read the files that git tracks. If git tracks none, read all files except files that tools write."""
    if not directory.is_dir():
        raise InputError(f"{option} {directory}: not a directory", "name a directory")
    origin = "It is a copy of a directory that the submitter named."
    names, commit = _tracked(directory)
    if names:
        origin += f" Its commit is {commit}."
    else:
        names = [path.relative_to(directory).as_posix() for path in files_below(directory)]
        names = [name for name in names if not _GENERATED & set(PurePosixPath(name).parts) and ".egg-info" not in name]
    files: dict[str, bytes] = {}
    left_out = []
    for name in sorted(names):
        path = directory / name
        if _is_hidden(name) or path.is_symlink():
            left_out.append(name)
        elif path.is_file():  # a tracked file may be deleted
            files[name] = read_whole(path, "remove the file", max_bytes=MAX_FILE_BYTES, option=option)
    # List a hidden directory without its files.
    shown = sorted({name.partition("/")[0] if name.startswith(".") else name for name in left_out})
    if not files:
        raise InputError(f"{option} {directory}: no files found", "name a directory with files that are not hidden")
    return SourceCode(files, origin, shown)


def _tracked(directory: Path) -> tuple[list[str], str]:
    """Return the files that git tracks, and the commit as text; both empty if the directory is not in a repository."""
    try:
        names = [name for name in os.fsdecode(git(directory, "ls-files", "-z")).split("\0") if name]
        commit = git(directory, "rev-parse", "HEAD").decode().strip()
        changed = bool(git(directory, "status", "--porcelain", "--untracked-files=no").strip())
    except (OSError, subprocess.SubprocessError):
        return [], ""
    return names, f"`{commit}`{' with uncommitted changes' if changed else ''}"


def read_documentation(directory: Path) -> dict[str, bytes]:
    """Read the files for documentation/ of a submission, by their path in documentation/.

    Raises:
        InputError: If the directory contains no file.
    """
    return _from_directory(directory, "--documentation").files


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts)
