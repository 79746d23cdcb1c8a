"""Texts of a tree: each scenario's README.md, which says how it was run, and the mark of a rehearsal."""

import shlex
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from compliance.submission.gates import Judged
from compliance.submission.measurements import model_name
from compliance.submission.source import CODE_FOLDER
from compliance.submission.tree import REHEARSAL_MARK, Place, Tree
from runs.record.manifest import Manifest
from runs.record.servers import clients

_FILES = ("_path", "_conf", "_dir")  # options whose value is a path on the machine
_NOT_OF_THE_RUN = frozenset(
    {"output_log_dir", "signing_key", "mechanism"}
)  # what is declared stands in the table of facts


def rehearsal_text(reasons: list[str]) -> str:
    """The file in the root of a tree that is a rehearsal."""
    lines = [REHEARSAL_MARK, "", "This tree must not be uploaded:", *(f"- {reason}" for reason in reasons)]
    return "\n".join(lines) + "\n"


def scenario_readme(judged: Judged, place: Place, tree: Tree, rehearsal: list[str]) -> str:
    """README.md of one scenario."""
    return "\n".join(_readme(judged, place, tree, rehearsal)).rstrip() + "\n"


def _readme(judged: Judged, place: Place, tree: Tree, rehearsal: list[str]) -> Iterator[str]:
    manifests = judged.candidate.manifests()
    manifest = manifests["performance"]
    plan = manifest.resolved
    yield f"# {place.benchmark} {place.scenario} on {place.system}"
    yield ""
    if rehearsal:
        yield f"**{REHEARSAL_MARK}**: {'; '.join(rehearsal)}."
        yield ""
    yield f"{place.organisation}, {place.division} division, round {tree.round}."
    yield ""
    if judged.verdict is not None:
        for part in judged.verdict.parts:
            yield f"## {part.mode.capitalize()}"
            yield ""
            yield from _block(part.lines)
    yield "## How it was run"
    yield ""
    code = f"{tree.source(place.division, place.organisation).name}/{CODE_FOLDER}"
    yield f"From `{code}` of this submission, each leg in a process of its own:"
    yield ""
    yield from _block([_command(name, one) for name, one in manifests.items()])
    yield "A file named there is the submitter's; `user.conf` lies beside this file."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield from (f"| {name} | {value} |".replace("\n", " ") for name, value in _facts(manifest).items())
    yield ""
    yield "## Engine options"
    yield ""
    yield from _block([f"{name} = {value}" for name, value in sorted(plan.engine_options.items())])
    configuration = manifest.engine.get("configuration")
    if isinstance(configuration, dict) and configuration:
        yield "As the running engine had them:"
        yield ""
        yield from _block([f"{name} = {value}" for name, value in sorted(configuration.items())])
    yield "## Software"
    yield ""
    yield from _block([f"{name} {version}" for name, version in sorted(manifest.software.items())])


def _facts(manifest: Manifest) -> dict[str, Any]:
    plan, harness = manifest.resolved, manifest.harness
    changed = " with uncommitted changes" if harness.get("git_changed") else ""
    accelerators = ", ".join(str(gpu.get("name") or "unknown") for gpu in manifest.accelerator) or "none"
    return {
        "harness": f"version {harness.get('version')}, commit {harness.get('git_commit')}{changed}",
        "LoadGen": f"{manifest.loadgen.get('version')}, SHA-256 {manifest.loadgen.get('extension_sha256')}",
        "engine": plan.engine,
        **({"what goes over the network": f"{CODE_FOLDER}/docs/endpoint.md"} if clients(manifest) else {}),
        "model": model_name(manifest),
        "revision": manifest.model.get("revision") or "not recorded",
        **{
            f"SHA-256 of {name}": digest
            for name, digest in sorted((manifest.model.get("sha256") or {}).items())
            if not name.startswith(".")
        },
        "data set": f"{plan.sample_count:,} samples, SHA-256 {plan.dataset_sha256}",
        "sampling": ", ".join(f"{name} {value:g}" for name, value in plan.sampling.items()),
        "admission of queries": plan.admission.model_dump() if plan.admission else "at once",
        "declared technique": "{mechanism}/{mechanism_variant}".format(**manifest.mechanism),
        "prefix caching": "on" if manifest.engine.get("prefix_caching") else "off",
        "processor": f"{manifest.host.get('cpu')}, {manifest.host.get('cores_logical')} logical cores",
        "accelerators": accelerators,
    }


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


def _block(lines: list[str]) -> Iterator[str]:
    yield "```text"
    yield from lines
    yield "```"
    yield ""
