"""The code of a submission: what was in the repository at the commit that ran, or what the submitter names."""

import io
import os
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from compliance.submission.tree import MAX_FILE_BYTES
from runs.errors import InputError, SetupError
from runs.harness import HARNESS_ROOT, git
from runs.reading import files_below, read_whole
from runs.record.manifest import Manifest

CODE_FOLDER = "mlperf-llama-vllm"
README = "README.md"
# Made by tools; never part of a source. [.gitignore of this repository]
_GENERATED = frozenset({"__pycache__", "output", "dist", "build", "node_modules", "venv"})


@dataclass
class Source:
    """Files by their path in the code folder, their origin, and what was left out."""

    files: dict[str, bytes]
    origin: str  # a sentence
    left_out: list[str] = field(default_factory=list)

    def readme(self) -> str:
        """The README.md next to the code folder."""
        text = f"# Source\n\nThe harness that made these results is in `{CODE_FOLDER}/`. {self.origin}\n"
        if self.left_out:
            text += "\nLeft out, since a submission has no dot files and no links: "
            text += ", ".join(f"`{name}`" for name in self.left_out) + ".\n"
        return text


def read_source(directory: Path | None, manifests: list[Manifest], repository: Path = HARNESS_ROOT) -> Source:
    """The code that made the runs.

    Args:
        directory: the submitter's; None: the repository at the commit that the manifests name.

    Raises:
        InputError: the directory has no file.
        SetupError: there is no such commit here, or the runs were made with changes that no commit has.
    """
    commit = manifests[0].observed.harness.git_commit
    changed = any(manifest.observed.harness.git_changed is not False for manifest in manifests)  # None: not known
    if directory is not None:
        source = _from_directory(directory)
        source.origin += f" The runs were made with commit `{commit}`{' and changes to it' if changed else ''}."
        return source
    own_code = "name the code that ran: --source DIR"
    if not commit:
        raise SetupError("the runs' manifests name no commit of the harness", own_code)
    if changed:
        raise SetupError(f"the harness had changes that commit {commit} does not have when a run was made", own_code)
    try:
        archive = git(repository, "archive", "--format=tar", str(commit))
    except (OSError, subprocess.SubprocessError) as error:
        raise SetupError(f"commit {commit}, which the runs were made with, is not in {repository}", own_code) from error
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
    return Source(files, f"It is commit `{commit}`, version {manifests[0].observed.harness.version}.", sorted(left_out))


def _from_directory(directory: Path, option: str = "--source") -> Source:
    """Files that git tracks; without any, all files but those that tools make."""
    if not directory.is_dir():
        raise InputError(f"{option} {directory} is no directory", "name a directory")
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
            files[name] = read_whole(path, "leave it out", max_bytes=MAX_FILE_BYTES, option=option)
    # Hidden directories by their own name only.
    shown = sorted({name.partition("/")[0] if name.startswith(".") else name for name in left_out})
    if not files:
        raise InputError(f"{option} {directory} has no file", "name a directory with files; hidden ones do not count")
    return Source(files, origin, shown)


def _tracked(directory: Path) -> tuple[list[str], str]:
    """Files that git tracks there, and the commit in words; nothing where git does not know the directory."""
    try:
        names = [name for name in os.fsdecode(git(directory, "ls-files", "-z")).split("\0") if name]
        commit = git(directory, "rev-parse", "HEAD").decode().strip()
        changed = bool(git(directory, "status", "--porcelain", "--untracked-files=no").strip())
    except (OSError, subprocess.SubprocessError):
        return [], ""
    return names, f"`{commit}`{', with changes that are not in it' if changed else ''}"


def read_documentation(directory: Path) -> dict[str, bytes]:
    """Files for a submission's documentation/, by their path there.

    Raises:
        InputError: the directory has no file.
    """
    return _from_directory(directory, "--documentation").files


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts)
