"""G-1, B-3 and H-1: under which conditions a leg ran, from its raw files, and what differs between two legs."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from compliance.finding import Finding, fail, warn
from compliance.signoff.evidence import Evidence
from runs.record.conditions import Conditions, Host, differences, plan_conditions, shown
from runs.record.manifest import Manifest
from runs.record.requests_log import RequestTable

# LoadGen's settings that decide what is measured. The load of a Server run is its result, and is left out.
_SETTINGS = (
    "min_duration_ms", "max_duration_ms", "min_query_count", "max_query_count", "performance_sample_count",
    "sample_concatenate_permutation", "performance_issue_unique", "performance_issue_same", "qsl_rng_seed",
    "sample_index_rng_seed", "schedule_rng_seed", "target_latency_percentile",
)  # fmt: skip
_LIMITS = ("requested_server_ttft_latency", "requested_server_tpot_latency", "requested_use_token_latencies")
# Of an accuracy leg LoadGen sets these itself.
_MODE_SETTINGS = frozenset({f"loadgen.{name}" for name in (*_SETTINGS[:5], "min_duration_ms")})
# One option under several names: as asked for, as resolved, as printed.
SAME_OPTION = {"speculative_config": "speculative", "cache_dtype": "kv_cache_dtype"}
# Of a leg's plan: what is compared under another name, or follows from what is, or shapes no number.
_PLAN_LEFT_OUT = frozenset({"loadgen_key", "dataset_sha256", "enable_log_trace", "compiles", "warmup_prompts"})
# Facts of a machine or a process that two honest legs may differ in.
_ENVIRONMENT_LEFT_OUT = frozenset({"VLLM_PORT", "VLLM_HOST_IP"})


# What an engine makes of the memory that is free when it starts. No answer hangs on it.
_OF_FREE_MEMORY = frozenset({"resolved.kv_cache_tokens", "environment.VLLM_CPU_KVCACHE_SPACE"})


def conditions_of(evidence: Evidence) -> Conditions:
    """Everything that two comparable legs have in common, flat: `engine.slots`, `model`, `host.cpu`, …"""
    detail, manifest = evidence.detail, evidence.manifest
    found: Conditions = {"scenario": evidence.scenario, "benchmark": evidence.benchmark.loadgen_key}
    found |= {f"loadgen.{name}": detail.effective(name) for name in _SETTINGS}
    found |= {f"loadgen.{name}": detail.get(name) for name in _LIMITS}
    found |= {
        "loadgen.version": detail.get("loadgen_version"),
        "loadgen.sources": detail.get("loadgen_file_sha1"),
        "loadgen.system": [detail.get("sut_name"), detail.get("qsl_name")],
        "samples in the data set": detail.get("qsl_reported_total_count"),
    }
    if manifest is None:
        return found
    plan = manifest.plan
    found |= {
        "model": manifest.model.sha256 or plan.model_path,
        "model revision": manifest.model.revision,
        "data set": plan.dataset_sha256,
        "technique": [manifest.mechanism.get(name) for name in ("mechanism", "mechanism_variant")],
        "loadgen.extension": manifest.observed.loadgen.extension_sha256,
        "accelerators": [_accelerator(one) for one in manifest.observed.accelerators],
    }
    found["host.hostname"] = Host(manifest.observed.host.hostname, manifest.observed.host.boot_id)
    found |= {f"host.{name}": getattr(manifest.observed.host, name) for name in ("cpu", "cores_usable", "system")}
    found |= {f"software.{name}": value for name, value in manifest.observed.software.items()}
    versions = manifest.engine.versions
    found |= {f"software.{name} by the engine": value for name, value in versions.items()}
    for name, value in plan_conditions(plan).items():
        key = name.replace("engine_options.", "engine.", 1)
        if name not in _PLAN_LEFT_OUT and key.removeprefix("environment.") not in _ENVIRONMENT_LEFT_OUT:
            found[key] = value
    found |= _resolved(evidence)
    return found


def _accelerator(one: dict[str, Any]) -> dict[str, Any]:
    return {name: one.get(name) for name in ("name", "uuid", "memory.total", "driver_version", "power.limit")}


def _resolved(evidence: Evidence) -> Conditions:
    """The engine's own values: the record's, and over them what engine.log prints."""
    manifest = evidence.manifest
    configuration = dict(manifest.engine.configuration if manifest else {})
    environment = configuration.pop("environment", {})
    log = evidence.engine_log
    configuration |= log.configuration
    configuration |= {"kv_cache_tokens": log.kv_cache_tokens, "attention_backend": log.attention_backend}
    found = {f"resolved.{name}": value for name, value in configuration.items()}
    return found | _environment(environment)


def _environment(variables: dict[str, Any]) -> Conditions:
    return {f"environment.{name}": value for name, value in variables.items() if name not in _ENVIRONMENT_LEFT_OUT}


def asked_options(manifest: Manifest) -> dict[str, Any]:
    """The engine options that the user named, by the engine's names, and the variables that are not as planned."""
    asked, record = manifest.asked, manifest.plan.engine_record
    named = dict(asked.get("engine_arg") or {})
    named |= {name: asked[name] for name in record.named_options if asked.get(name) is not None}
    if prefix := record.option_prefix:
        named |= {name.removeprefix(prefix): value for name, value in asked.items() if name.startswith(prefix)}
    told, planned = manifest.engine.configuration.get("environment", {}), manifest.plan.environment
    return named | {name: value for name, value in told.items() if planned.get(name) != value}


def batch_limit(manifest: Manifest) -> int | None:
    """How many requests the engine computes at a time, by its record; None where that does not tell, or for all."""
    plan = manifest.plan
    configuration = manifest.engine.configuration
    most = configuration.get(plan.engine_record.batch_field, plan.engine_options.get(plan.engine_record.batch_field))
    copies = configuration.get("data_parallel_size")
    return most * (copies if isinstance(copies, int) else 1) if isinstance(most, int) and most > 0 else None


def option_of(key: str) -> str:
    """The engine option, or variable, that a key of conditions is about: `resolved.dtype` → dtype."""
    name = key.partition(".")[2] if key.startswith(("engine.", "resolved.", "environment.")) else key
    return SAME_OPTION.get(name, name)


def is_option(key: str) -> bool:
    """Can a key be a lever at all? The machine, the model's data and LoadGen's settings cannot."""
    return key.startswith(("engine.", "resolved.", "environment."))


def without_mode(found: dict[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Differences that do not come from one leg being of performance and the other of accuracy."""
    return {key: value for key, value in found.items() if key not in _MODE_SETTINGS}


def in_words(found: dict[str, tuple[Any, Any]], most: int = 4) -> str:
    """Differences as a text."""
    texts = [f"{key} {shown(one, 40)} / {shown(other, 40)}" for key, (one, other) in list(found.items())[:most]]
    more = len(found) - most
    return "; ".join(texts) + (f"; and {more} more" if more > 0 else "")


def unlike(rule: str, said: str, found: dict[str, tuple[Any, Any]], *roots: Path) -> Iterator[Finding]:
    """A finding where legs differ that may not; by what was free at their start, a flag."""
    if found:
        make = warn if found.keys() <= _OF_FREE_MEMORY else fail
        yield make(rule, f"{said}: {in_words(found)}", *roots, keys=sorted(found))


def peak_in_flight(table: RequestTable) -> tuple[int, int]:
    """The most requests, and the most prompt and output tokens, in the system at one time; upper bounds of what ran."""
    tokens = table.prompt_tokens + table.output_tokens
    moments = np.concatenate((table.issue_ns, table.complete_ns))
    requests = np.concatenate((np.ones(len(table), np.int64), -np.ones(len(table), np.int64)))
    order = np.lexsort((requests, moments))  # of one moment, the end first
    held = np.concatenate((tokens, -tokens))
    return int(np.cumsum(requests[order]).max()), int(np.cumsum(held[order]).max())


def all_alike(legs: Iterable[Evidence]) -> dict[str, tuple[Any, Any]]:
    """What differs between the first leg and any other; empty for repeats of one thing."""
    first, *others = [conditions_of(evidence) for evidence in legs]
    found: dict[str, tuple[Any, Any]] = {}
    for other in others:
        found |= differences(first, other)
    return found
