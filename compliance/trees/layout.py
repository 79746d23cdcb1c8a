"""Rules on the names, types, sizes and places of all files in a tree, and on rehearsal marks."""

import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePath

from compliance.audits.discovery import AUDITS
from compliance.judge.rule import OURS, Rank, decides
from compliance.judge.verdict import Finding, Severity, compared
from compliance.trees.findings import MAX_TEXT_BYTES, Reads
from compliance.trees.tree import DIVISIONS, MAX_FILE_BYTES, REHEARSAL_MARK, Tree
from runs.benchmark import SCENARIOS
from runs.errors import InputError
from runs.harness import PROGRAM
from runs.mlperf_endpoints.layout import EVENTS, is_run_folder
from runs.record.layout import LOADGEN_LOGS

# Suffixes of files that are searched for the rehearsal mark. Source code may contain the words.
_SPEAKING = frozenset({".txt", ".md", ".json", ".conf", ".yaml", ".yml", ".csv", ""})
_MARK = REHEARSAL_MARK.encode()
_MARKED_WITHIN = 64 * 1024  # `submit` writes the mark within so many bytes from the start of a file
MAX_ENTRIES = 250_000  # maximum number of files and directories; the repository of a whole round has fewer
_DOCUMENTS = ("readme", "license", "calibration", "notice")  # beginnings of the names of documents
# Names of audit directories. A tree may contain more audits than required.
AUDIT_FOLDERS = frozenset({*AUDITS, "TEST01", "TEST04", "TEST06", "TEST07", "TEST08", "TEST09"})
_SCENARIOS = (*SCENARIOS, "MultiStream")
_OFFICIAL_NAMES = {
    name.lower(): name
    for name in (*DIVISIONS, *_SCENARIOS, *AUDIT_FOLDERS, "systems", "results", "measurements", "compliance",
                 "performance", "accuracy", "run_1")
}  # fmt: skip
# Names of logs and audit texts, and the places of the runs.
_EVIDENCE = re.compile(rf"{'|'.join(map(re.escape, LOADGEN_LOGS))}|accuracy\.txt|verify_\w+\.txt")
_RUN = rf"performance/(run_1|ranging)/({'|'.join(LOADGEN_LOGS)})|accuracy/({'|'.join(LOADGEN_LOGS)}|accuracy\.txt)"
MAX_NAMED = 4  # maximum number of files that a finding names per directory


@cache
def _places(ended_audits: tuple[str, ...]) -> dict[str, re.Pattern[str]]:
    """Return the patterns of the places of evidence in a scenario directory, by part of the tree ("": one part)."""
    names = "|".join((*AUDIT_FOLDERS, *ended_audits))
    audit = rf"({names})/({_RUN}|{'|'.join(LOADGEN_LOGS)}|verify_\w+\.txt)"
    return {"results": re.compile(_RUN), "compliance": re.compile(audit), "": re.compile(f"{_RUN}|{audit}")}


@dataclass
class Contents:
    """All entries of a tree, by type."""

    files: dict[Path, os.stat_result] = field(default_factory=dict)  # regular files
    folders: list[Path] = field(default_factory=list)
    special: list[Path] = field(default_factory=list)  # links, pipes, devices


@decides(
    "tree",
    ("tree-symlink", "error", "tools/submission/repository_checks.sh", "symbolic links",
     "replace the link with the file"),
    ("tree-special", "error", OURS, "pipes and devices", "remove the pipe or device"),
)  # fmt: skip
def scan(root: Path) -> Reads[Contents]:
    """List everything under `root` without following links.

    Raises:
        InputError: If the tree has more entries than a submission can have.
    """
    contents = Contents()
    met = 0
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
            met += len(listed)
            if met > MAX_ENTRIES:
                raise InputError(
                    f"{root}: more than {MAX_ENTRIES:,} files and directories ({len(listed):,} in {folder})",
                    "give the directory that contains closed/ or open/ of a submission",
                )
            for entry in listed:
                path = folder / entry.name
                if path == root / ".git":
                    continue  # this file belongs to the git checkout, not to the submission
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    contents.folders.append(path)
                    waiting.append(path)
                elif stat.S_ISREG(status.st_mode):
                    contents.files[path] = status
                else:
                    contents.special.append(path)
                    kind = "tree-symlink" if stat.S_ISLNK(status.st_mode) else "tree-special"
                    yield compared(kind, False, "1", "0", path)
        except OSError as error:
            yield compared("tree-unreadable", False, f"{error.strerror}", "", folder)
    return contents


@decides(
    "tree",
    ("tree-size", "error", "tools/submission/repository_checks.sh", "file size", "remove the file"),
    ("tree-dot-file", "warning", "tools/submission/repository_checks.sh", "names that begin with a dot",
     "remove the file or directory"),
    ("tree-name", "warning", "tools/submission/repository_checks.sh", "characters in a name",
     "rename the file or directory"),
)  # fmt: skip
def check_file_names(contents: Contents) -> Iterator[Finding]:
    """Check the names and sizes of all files and directories."""
    for path in (*contents.files, *contents.folders, *contents.special):
        name = path.name
        if name.startswith("."):
            yield compared("tree-dot-file", False, name, "none", path)
        if any(sign.isspace() or not sign.isprintable() for sign in name):
            yield compared(
                "tree-name", False, f"spaces or unprintable characters in {name!r}", "letters, digits and .-_+", path
            )
    for path, status in contents.files.items():
        if status.st_size > MAX_FILE_BYTES:
            yield compared("tree-size", False, f"{status.st_size:,} bytes", f"at most {MAX_FILE_BYTES:,} bytes", path)


@decides(
    "tree",
    ("rehearsal", "error", OURS, "rehearsal mark", "build the tree from runs that are eligible for submission"),
    rank=Rank.COPIES,
)
def check_rehearsal(tree: Tree, contents: Contents) -> Iterator[Finding]:
    """Find rehearsal marks. A rehearsal is always refused."""
    for path, status in contents.files.items():
        if path == tree.rehearsal_file():
            yield compared("rehearsal", False, f"file {path.name}", "none", path)
            continue
        inside = path.relative_to(tree.root).parts
        is_code = len(inside) > 3 and path.is_relative_to(tree.source(inside[0], inside[1]))
        if is_code or status.st_size > MAX_TEXT_BYTES or path.suffix.lower() not in _SPEAKING:
            continue
        if path.name in LOADGEN_LOGS[:1] + LOADGEN_LOGS[2:]:
            continue
        try:
            with path.open("rb") as stream:
                before, marked, _ = stream.read(_MARKED_WITHIN).partition(_MARK)
        except OSError as error:
            yield compared("tree-unreadable", False, f"{error.strerror}", "", path)
            continue
        if marked:
            yield compared("rehearsal", False, f"{REHEARSAL_MARK!r}", "none", path, line=before.count(b"\n") + 1)


@decides(
    "tree",
    ("tree-case", "error", "[submission] layout", "directory name", "rename the directory"),
    ("tree-unknown", "warning", "[submission] layout", "logs and audit texts outside the layout of the round",
     "move the file into the directory of its run or audit, or remove it"),
)  # fmt: skip
def check_layout(tree: Tree, contents: Contents) -> Iterator[Finding]:
    """Check that logs, audit texts and their directories follow the layout of the round.

    Other files are ignored: documents, source code, and files of tools that build and publish trees.
    """
    twins = Counter((path.parent, path.name.lower()) for path in contents.folders)
    parts_of_results = ("results", "compliance") if tree.round.split_tree else ("results",)
    places = _places(tree.round.ended_audits)
    for path in contents.folders:
        parts = path.relative_to(tree.root).parts
        official = _OFFICIAL_NAMES.get(path.name.lower(), path.name)
        if path.name == official or (len(parts) > 3 and parts[2] not in parts_of_results):
            continue
        # The official checker accepts scenario names in any case, if no two of them differ in case only.
        accepted = official in _SCENARIOS and twins[path.parent, official.lower()] == 1
        is_checked = len(parts) < 5 or parts[4] in tree.round.benchmarks
        if is_checked and not (accepted and parts[2] == "compliance"):  # The rules on results find other names.
            severity: Severity | None = "warning" if accepted else None
            yield compared(
                "tree-case", False, path.name, official, path, severity=severity, fix=f"rename it to {official}"
            )
    misplaced: defaultdict[Path, list[Path]] = defaultdict(list)
    for path in contents.files:
        parts = path.relative_to(tree.root).parts
        if not _EVIDENCE.fullmatch(path.name) or parts[2:3] == (tree.source("", "").name,):
            continue
        if len(parts) < 5 or parts[2] not in parts_of_results:
            misplaced[tree.root.joinpath(*parts[: min(3, len(parts) - 1)])].append(path)
        elif not places[parts[2] if tree.round.split_tree else ""].fullmatch("/".join(parts[6:])):
            misplaced[path.parent].append(path)
    for folder in sorted({path.parent for path in contents.files if path.name == EVENTS}):
        if is_run_folder(folder):
            fix = f"check it with `{PROGRAM} check {folder.name}`"
            yield compared(
                "tree-unknown", False, "run directory of the MLPerf Endpoints client", "none", folder, fix=fix
            )
    for folder, paths in misplaced.items():
        names = ", ".join(sorted({path.name for path in paths}))
        yield compared("tree-unknown", False, names, "none", folder, *paths[:MAX_NAMED])


def is_document(name: PurePath) -> bool:
    """Return True if a file is a document of the submitter, by its path in the submitter's directory."""
    parts = name.parts
    return parts[0] == "documentation" or (
        len(parts) == 1 and (parts[0].lower().startswith(_DOCUMENTS) or parts[0] == "model_mapping.json")
    )
