"""The files of a submission that describe the model's weights: measurements.json and calibration.md.

calibration.md describes the quantization of a model, as the closed division requires. [inference_rules.adoc]
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from compliance.trees.system_fields import MEASUREMENT_FIELDS
from compliance.trees.tree import REHEARSAL_MARK
from qsl.model_files import CALIBRATION
from runs.errors import InputError
from runs.files.reading import read_whole
from runs.record.manifest import Manifest

_TYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}

Documents = Mapping[str, bytes]  # path in documentation/ → content

_AFTER = re.compile(rb"\|\s*after:[^|\n]*\|\s*([0-9a-f]{64})\b", re.IGNORECASE)  # line that `main.py quantize` writes
_CALIBRATION = re.compile("calibrat|quanti[sz]", re.IGNORECASE)  # part of the name of a calibration document


def check_overrides(values: Mapping[str, Any]) -> dict[str, str]:
    """Check and return the block `measurements` of a submitter's file.

    Raises:
        InputError: If a field is unknown or empty.
    """
    for name, value in values.items():
        if name not in MEASUREMENT_FIELDS:
            raise InputError(f"measurements: {name}: unknown field", f"choose from {', '.join(MEASUREMENT_FIELDS)}")
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"measurements: {name}: {value!r}: must be text", f'write {name}: "..."')
    return {name: str(value) for name, value in values.items()}


def measurements(manifest: Manifest, overrides: Mapping[str, str], rehearsal: list[str]) -> dict[str, Any]:
    """Return the content of measurements.json.

    Args:
        manifest: manifest of the performance run.
        overrides: the submitter's values, which replace those of the manifest.
        rehearsal: reasons why the tree is a rehearsal; empty if it is not a rehearsal.
    """
    engine, weights = manifest.plan.engine, manifest.model.weights
    # The headers of the weights state the precision. If they do not, the option of the engine does.
    precision = weights.precision if weights and weights.quantized else _in_force(manifest, "quantization") or ""
    dtype = _in_force(manifest, "dtype") or "unknown"
    data_types = precision.partition("_")[0] or _TYPES.get(dtype, dtype)
    runs_model = manifest.plan.engine_record.runs_model
    values: dict[str, Any] = {
        "input_data_types": "int32",  # the inputs are token IDs
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
    """Return the Hugging Face Hub ID of the model, or else the name of its folder without the path."""
    name = manifest.model.name
    return PurePath(name).name if PurePath(name).is_absolute() else name


def _in_force(manifest: Manifest, name: str) -> str | None:
    """Return the effective value of an engine option. If it is unknown, return the declared or the requested value."""
    configuration = manifest.engine.configuration
    declared = configuration.get("declared") if isinstance(configuration, dict) else None
    for source in (configuration, declared, manifest.plan.engine_options):
        if isinstance(source, dict) and source.get(name):
            return str(source[name]).removeprefix("torch.")
    return None


# Calibration ----------------------------------------------------------------------------------------------------------


def recorded(manifests: Iterable[Manifest]) -> dict[str, tuple[str, Path]]:
    """Return the calibration.md files for the weights of the runs: name in documentation/ → SHA-256 and path.

    The names of the second and later files contain the precision.
    """
    methods: dict[str, tuple[str, Path]] = {}
    for manifest in manifests:
        digest = manifest.model.sha256.get(CALIBRATION)
        if digest is None or any(digest == method_digest for method_digest, _ in methods.values()):
            continue
        precision = manifest.model.weights.precision if manifest.model.weights else "unknown"
        name = CALIBRATION if not methods else f"calibration-{precision}.md"
        methods[name] = digest, Path(str(manifest.model.folder)) / CALIBRATION
    return methods


def with_calibration(documents: Documents, manifests: Iterable[Manifest]) -> Documents:
    """Add the calibration.md files of the weights to the documents, unless a document already has that name."""
    complete = dict(documents)
    for name, (digest, path) in recorded(manifests).items():
        try:
            content = read_whole(path, "")
        except InputError:
            continue
        if hashlib.sha256(content).hexdigest() == digest:
            complete.setdefault(name, content)
    return complete


def lacking(documents: Documents, manifests: list[Manifest]) -> Iterator[str]:
    """Yield the facts on the quantization of the weights that the documents do not describe."""
    for name, (digest, path) in recorded(manifests).items():
        if hashlib.sha256(documents.get(name, b"")).hexdigest() != digest:
            yield f"documentation/{name} differs from the file {path} of the runs (SHA-256 {digest})"
    for name, content in documents.items():
        hashes = {digest.decode().lower() for digest in _AFTER.findall(content)}
        if hashes and not any(hashes <= set(manifest.model.sha256.values()) for manifest in manifests):
            yield f"documentation/{name} describes weights that the runs did not use"
    weights = [manifest.model.weights for manifest in manifests if manifest.model.weights is not None]
    quantized = {facts.precision for facts in weights if facts.quantized}
    described = any(is_about_calibration(PurePath(name)) and content.strip() for name, content in documents.items())
    if quantized and not described:
        yield f"the calibration document of the quantized weights ({', '.join(sorted(quantized))}) is missing"


def is_about_calibration(path: PurePath) -> bool:
    """Return True if a document is a calibration document, by its name."""
    return _CALIBRATION.search(path.name) is not None
