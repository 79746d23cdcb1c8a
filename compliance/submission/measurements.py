"""measurements.json: what the official rules want to know of a model's data types, taken from the manifest."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from compliance.submission.tree import REHEARSAL_MARK
from runs.errors import InputError
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


def check_overrides(values: Mapping[str, Any]) -> dict[str, str]:
    """What a submitter's file says of measurements.

    Raises:
        InputError: a field that there is not, or an empty one.
    """
    for name, value in values.items():
        if name not in FIELDS:
            raise InputError(f"measurements: {name}: there is no such field", f"choose from {', '.join(FIELDS)}")
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"measurements: {name}: {value!r} is no text", f"write {name}: ...")
    return {name: str(value) for name, value in values.items()}


def measurements(manifest: Manifest, overrides: Mapping[str, str], rehearsal: list[str]) -> dict[str, Any]:
    """The content of measurements.json.

    Args:
        manifest: of the performance leg.
        overrides: what the submitter says; wins over the manifest.
        rehearsal: why the tree is a rehearsal; empty if it is none.
    """
    engine, weights = manifest.plan.engine, manifest.model.weights
    # By the headers of the weights, else by the engine's name for it.
    precision = weights.precision if weights and weights.quantized else _in_force(manifest, "quantization") or ""
    dtype = _in_force(manifest, "dtype") or "unknown"
    data_types = precision.partition("_")[0] or _TYPES.get(dtype, dtype)
    runs_model = manifest.plan.engine_record.runs_model
    values: dict[str, Any] = {
        "input_data_types": "int32",  # token ids
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
    """The model's hub id, or the name of its folder: where it lay on the machine is nobody's business."""
    name = manifest.model.name
    return PurePath(name).name if PurePath(name).is_absolute() else name


def _in_force(manifest: Manifest, name: str) -> str | None:
    """An engine option as the running engine had it, else as it was declared or asked for."""
    configuration = manifest.engine.configuration
    declared = configuration.get("declared") if isinstance(configuration, dict) else None
    for source in (configuration, declared, manifest.plan.engine_options):
        if isinstance(source, dict) and source.get(name):
            return str(source[name]).removeprefix("torch.")
    return None
