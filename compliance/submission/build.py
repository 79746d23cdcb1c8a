"""Building a submission tree: in a temporary directory beside its place, renamed when it is whole.

The same runs give the same bytes: nothing of the time, the place or the name of the machine that builds is written.
The runs are only read.
"""

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import orjson
from jinja2 import Environment, FileSystemLoader

from compliance.audits.audit_registry import AUDITS
from compliance.evidence.truncate import submitted_accuracy
from compliance.submission.build_inputs import SubmitRequest
from compliance.submission.gates import Judged
from compliance.submission.source import CODE_FOLDER, README, Source
from compliance.submission.system import SystemDescription
from compliance.submission.tree import MOST_FILE_BYTES, REHEARSAL_MARK, Place, Tree
from compliance.submission.weights import measurements, model_name
from runs.errors import ExecutionError, InputError, SetupError
from runs.files import sha256_of
from runs.reading import read_record
from runs.record.attestation import read_attestation
from runs.record.layout import RunDir
from runs.record.manifest import Manifest

_RERUN = "run the leg again"
_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), trim_blocks=True, lstrip_blocks=True
)
_FILES = ("_path", "_conf", "_dir")  # options whose value is a path on the machine
# Options that a README leaves out; what is declared stands in its table of facts.
_NOT_OF_THE_RUN = frozenset({"output_log_dir", "signing_key", "mechanism"})


@dataclass(frozen=True)
class TreePlan:
    """Everything that goes into a tree of one system."""

    request: SubmitRequest
    results: list[Judged]
    description: SystemDescription
    source: Source
    documentation: Mapping[str, bytes]  # by path in documentation/
    rehearsal: list[str]  # why it is a rehearsal; empty if it is none


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
    root = plan.request.output
    refuse_taken(root)
    draft = root.absolute().with_name(f".{root.absolute().name}.{os.getpid()}.tmp")
    try:
        draft.mkdir(parents=True)
        _fill(plan, Tree(draft, plan.request.round))
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
    home = plan.request.division, plan.request.organisation
    _json(tree.system(*home, plan.request.system_name), dict(plan.description.values))
    _write(tree.source(*home) / README, plan.source.readme())
    for name, content in plan.source.files.items():
        _write(tree.source(*home) / CODE_FOLDER / name, content)
    for name, content in plan.documentation.items():
        _write(tree.documentation(*home) / name, content)
    if plan.rehearsal:
        lines = [REHEARSAL_MARK, "", "This tree must not be uploaded:", *(f"- {reason}" for reason in plan.rehearsal)]
        _write(tree.rehearsal_file(), "\n".join(lines) + "\n")


def _scenario(plan: TreePlan, tree: Tree, judged: Judged) -> None:
    request, candidate = plan.request, judged.candidate
    home = request.division, request.organisation, request.system_name
    place = Place(*home, candidate.benchmark, candidate.scenario)
    manifests = candidate.manifests()
    performance, accuracy = candidate.performance, candidate.accuracy
    if performance is None or accuracy is None:
        raise InputError(f"{candidate.name} lacks a leg", "name both legs")
    copies = [(performance.run, tree.performance(place)), (accuracy.run, tree.accuracy(place))]
    for test, audit in sorted(candidate.audits.items()):
        folder = tree.audit(place, test)
        copies.append((audit.run, RunDir(folder / "performance" / "run_1")))
        _copy(audit.run.accuracy_log, RunDir(folder / "accuracy").accuracy_log)
        text_name = AUDITS[test].text_name
        _write(folder / text_name, read_record(audit.folder / text_name, _RERUN))
    for run, to in copies:  # the trace stays behind
        _copy(run.summary, to.summary)
        _copy(run.detail, to.detail)
    # The performance leg's accuracy log is an empty list, which shows that nothing was logged.
    _copy(performance.run.accuracy_log, tree.performance(place).accuracy_log)
    submitted = submitted_accuracy(accuracy.run)
    _write(tree.accuracy(place).accuracy_log, submitted.log)
    _write(tree.accuracy(place).accuracy_text, submitted.text)
    said = measurements(manifests["performance"], request.given.measurements, plan.rehearsal)
    _json(tree.measurements(place), said)
    _write(tree.user_conf(place), read_record(performance.run.user_conf, _RERUN))
    _write(tree.readme(place), _readme(judged, place, tree, plan.rehearsal))


def _readme(judged: Judged, place: Place, tree: Tree, rehearsal: list[str]) -> str:
    """README.md of one scenario."""
    manifests = judged.candidate.manifests()
    manifest = manifests["performance"]
    text = _ENVIRONMENT.get_template("scenario_readme.md").render(
        place=place,
        round=tree.round,
        mark=REHEARSAL_MARK,
        rehearsal=rehearsal,
        parts=judged.verdict.parts if judged.verdict is not None else [],
        code=f"{tree.source(place.division, place.organisation).name}/{CODE_FOLDER}",
        code_folder=CODE_FOLDER,
        commands=[_command(name, one) for name, one in manifests.items()],
        plan=manifest.plan,
        model_name=model_name(manifest),
        mechanism=manifest.mechanism,
        engine=manifest.engine,
        observed=manifest.observed,
    )
    return text.rstrip() + "\n"


def _command(name: str, manifest: Manifest) -> str:
    """The leg's options, without the place of its output; of files the name only."""
    words = ["python", "main.py"]
    asked = dict(manifest.asked)
    if manifest.plan.audit:
        words += ["audit", "--test", name]
        for key in ("audit_conf", "accuracy"):
            asked.pop(key, None)
    for key, value in asked.items():
        if key not in _NOT_OF_THE_RUN and value is not False and value is not None:
            words += _option(key, value)
    return shlex.join(words)


def _option(key: str, value: Any) -> list[str]:
    flag = "--" + key.replace("_", "-")
    if value is True:
        return [flag]
    if isinstance(value, dict):
        return [word for name, one in value.items() for word in (flag, f"{name}={one}")]
    if isinstance(value, list):
        return [word for one in value for word in (flag, str(one))]
    is_hub_id = key == "model_path" and not PurePath(str(value)).is_absolute()
    if key.endswith(_FILES) and not is_hub_id:
        return [flag, PurePath(str(value)).name]
    return [flag, str(value)]


def _copy(source: Path, target: Path) -> None:
    """Copy one of LoadGen's logs; it must still be the one that the leg left."""
    if not source.is_file():
        raise InputError(f"{source} is missing", _RERUN)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    if read_attestation(RunDir(source.parent)).files.get(source.name) != sha256_of(target):
        raise ExecutionError(f"{source} is not the file that the leg left", _RERUN)


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
