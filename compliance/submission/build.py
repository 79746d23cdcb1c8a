"""Building a submission tree: in a temporary directory beside its place, renamed when it is whole.

The same runs give the same bytes: nothing of the time, the place or the name of the machine that builds is written.
The runs are only read.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from compliance.evidence.truncate import submitted_accuracy
from compliance.submission.build_texts import scenario_readme
from compliance.submission.gates import Judged
from compliance.submission.measurements import measurements
from compliance.submission.source import CODE_FOLDER, README, Source
from compliance.submission.system import SystemDescription
from compliance.submission.tree import MOST_FILE_BYTES, REHEARSAL_MARK, Place, Tree
from runs.errors import ExecutionError, InputError, SetupError
from runs.files import sha256_of
from runs.reading import read_record
from runs.record.layout import RunDir
from runs.record.leg import LOG_HASHES
from runs.record.manifest import Manifest

_RERUN = "run the leg again"


@dataclass(frozen=True)
class TreePlan:
    """Everything that goes into a tree of one system."""

    tree: Tree
    division: str
    organisation: str
    system: str
    results: list[Judged]
    description: SystemDescription
    measurements: dict[str, str]  # what the submitter says
    source: Source
    documentation: Mapping[str, bytes]  # by path in documentation/
    rehearsal: list[str]  # why it is a rehearsal; empty if it is none

    def place(self, judged: Judged) -> Place:
        candidate = judged.candidate
        return Place(self.division, self.organisation, self.system, candidate.benchmark, candidate.scenario)


@dataclass
class Built:
    """A finished tree."""

    root: Path
    files: dict[str, int] = field(default_factory=dict)  # path in the tree → bytes

    @property
    def total_bytes(self) -> int:
        return sum(self.files.values())


def refuse_taken(root: Path) -> None:
    """A tree is never written over anything.

    Raises:
        SetupError: the place is taken, or cannot be written.
    """
    if root.is_symlink() or (root.exists() and (not root.is_dir() or any(root.iterdir()))):
        raise SetupError(f"--output {root} is there already and not empty", "name a new directory; nothing is replaced")
    existing = next(parent for parent in root.absolute().parents if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise SetupError(f"--output {root}: {existing} cannot be written", "name a directory you may write to")


def build(plan: TreePlan) -> Built:
    """Write the tree of `plan`.

    Raises:
        SetupError: its place is taken or cannot be written, or a file is too large for a submission.
        InputError: a leg lacks a file. ExecutionError: a leg's file changed meanwhile.
    """
    root = plan.tree.root
    refuse_taken(root)
    draft = root.absolute().with_name(f".{root.absolute().name}.{os.getpid()}.tmp")
    try:
        draft.mkdir(parents=True)
        _fill(plan, Tree(draft, plan.tree.round))
        files = _measure(draft)
        draft.replace(root)
    except OSError as error:
        raise SetupError(f"--output {root} cannot be written: {error.strerror}", "name another directory") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Built(root, files)


def _fill(plan: TreePlan, tree: Tree) -> None:
    for judged in plan.results:
        _scenario(plan, tree, judged)
    _json(tree.system(plan.division, plan.organisation, plan.system), dict(plan.description.values))
    source = tree.source(plan.division, plan.organisation)
    _write(source / README, plan.source.readme())
    for name, content in plan.source.files.items():
        _write(source / CODE_FOLDER / name, content)
    for name, content in plan.documentation.items():
        _write(tree.documentation(plan.division, plan.organisation) / name, content)
    if plan.rehearsal:
        lines = [REHEARSAL_MARK, "", "This tree must not be uploaded:", *(f"- {reason}" for reason in plan.rehearsal)]
        _write(tree.rehearsal_file(), "\n".join(lines) + "\n")


def _scenario(plan: TreePlan, tree: Tree, judged: Judged) -> None:
    candidate, place = judged.candidate, plan.place(judged)
    manifests = candidate.manifests()
    performance, accuracy = candidate.performance, candidate.accuracy
    if performance is None or accuracy is None:
        raise InputError(f"{candidate.name} lacks a leg", "name both legs")
    copies = [
        (performance.run, tree.performance(place), "performance"),
        (accuracy.run, tree.accuracy(place), "accuracy"),
    ]
    for test, audit in sorted(candidate.audits.items()):
        folder = tree.audit(place, test)
        copies.append((audit.run, RunDir(folder / "performance" / "run_1"), test))
        _copy(audit.run.accuracy_log, RunDir(folder / "accuracy").accuracy_log, manifests[test])
        _write(folder / "verify_accuracy.txt", read_record(audit.folder / "verify_accuracy.txt", _RERUN))
    for run, to, name in copies:  # the trace stays behind
        _copy(run.summary, to.summary, manifests[name])
        _copy(run.detail, to.detail, manifests[name])
    # The performance leg's accuracy log is an empty list, which shows that nothing was logged.
    _copy(performance.run.accuracy_log, tree.performance(place).accuracy_log, manifests["performance"])
    submitted = submitted_accuracy(accuracy.run)
    _write(tree.accuracy(place).accuracy_log, submitted.log)
    _write(tree.accuracy(place).accuracy_text, submitted.text)
    _json(tree.measurements(place), measurements(manifests["performance"], plan.measurements, plan.rehearsal))
    _write(tree.user_conf(place), read_record(performance.run.user_conf, _RERUN))
    _write(tree.readme(place), scenario_readme(judged, place, tree, plan.rehearsal))


def _copy(source: Path, target: Path, manifest: Manifest) -> None:
    """Copy one of LoadGen's logs; it must still be the one that the leg left."""
    if not source.is_file():
        raise InputError(f"{source} is missing", "run the leg again")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    recorded = (manifest.observed.get(LOG_HASHES) or {}).get(source.name)
    if recorded is not None and recorded != sha256_of(target):
        raise ExecutionError(f"{source} is not the file that the leg left", "run the leg again")


def _write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def _json(path: Path, value: dict[str, Any]) -> None:
    _write(path, orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE))


def _measure(root: Path) -> dict[str, int]:
    """Every file's size by its path in the tree.

    Raises:
        SetupError: a file is too large.
    """
    sizes = {path.relative_to(root).as_posix(): path.stat().st_size for path in root.rglob("*") if path.is_file()}
    for name, size in sizes.items():
        if size > MOST_FILE_BYTES:
            raise SetupError(
                f"{name} has {size / 1e6:.0f} MB; a submission takes at most {MOST_FILE_BYTES >> 20} MB a file",
                "leave it out of --source" if CODE_FOLDER in name else "run the leg without --enable-log-trace",
            )
    return dict(sorted(sizes.items()))
