"""Declared rows and manifests with engine records, for the tests of the gate."""

from pathlib import Path
from typing import Any

from compliance.techniques.row import TechniqueRow
from runs.record.manifest import Manifest
from tests.support.runs.records import record, run_plan


def row(mechanism: str | None = "baseline", **fields: Any) -> dict[str, Any]:
    """Return a row as another tool may write it. Missing values have no key."""
    return {"run_id": "run", "mechanism": mechanism, **fields}


def fp8(**fields: Any) -> dict[str, Any]:
    return row("kv_quantization", mechanism_variant="fp8_e4m3", **fields)


def eagle3(**fields: Any) -> dict[str, Any]:
    return row("speculative_decoding", mechanism_variant="eagle3", **fields)


def int8(variant: str = "int8_w8a8", **fields: Any) -> dict[str, Any]:
    return row("weight_quantization", mechanism_variant=variant, **fields)


def judged_row(fields: dict[str, Any]) -> TechniqueRow:
    return TechniqueRow(fields, "test", Path("test"))


def weights(precision: str = "bfloat16", **more: Any) -> dict[str, Any]:
    """Return facts of the headers of a model's weights."""
    plain = precision in ("bfloat16", "float16", "float32")
    facts = {"files": 1, "tensors": 3, "parameters": 100, "dtypes": {"BF16" if plain else "I8": 100}, "sparse": False}
    return {**facts, "precision": precision, "quantized": not plain, "shape": {}, "headers_sha256": "0" * 64, **more}


def manifest(
    *,
    configuration: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    engine: str = "vllm",
    precision: str = "bfloat16",
) -> Manifest:
    """Return the manifest of a run with this engine `configuration` and these requested `options`."""
    recorded = {"kv_cache_dtype": "auto", "speculative": False} if configuration is None else configuration
    plan = run_plan(engine=engine, engine_options=options or {})
    model = {"weights": weights(precision)} if engine == "vllm" else {}
    return record(plan, {"model": model}, asked={"engine_arg": options or {}}, engine={"configuration": recorded})


def write_engine_log(folder: Path, settings: str = "kv_cache_dtype=auto") -> None:
    """Write a line as vLLM prints it."""
    config = f"model='m', speculative_config=None, {settings}, x=1"
    (folder / "engine.log").write_text(f"INFO Initializing a V1 LLM engine (v0.32.0) with config: {config}\n")
