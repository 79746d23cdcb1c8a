"""Each scenario's README.md in a tree, which says how it was run."""

import shlex
from pathlib import Path, PurePath
from typing import Any

from jinja2 import Environment, FileSystemLoader

from compliance.submission.gates import Judged
from compliance.submission.measurements import model_name
from compliance.submission.source import CODE_FOLDER
from compliance.submission.tree import REHEARSAL_MARK, Place, Tree
from runs.record.manifest import Manifest
from runs.record.servers import clients

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), trim_blocks=True, lstrip_blocks=True
)
_OF_THE_MANIFEST = ("accelerator", "engine", "harness", "host", "loadgen", "mechanism", "model", "software")
_FILES = ("_path", "_conf", "_dir")  # options whose value is a path on the machine
_NOT_OF_THE_RUN = frozenset(
    {"output_log_dir", "signing_key", "mechanism"}
)  # what is declared stands in the table of facts


def scenario_readme(judged: Judged, place: Place, tree: Tree, rehearsal: list[str]) -> str:
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
        plan=manifest.resolved,
        model_name=model_name(manifest),
        over_network=bool(clients(manifest)),
        **{name: getattr(manifest, name) for name in _OF_THE_MANIFEST},
    )
    return text.rstrip() + "\n"


def _command(name: str, manifest: Manifest) -> str:
    """The leg's options, without the place of its output; of files the name only."""
    words = ["python", "main.py"]
    asked = dict(manifest.asked)
    if manifest.resolved.audit:
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
