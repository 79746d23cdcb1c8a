"""The lossy techniques that were effective in a run, and the comparison with the technique that the run declares.

Sources are manifest.json (the running engine's configuration, the requested options, the headers of the weights) and
engine.log (the configuration that vLLM prints at its start). A technique that any of these shows was effective.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compliance.judge.rule import OURS, decides
from compliance.judge.verdict import Finding, compared
from runs.errors import InputError
from runs.record.engines.engine_log import read_engine_log
from runs.record.finished_run import FinishedRun
from runs.record.manifest import RunPlan
from runs.record.observed import Weights
from runs.record.technique import pair_of

# KV cache data types of vLLM 0.32 that store values without compression. [vllm/config/cache.py, CacheDType]
_PLAIN_CACHE = frozenset({"auto", "none", "float16", "half", "bfloat16", "float32", "float"})
# Names of the type E4M3 with one scale per tensor. Other 8-bit types of vLLM are not registered variants.
_E4M3 = frozenset({"fp8", "fp8_e4m3", "fp8_inc"})
# Drafting method of vLLM 0.32 (vllm/config/speculative.py, SpeculativeMethod) → registered variant.
_DRAFTING = {"eagle": "eagle3", "eagle3": "eagle3", "medusa": "medusa", "dflash": "dflash", "mtp": "mtp"}

# vLLM's method that quantizes plain weights when it loads them → registered variant.
_ONLINE = {"fp8": "fp8_w8a8"}
# Methods for weights that are stored quantized.
_STORED = ("compressed-tensors", "awq", "gptq", "modelopt", "quark", "mxfp4", "fbgemm")
_FP8_CACHE = ("kv_quantization", "fp8_e4m3")
_WITH_CACHE = "_kv_fp8"  # suffix of a variant of quantized weights with an FP8 cache
_NO_WEIGHTS = "manifest.json: model.weights is missing, so the precision of the weights is unknown"

Pair = tuple[str, str | None]  # mechanism and variant; variant None: unknown
FactSource = tuple[str, Mapping[str, Any]]  # part of manifest.json or engine.log, and its engine settings


@dataclass(frozen=True)
class EngineFacts:
    """The engine configuration of a run, as its files record it."""

    columns: dict[str, Any]  # columns of a row
    in_force: dict[Pair, str] = field(default_factory=dict)  # effective technique → the setting that reveals it
    gaps: tuple[str, ...] = ()  # missing parts of the recorded configuration
    contradictions: tuple[str, ...] = ()  # contradictions between its parts


def facts_of_run(run: FinishedRun) -> EngineFacts:
    """Return the recorded engine configuration of a run."""
    manifest, log_path = run.manifest, run.dir.engine_log
    if manifest is None:
        return _facts(None, [], None, [f"{run.dir.manifest} is missing, so the engine's configuration is unknown"])
    gaps: list[str] = []
    record, configuration, weights = manifest.plan.engine_record, manifest.engine.configuration, manifest.model.weights
    declared = _object(configuration.get("declared")) or {}
    # Cache data type that the server reports. Its operator may declare a different type.
    reported = _object((_object(configuration.get("told_by_the_server")) or {}).get("cache_configuration")) or {}
    in_manifest = {
        "engine.configuration": configuration,
        "engine.configuration, declared": declared,
        "engine.configuration, reported by the server": {"kv_cache_dtype": reported.get("cache_dtype")},
        "plan.engine_options": manifest.plan.engine_options,
        "asked.engine_arg": manifest.asked.get("engine_arg"),
        "observed.model.weights": weights.model_dump() if weights is not None else None,
    }
    places: list[FactSource] = [
        (f"manifest.json {place}", settings) for place, settings in in_manifest.items() if isinstance(settings, dict)
    ]
    backend = None
    try:
        log = run.engine_log if log_path.is_file() else read_engine_log(log_path)  # a missing file is an error
        backend = log.attention_backend
        places.append((log_path.name, log.configuration))
    except InputError as error:
        gaps.append(error.message)
    if record.runs_model and "kv_cache_dtype" not in {**declared, **configuration}:
        gaps.append("manifest.json: engine.configuration has no kv_cache_dtype")
    if record.runs_model and record.computes_here and weights is None:
        gaps.append(_NO_WEIGHTS)
    return _facts(manifest.plan.engine, places, backend, gaps)


def facts_of_plan(plan: RunPlan, weights: Weights | None) -> EngineFacts:
    """Return the techniques that the requested options and the weights show, before a run starts."""
    places: list[FactSource] = [("the engine options", plan.engine_options)]
    if weights is not None:
        places.append(("the weights", weights.model_dump()))
    return _facts(plan.engine, places, None, ["the engine has not started"])


def facts_of_row(row: Mapping[str, Any]) -> EngineFacts:
    """Return the engine configuration from the columns of a row."""
    names = ("kv_cache_dtype", "quantization", "speculative", "speculative_config", "attention_backend")
    shown = {name: row[name] for name in names if row.get(name) is not None}
    gaps = [] if shown else ["the columns of the engine's configuration are missing in the row"]
    if shown.get("speculative") is not None:
        shown["speculative"] = shown["speculative"] not in (False, 0, "0", "false", "False")
    if row.get("draft_model") and not isinstance(shown.get("speculative_config"), dict):
        shown["speculative_config"] = {"model": row["draft_model"]}
    options = _object(row.get("engine_options")) or {}
    places: list[FactSource] = [("the row", shown), ("the row's engine_options", options)]
    return _facts(row.get("engine"), places, row.get("attention_backend"), gaps)


def _facts(engine: Any, places: list[FactSource], backend: Any, gaps: list[str]) -> EngineFacts:
    in_force: dict[Pair, str] = {}
    for place, settings in [*places, ("engine.log", {"attention_backend": backend})]:
        for pair, setting in _lossy(settings):
            in_force.setdefault(pair, f"{place}: {setting}")
    # Drop a technique with an unknown variant if another part of the files shows the variant.
    for mechanism in {pair[0] for pair in in_force if pair[1] is not None}:
        in_force.pop((mechanism, None), None)
    contradictions = tuple(_contradictions(places, in_force))
    precision = next((variant for mechanism, variant in in_force if mechanism == "weight_quantization"), None)
    drafts = (_drafting(settings).get("model") for _, settings in places)
    dtype, method = (
        next((settings[name] for _, settings in places if settings.get(name) is not None), None)
        for name in ("kv_cache_dtype", "quantization")
    )
    names = ("speculative", "speculative_config")
    shown = not gaps or any(name in settings for _, settings in places for name in names)
    columns = {
        "engine": engine,
        "kv_cache_dtype": _text(dtype),
        "quantization": precision or _text(method),
        "speculative": any(pair[0] == "speculative_decoding" for pair in in_force) or (False if shown else None),
        "draft_model": next((model for model in drafts if isinstance(model, str)), None),
        "attention_backend": backend if isinstance(backend, str) else None,
    }
    # Quantized weights with an FP8 cache are declared as one technique.
    weights, cache = next((pair for pair in in_force if pair[0] == "weight_quantization"), None), _FP8_CACHE
    if weights is not None and cache in in_force:
        combination = (weights[0], None if weights[1] is None else weights[1] + _WITH_CACHE)
        in_force[combination] = f"{in_force.pop(weights)}; {in_force.pop(cache)}"
    return EngineFacts(columns, in_force, tuple(gaps), contradictions)


def _contradictions(places: list[FactSource], in_force: Mapping[Pair, str]) -> Iterator[str]:
    """Yield contradictions between the files that record the engine configuration."""
    stored = next(
        (place for place, settings in places if str(_text(settings.get("quantization"))).startswith(_STORED)), None
    )
    plain = next((place for place, settings in places if settings.get("quantized") is False), None)
    if stored and plain:
        yield f"{stored} states a method for quantized weights, but {plain} states plain weights"
    first, settings = places[0] if places else ("", {})
    denied = {
        "kv_quantization": ("kv_cache_dtype", _text(settings.get("kv_cache_dtype")) in _PLAIN_CACHE),
        "speculative_decoding": ("speculative", settings.get("speculative") is False),
        "weight_quantization": ("quantization", "quantization" in settings and _plain(settings["quantization"])),
    }
    lossy = {pair for pair, _ in _lossy(settings)}
    for pair, shown in in_force.items():
        name, denies = denied.get(pair[0], ("", False))
        if denies and pair not in lossy:
            yield f"{shown}, but {first} has {name} {settings[name]}"


def _lossy(settings: Mapping[str, Any]) -> Iterator[tuple[Pair, str]]:
    """Yield the lossy techniques in `settings`, each with the setting that reveals it."""
    cache = _text(settings.get("kv_cache_dtype"))
    if cache is not None and cache not in _PLAIN_CACHE:
        family = "turboquant_class" if cache.startswith("turboquant") else cache
        yield ("kv_quantization", "fp8_e4m3" if cache in _E4M3 else family), f"kv_cache_dtype {cache}"
    if not _plain(method := settings.get("quantization")):
        yield ("weight_quantization", _ONLINE.get(str(_text(method)))), f"quantization {method}"
    if settings.get("quantized") is True:
        yield ("weight_quantization", _text(settings.get("precision"))), f"weights in {settings.get('precision')}"
    drafting = _drafting(settings)
    if drafting or settings.get("speculative") is True:
        method = _text(drafting.get("method"))
        variant = None if method is None else "mtp" if method.endswith("_mtp") else _DRAFTING.get(method, method)
        yield ("speculative_decoding", variant), f"speculative decoding{f' by {method}' if method else ''}"
    backend = settings.get("attention_backend")
    if isinstance(backend, str) and "sparse" in backend.lower():
        yield ("compressed_attention", None), f"attention_backend {backend}"
    overrides = settings.get("hf_overrides")
    if isinstance(overrides, dict) and overrides.get("sliding_window"):
        yield ("compressed_attention", None), f"hf_overrides sliding_window {overrides['sliding_window']}"


def _plain(method: Any) -> bool:
    """Return True if a value of the option `quantization` means no quantization."""
    return _text(method) in (None, "", "none", "null", "false")


def _drafting(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the speculative configuration; {} if there is none."""
    config = settings.get("speculative_config")
    fields = _object(config)
    if fields is None and isinstance(config, str) and config.strip() not in ("", "None", "null"):
        return {"method": None, "given": config}
    return fields or {}


def _object(value: Any) -> dict[str, Any] | None:
    """Return a value as an object, also if it is JSON text; None if it is not an object."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value).strip().lower().removeprefix("torch.")


@decides(
    "gate",
    ("gate/mechanism_misdeclared", "error", OURS, "recorded engine configuration, compared with the declaration",
     "correct the declaration, or repeat the runs with the technique that it names"),
)  # fmt: skip
def misdeclared(declared: Mapping[str, Any], facts: EngineFacts) -> Iterator[Finding]:
    """Yield contradictions between a declaration and the recorded engine configuration."""
    mechanism, variant = pair_of(declared)
    rule, as_declared = "gate/mechanism_misdeclared", f"{mechanism}/{variant}, as declared"
    numbers: dict[str, Any] = {"mechanism": mechanism, "mechanism_variant": variant, "in_force": [*facts.in_force]}
    for text in facts.contradictions:
        required = "a consistent configuration"
        yield compared(rule, False, text, required, text="recorded engine configuration", **numbers)
    for (technique, shown), place in facts.in_force.items():
        if technique != mechanism or shown not in (None, variant):
            effective = f"{technique}/{shown or 'unknown variant'} ({place})"
            yield compared(rule, False, effective, as_declared, text="effective technique", **numbers)
    recorded = not facts.gaps or (facts.gaps == (_NO_WEIGHTS,) and mechanism != "weight_quantization")
    leaves_traces = ("kv_quantization", "weight_quantization", "speculative_decoding")
    if recorded and mechanism in leaves_traces and mechanism not in {technique for technique, _ in facts.in_force}:
        dtype = f" (kv_cache_dtype {facts.columns['kv_cache_dtype'] or 'unknown'})"
        effective = f"none{dtype if mechanism == 'kv_quantization' else ''}"
        yield compared(rule, False, effective, as_declared, text="effective technique", **numbers)
    drafted_with = facts.columns["draft_model"]
    if mechanism == "speculative_decoding" and (draft := declared.get("draft_model_id")) and drafted_with:
        names = {Path(str(model)).name.lower() for model in (draft, drafted_with)}
        if len(names) > 1:
            required = f"{draft}, as declared"
            yield compared(rule, False, drafted_with, required, text="effective draft model", **numbers)
