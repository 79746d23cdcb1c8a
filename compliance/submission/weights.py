"""A submission's files on the model's weights: measurements.json, from the manifest, and calibration.md.

calibration.md describes how a quantized model was made, which the closed division requires. [inference_rules.adoc]
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from compliance.submission.tree import REHEARSAL_MARK
from qsl.model_files import CALIBRATION
from runs.errors import InputError
from runs.reading import read_whole
from runs.record.manifest import Manifest

# [checker: SYSTEM_IMP_REQUIRED_FILES]; all must be there and not empty.
FIELDS = (
    "input_data_types",
    "retraining",
    "starting_weights_filename",
    "weight_data_types",
    "weight_transformations",
)
_TYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}

Documents = Mapping[str, bytes]  # by path in documentation/

_AFTER = re.compile(rb"\|\s*after:[^|\n]*\|\s*([0-9a-f]{64})\b", re.IGNORECASE)  # in what `main.py quantize` writes
_CALIBRATION = re.compile("calibrat|quanti[sz]", re.IGNORECASE)  # in a name


def check_overrides(values: Mapping[str, Any]) -> dict[str, str]:
    """The measurements in a submitter's file, checked.

    Raises:
        InputError: an unknown or empty field.
    """
    for name, value in values.items():
        if name not in FIELDS:
            raise InputError(f"measurements: {name}: unknown field", f"choose from {', '.join(FIELDS)}")
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"measurements: {name}: {value!r} is not a text", f"write {name}: ...")
    return {name: str(value) for name, value in values.items()}


def measurements(manifest: Manifest, overrides: Mapping[str, str], rehearsal: list[str]) -> dict[str, Any]:
    """The content of measurements.json.

    Args:
        manifest: of the performance run.
        overrides: the submitter's values, used instead of the manifest's.
        rehearsal: why the tree is a rehearsal; empty if it is none.
    """
    engine, weights = manifest.plan.engine, manifest.model.weights
    # By the headers of the weights, else by the engine's name for it.
    precision = weights.precision if weights and weights.quantized else _in_force(manifest, "quantization") or ""
    dtype = _in_force(manifest, "dtype") or "unknown"
    data_types = precision.partition("_")[0] or _TYPES.get(dtype, dtype)
    runs_model = manifest.plan.engine_record.runs_model
    values: dict[str, Any] = {
        "input_data_types": "int32",  # token IDs
        "retraining": "no",
        "starting_weights_filename": model_name(manifest),
        "weight_data_types": data_types if runs_model else f"none (the {engine} engine has no weights)",
        "weight_transformations": f"quantization ({precision})" if precision else "none",
    }
    values |= overrides
    if rehearsal:
        values["rehearsal"] = f"{REHEARSAL_MARK}: {'; '.join(rehearsal)}"
    return values


def model_name(manifest: Manifest) -> str:
    """The model's hub ID, or the name of its folder without the path."""
    name = manifest.model.name
    return PurePath(name).name if PurePath(name).is_absolute() else name


def _in_force(manifest: Manifest, name: str) -> str | None:
    """An engine option as effective, else as declared or given."""
    configuration = manifest.engine.configuration
    declared = configuration.get("declared") if isinstance(configuration, dict) else None
    for source in (configuration, declared, manifest.plan.engine_options):
        if isinstance(source, dict) and source.get(name):
            return str(source[name]).removeprefix("torch.")
    return None


# Calibration ----------------------------------------------------------------------------------------------------------


def recorded(manifests: Iterable[Manifest]) -> dict[str, tuple[str, Path]]:
    """The calibration.md files in the folders of the runs' weights: name in documentation/ → SHA-256 and place.

    From the second on, the name contains the precision.
    """
    found: dict[str, tuple[str, Path]] = {}
    for manifest in manifests:
        digest = manifest.model.sha256.get(CALIBRATION)
        if digest is None or any(digest == known for known, _ in found.values()):
            continue
        precision = manifest.model.weights.precision if manifest.model.weights else "unknown"
        name = CALIBRATION if not found else f"calibration-{precision}.md"
        found[name] = digest, Path(str(manifest.model.folder)) / CALIBRATION
    return found


def with_calibration(given: Documents, manifests: Iterable[Manifest]) -> Documents:
    """The documents, with the recorded calibration.md files that are unchanged and not among them."""
    found = dict(given)
    for name, (digest, path) in recorded(manifests).items():
        try:
            content = read_whole(path, "")
        except InputError:
            continue
        if hashlib.sha256(content).hexdigest() == digest:
            found.setdefault(name, content)
    return found


def lacking(documents: Documents, manifests: list[Manifest]) -> Iterator[str]:
    """How the documents fail to describe how the weights were quantized."""
    for name, (digest, path) in recorded(manifests).items():
        if hashlib.sha256(documents.get(name, b"")).hexdigest() != digest:
            yield f"documentation/{name} is not {path} as it was when the runs were made (SHA-256 {digest})"
    for name, content in documents.items():
        hashes = {digest.decode().lower() for digest in _AFTER.findall(content)}
        if hashes and not any(hashes <= set(one.model.sha256.values()) for one in manifests):
            yield f"documentation/{name} describes other weights than those that ran"
    weights = [one.model.weights for one in manifests if one.model.weights is not None]
    quantized = {one.precision for one in weights if one.quantized}
    described = any(is_about_calibration(PurePath(name)) and content.strip() for name, content in documents.items())
    if quantized and not described:
        yield f"the weights are quantized ({', '.join(sorted(quantized))}), and no calibration document describes how"


def is_about_calibration(path: PurePath) -> bool:
    """Whether a document is one on calibration, by its name."""
    return _CALIBRATION.search(path.name) is not None
