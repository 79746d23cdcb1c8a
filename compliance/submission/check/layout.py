"""What lies in a tree: names, kinds and sizes of everything, and marks of a rehearsal."""

import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from compliance.audits.audit_registry import AUDITS
from compliance.finding import OURS, decides
from compliance.submission.check.findings import MAX_TEXT_BYTES, Findings
from compliance.submission.tree import DIVISIONS, MOST_FILE_BYTES, REHEARSAL_MARK, Tree
from runs.benchmark import SCENARIOS
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
# Directories and files in a scenario's legs, and in an audit.
_IN_LEG: dict[tuple[str, ...], tuple[set[str], set[str]]] = {
    (): ({"accuracy", "performance"}, {"verify_accuracy.txt", "verify_performance.txt"}),
    ("performance",): ({"run_1", "power", "ranging"}, set()),
    ("performance", "run_1"): (set(), {*LOADGEN_LOGS, "spl.txt"}),
    ("accuracy",): (set(), {*LOADGEN_LOGS, "accuracy.txt"}),
}
_IN_AUDIT = {"verify_output_len.txt", "baseline_accuracy.txt", "compliance_accuracy.txt"}
_IN_SCENARIO = {"performance", "accuracy", "measurements.json", "user.conf", "README.md"} | _BESIDE_MEASUREMENTS


@dataclass
class Contents:
    """What the walk met."""

    files: dict[Path, os.stat_result] = field(default_factory=dict)  # regular files
    folders: list[Path] = field(default_factory=list)
    special: list[Path] = field(default_factory=list)  # links, pipes, devices


@decides(
    "tree",
    ("tree-symlink", "error", "tools/submission/repository_checks.sh", "no symbolic links",
     "put the file itself there"),
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
    ("tree-size", "error", "tools/submission/repository_checks.sh", "no file above 50 MB", "leave the file out"),
    ("tree-dot-file", "warning", "tools/submission/repository_checks.sh", "no dot files", "remove it"),
    ("tree-name", "warning", "tools/submission/repository_checks.sh", "plain names without spaces", "rename it"),
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
    ("tree-unknown", "warning", "[submission] layout", "logs and audits lie where the layout has them",
     "move it to its place, or remove it"),
)  # fmt: skip
def check_layout(tree: Tree, contents: Contents, findings: Findings) -> None:
    """Are logs, texts of audits and the directories that hold them where the layout of the round has them?

    Other files are no part of a result: documents, code, and what the tools leave that make and publish trees.
    """
    logs = [path for path in contents.files if path.name == LOADGEN_LOGS[1]]
    holding = {folder for path in logs for folder in path.parents}
    twins = Counter((path.parent, path.name.lower()) for path in contents.folders)
    for path in (*contents.files, *contents.folders):
        *above, name = path.relative_to(tree.root).parts
        is_file = path in contents.files
        allowed = _expected(tree, tuple(above))[is_file]
        if path == tree.rehearsal_file() or allowed is None or name in allowed or name.startswith("."):
            continue
        if len(above) == 6 and above[2] == "measurements" and name.startswith(above[3]) and name.endswith(".json"):
            continue  # any name that begins with the system's
        same = next((one for one in sorted(allowed) if one.lower() == name.lower()), None)
        if same is not None:
            # The official checker takes scenarios in any case; of two that differ in it alone, one is too many.
            accepted = same in (*SCENARIOS, "MultiStream") and twins[path.parent, same.lower()] == 1
            fix = f"rename it to {same}"
            findings.add("tree-case", path, name, same, fix, severity="warning" if accepted else None)
        elif _is_evidence(name) if is_file else path in holding:
            wanted = (
                f"one of the {len(allowed)} names of the layout" if len(allowed) > 3 else ", ".join(sorted(allowed))
            )
            findings.add("tree-unknown", path, f"{name} is not expected here", wanted or "nothing of this kind")


def _is_evidence(name: str) -> bool:
    return name in LOADGEN_LOGS or name == "accuracy.txt" or (name.startswith("verify_") and name.endswith(".txt"))


def is_document(name: PurePath) -> bool:
    """Whether a file, by its path in a submitter's directory, is a word of the submitter's that no run gives."""
    parts = name.parts
    return parts[0] == "documentation" or (
        len(parts) == 1 and (parts[0].lower().startswith(_DOCUMENTS) or parts[0] == "model_mapping.json")
    )


_Names = set[str] | frozenset[str] | None  # None: any name


def _expected(tree: Tree, folder: tuple[str, ...]) -> tuple[_Names, _Names]:
    """Names of directories and of files that may stand in a directory; any where another rule looks."""
    split = tree.round.split_tree
    none: set[str] = set()
    match folder:
        case ():
            return set(DIVISIONS), none
        case (division,):
            return None, none if division in DIVISIONS else None
        case (division, _):
            parts = {"measurements", "compliance", "code"} if split else {"src"}
            own = {"model_mapping.json"} if division == "open" else none
            return {"systems", "results", "documentation", *parts}, own
        case (_, _, "systems", *inside):
            return none, none if inside else None
        case (_, _, "measurements" | "compliance", *_) if not split:
            return None, None
        case (_, _, "results" | "measurements" | "compliance"):
            return None, none
        case (division, _, "results" | "measurements" | "compliance", _):
            return None if division == "open" else tree.round.benchmarks, none
        case (_, _, "results" | "measurements" | "compliance", _, benchmark, *_) if (
            benchmark not in tree.round.benchmarks
        ):
            return None, None  # of a model that is the submitter's own
        case (_, _, "results" | "measurements" | "compliance", _, _):
            return {*SCENARIOS, "MultiStream"}, none
        case (_, _, "measurements", system, _, _):
            return (names := {f"{system}.json", "user.conf", "README.md", *_BESIDE_MEASUREMENTS}), names
        case (_, _, "compliance", _, _, _):
            return AUDIT_FOLDERS, AUDIT_FOLDERS
        case (_, _, "results", _, _, _):
            return (names := {"performance", "accuracy"} if split else _IN_SCENARIO | AUDIT_FOLDERS), names
        case (_, _, "results" | "compliance" as part, _, _, _, audit, *inside) if audit in AUDIT_FOLDERS:
            if split and part == "results":
                return None, None  # the directory is told of
            folders, files = _IN_LEG.get(tuple(inside), (None, None))
            return folders, None if files is None else files | _IN_AUDIT
        case (_, _, "results", _, benchmark, _, "accuracy"):
            entry = tree.round.table.entry(benchmark)
            return set(entry.accuracy_folders) if entry else none, _IN_LEG["accuracy",][1]
        case (_, _, "results" | "compliance", _, _, _, *inside):
            return _IN_LEG.get(tuple(inside), (None, None))
    return None, None
