"""What lies in a tree: names, kinds and sizes of everything, and marks of a rehearsal."""

import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from compliance.audits.audit_registry import AUDITS
from compliance.finding import OURS, decides
from compliance.submission.check.tree_finding import Findings
from compliance.submission.check.tree_reading import MAX_TEXT_BYTES, is_folder, is_regular
from compliance.submission.tree import (
    DIVISIONS,
    MOST_FILE_BYTES,
    REHEARSAL_MARK,
    Tree,
)
from runs.benchmark import SCENARIOS
from runs.benchmarks import DIRECTORIES
from runs.errors import InputError
from runs.record.layout import LOADGEN_LOGS

# Files that speak for the tree: looked through for the mark of a rehearsal. Code may well contain the words.
_SPEAKING = frozenset({".txt", ".md", ".json", ".conf", ".yaml", ".yml", ".csv", ""})
_MARK = REHEARSAL_MARK.encode()
_MARKED_WITHIN = 64 * 1024  # bytes from the beginning of a file, where `submit` writes the mark
MOST_ENTRIES = 250_000  # files and directories; a whole round's repository has fewer
_DOCUMENTS = ("readme", "license", "calibration", "notice")  # beginnings of names
# Other audits of the field may lie beside the one that is asked for.
AUDIT_FOLDERS = frozenset({*AUDITS, "TEST01", "TEST04", "TEST06", "TEST07", "TEST08", "TEST09"})
_BESIDE_MEASUREMENTS = {"mlperf.conf", "calibration_process.adoc"}  # [submission] layout
OF_POWER = {"power", "ranging"}  # beside run_1 where power was measured, of which nothing is judged here
POWER_LOG = "spl.txt"  # in run_1
_IN_SCENARIO = {"performance", "accuracy", "measurements.json", "user.conf", "README.md"} | _BESIDE_MEASUREMENTS


@dataclass
class Contents:
    """What the walk met."""

    files: dict[Path, os.stat_result] = field(default_factory=dict)  # regular files
    folders: list[Path] = field(default_factory=list)
    special: list[Path] = field(default_factory=list)  # links, pipes, devices


@decides(
    "tree",
    ("tree-symlink", "error", "[submission] no symbolic links", "no symbolic links", "put the file itself there"),
    ("tree-special", "error", OURS, "only files and directories", "remove it"),
)  # fmt: skip
def walk(root: Path, findings: Findings) -> Contents:
    """Everything under `root`, without following a link.

    Raises:
        InputError: more than a submission has.
    """
    contents = Contents()
    met = 0
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
            met += len(found)
            if met > MOST_ENTRIES:
                raise InputError(
                    f"{root} has more than {MOST_ENTRIES:,} files and directories, {len(found):,} in {folder}",
                    "name the directory that holds closed/ or open/ of a submission",
                )
            for entry in found:
                path = folder / entry.name
                if path == root / ".git":
                    continue  # of a checkout: git's own, and not in the repository
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    contents.folders.append(path)
                    waiting.append(path)
                elif stat.S_ISREG(status.st_mode):
                    contents.files[path] = status
                else:
                    contents.special.append(path)
                    kind = "tree-symlink" if stat.S_ISLNK(status.st_mode) else "tree-special"
                    findings.add(kind, path, "a symbolic link" if kind == "tree-symlink" else "a pipe or device")
        except OSError as error:
            findings.add("tree-unreadable", folder, f"cannot be read: {error.strerror}")
    return contents


@decides(
    "tree",
    ("tree-size", "error", "[submission] files below 50 MB", "no file above 50 MB", "leave the file out"),
    ("tree-dot-file", "warning", "[submission] repository checks", "no dot files", "remove it"),
    ("tree-name", "warning", "[submission] repository checks", "plain names without spaces", "rename it"),
)  # fmt: skip
def check_names(contents: Contents, findings: Findings) -> None:
    """Names and sizes that no submission may have."""
    for path in (*contents.files, *contents.folders, *contents.special):
        name = path.name
        if name.startswith("."):
            findings.add("tree-dot-file", path, f"the name starts with a dot: {name}", "no dot files")
        if any(sign.isspace() or not sign.isprintable() for sign in name):
            findings.add("tree-name", path, f"{name!r} has blanks or odd characters", "letters, digits and .-_+")
    for path, status in contents.files.items():
        if status.st_size > MOST_FILE_BYTES:
            findings.add("tree-size", path, f"{status.st_size:,} bytes", f"at most {MOST_FILE_BYTES:,} bytes")


@decides("tree", ("rehearsal", "error", OURS, "nothing is marked as a rehearsal", "build the tree from official runs"))
def check_rehearsal(tree: Tree, contents: Contents, findings: Findings) -> None:
    """A rehearsal is refused whatever else is right about it."""
    for path, status in contents.files.items():
        if path == tree.rehearsal_file():
            findings.add("rehearsal", path, "the tree says of itself that it is a rehearsal", "no such file")
            continue
        inside = path.relative_to(tree.root).parts
        is_code = len(inside) > 3 and path.is_relative_to(tree.source(inside[0], inside[1]))
        if is_code or status.st_size > MAX_TEXT_BYTES or path.suffix.lower() not in _SPEAKING:
            continue
        if path.name in LOADGEN_LOGS[:1] + LOADGEN_LOGS[2:]:
            continue
        try:
            with path.open("rb") as stream:
                marked = _MARK in stream.read(_MARKED_WITHIN)
        except OSError as error:
            findings.add("tree-unreadable", path, f"cannot be read: {error.strerror}")
            continue
        if marked:
            findings.add("rehearsal", path, f"holds {REHEARSAL_MARK!r}", "no mark of a rehearsal")


@decides(
    "tree",
    ("tree-case", "error", "[submission] layout", "directories have their official names", "rename it"),
    ("tree-unknown", "warning", "[submission] layout", "there are only expected files", "remove or rename it"),
)  # fmt: skip
def check_layout(tree: Tree, contents: Contents, findings: Findings) -> None:
    """Is everything where the layout of the round has it?"""
    twins = Counter((path.parent, path.name.lower()) for path in contents.folders)
    for path in (*contents.files, *contents.folders):
        parts = path.relative_to(tree.root).parts
        allowed = _allowed(tree, parts[:-1], is_file=path in contents.files)
        if (
            path == tree.rehearsal_file()
            or allowed is None
            or parts[-1] in allowed
            or parts[-1].startswith(".")
            or _is_measurements(parts)
        ):
            continue
        same = next((name for name in sorted(allowed) if name.lower() == parts[-1].lower()), None)
        if same is not None:
            # The official checker takes scenarios in any case; of two that differ in it alone, one is too many.
            accepted = same in SCENARIOS and twins[path.parent, same.lower()] == 1
            fix = f"rename it to {same}"
            findings.add("tree-case", path, parts[-1], same, fix, severity="warning" if accepted else None)
        elif not (path in contents.files and len(parts) <= 3 and parts[-1].lower().startswith(_DOCUMENTS)):
            wanted = ", ".join(sorted(allowed)) or "nothing of this kind"
            findings.add("tree-unknown", path, f"{parts[-1]} is not expected here", wanted)


def is_document(name: PurePath) -> bool:
    """Whether a file, by its path in a submitter's directory, is a word of the submitter's that no run gives."""
    parts = name.parts
    return parts[0] == "documentation" or (
        len(parts) == 1 and (parts[0].lower().startswith(_DOCUMENTS) or parts[0] == "model_mapping.json")
    )


def _allowed(tree: Tree, above: tuple[str, ...], is_file: bool) -> set[str] | None:
    """Names that may stand in a directory; None where any may, or where another rule looks."""
    split = tree.round.split_tree
    if len(above) == 0:
        return set() if is_file else set(DIVISIONS)
    if len(above) == 1 or above[0] not in DIVISIONS:
        return None if not is_file or above[0] not in DIVISIONS else set()
    if len(above) == 2:
        if is_file:
            return {"model_mapping.json"} if above[0] == "open" else set()
        parts = {"measurements", "compliance", "code"} if split else {"src"}
        return {"systems", "results", "documentation", *parts}
    kind, inside = above[2], above[3:]
    if kind in ("results", "measurements", "compliance") and (kind == "results" or split):
        if above[0] == "open" and len(inside) == 1 and not is_file:
            return None  # any model
        return _allowed_under(tree, kind, inside, is_file)
    if kind == "systems":
        return None if is_file and not inside else set()
    return None


def _is_measurements(parts: tuple[str, ...]) -> bool:
    """measurements/<system>/<benchmark>/<scenario>/<system>….json of split rounds."""
    return (
        len(parts) == 7 and parts[2] == "measurements" and parts[6].startswith(parts[3]) and parts[6].endswith(".json")
    )


def _allowed_under(tree: Tree, kind: str, inside: tuple[str, ...], is_file: bool) -> set[str] | None:
    """In `results/<system>/<benchmark>/<scenario>/…` and its like of split rounds."""
    if len(inside) == 0:
        return set() if is_file else None
    if len(inside) == 1:
        return set() if is_file else set(tree.round.benchmarks)
    if inside[1] not in DIRECTORIES:
        return None  # what else belongs to another benchmark is not known
    if len(inside) == 2:
        return set() if is_file else set(SCENARIOS)
    split = tree.round.split_tree
    below = inside[3:]
    if kind == "measurements":
        return {f"{inside[0]}.json", "user.conf", "README.md", *_BESIDE_MEASUREMENTS} if not below else None
    if not below:
        if kind == "compliance":
            return set(AUDIT_FOLDERS)
        return {"performance", "accuracy"} if split else _IN_SCENARIO | AUDIT_FOLDERS
    return _allowed_in_leg(below, is_file)


def _allowed_in_leg(below: tuple[str, ...], is_file: bool) -> set[str] | None:
    audit = below[0] in AUDIT_FOLDERS
    rest = below[1:] if audit else below
    if audit and not rest:
        return {"verify_accuracy.txt", "verify_performance.txt"} if is_file else {"accuracy", "performance"}
    if rest == ("performance",):
        return set() if is_file else {"run_1", *OF_POWER}
    if rest == ("performance", "run_1"):
        return {*LOADGEN_LOGS, POWER_LOG} if is_file else set()
    if rest == ("accuracy",):
        return {*LOADGEN_LOGS, "accuracy.txt"} if is_file else set()
    return None  # below something that has a finding already


def is_safe(folder: Path) -> bool:
    """Can a leg's directory be read without meeting a pipe, a link or a monstrous file?"""
    try:
        for path in folder.iterdir():
            if not is_folder(path) and (not is_regular(path) or path.lstat().st_size > MOST_FILE_BYTES):
                return False
    except OSError:
        return False
    return True
