"""The fingerprint of a system: flat facts with dotted keys, and the differences between two runs.

Whether runs are of one system is decided by their fingerprints. A `Scope` selects the facts that count; all scopes are
here. Facts that never count (a run's role, paths, timeouts) are in no fingerprint.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # comparing facts does not need the readers
    from runs.record.finished_run import FinishedRun
    from runs.record.manifest import Manifest, RunPlan

Facts = dict[str, Any]
Differences = dict[str, tuple[Any, Any]]

# Fields that are not compared. Dataset and model are compared by their hashes; ports and addresses are arbitrary.
ROLE = frozenset(
    {
        *("mode", "audit", "dataset_path", "model_path", "engine_start_timeout_s", "stall_timeout_s"),
        *("environment.VLLM_PORT", "environment.VLLM_HOST_IP"),
        "environment.VLLM_CPU_KVCACHE_SPACE",  # depends on the free memory at the start; changes no response
        *("replicas.cluster.address", "replicas.cluster.listen_on"),
        "replicas.cluster.nodes",  # compared by their facts
    }
)
_ACCELERATOR = ("name", "uuid", "memory.total", "driver_version", "power.limit")
_HARNESS, _LOADGEN = ("version", "git_commit", "git_changed"), ("version", "extension_sha256")
# LoadGen's settings that decide what is measured, except the load of a Server run, which is a result.
_SETTINGS = (
    "min_duration_ms", "max_duration_ms", "min_query_count", "max_query_count", "performance_sample_count",
    "sample_concatenate_permutation", "performance_issue_unique", "performance_issue_same", "qsl_rng_seed",
    "sample_index_rng_seed", "schedule_rng_seed", "target_latency_percentile",
)  # fmt: skip
_LIMITS = ("requested_server_ttft_latency", "requested_server_tpot_latency", "requested_use_token_latencies")


def fingerprint(manifest: "Manifest") -> Facts:
    """Return the fingerprint of a run from its manifest."""
    plan, observed, weights = manifest.plan, manifest.observed, manifest.model.weights
    harness, loadgen, host = (part.model_dump() for part in (observed.harness, observed.loadgen, observed.host))
    machine = machine_facts(harness, observed.software, loadgen, host, observed.accelerators)
    facts = planned_facts(plan, manifest.model.sha256) | machine
    facts |= {
        "model.revision": manifest.model.revision,
        "technique": [manifest.mechanism.get(name) for name in ("mechanism", "mechanism_variant")],
    }
    if weights is not None:
        facts |= {"weights.shape": weights.shape, "weights.precision": weights.precision}
    # Without the model's path.
    in_force = {key: value for key, value in manifest.engine.configuration.items() if key != "model"}
    facts |= flat_facts("resolved", in_force)
    package = manifest.observed.engine_package
    facts |= flat_facts("versions", manifest.engine.versions | ({package.name: package.version} if package else {}))
    return {key: value for key, value in facts.items() if key.removeprefix("resolved.") not in ROLE or key == SPACE}


def run_fingerprint(run: "FinishedRun") -> Facts:
    """Return the fingerprint of a run from all files, including settings in LoadGen's and the engine's logs."""
    detail = run.detail
    facts: Facts = {"scenario": run.scenario, "benchmark": run.benchmark.loadgen_key}
    facts |= {f"loadgen.{name}": detail.effective(name) for name in _SETTINGS}
    facts |= {f"loadgen.{name}": detail.get(name) for name in _LIMITS}
    if run.manifest is not None:
        log = run.engine_log
        more = {"kv_cache_tokens": log.kv_cache_tokens, "attention_backend": log.attention_backend}
        printed = {**log.configuration, **more}
        facts = fingerprint(run.manifest) | facts | {f"resolved.{name}": value for name, value in printed.items()}
    return facts | {
        "loadgen.version": detail.get("loadgen_version"),
        "loadgen.sources": detail.get("loadgen_file_sha1"),
        "loadgen.system": [detail.get("sut_name"), detail.get("qsl_name")],
        "loadgen.samples": detail.get("qsl_reported_total_count"),
    }


def machine_facts(
    harness: Mapping[str, Any],
    software: Mapping[str, str],
    loadgen: Mapping[str, Any],
    host: Mapping[str, Any],
    gpus: Iterable[Mapping[str, Any]],
) -> Facts:
    facts = {f"harness.{name}": harness.get(name) for name in _HARNESS}
    facts |= {f"loadgen.{name}": loadgen.get(name) for name in _LOADGEN}
    facts |= flat_facts("loadgen.build", loadgen.get("build"))
    return facts | flat_facts("host", dict(host)) | flat_facts("software", dict(software)) | accelerator_facts(gpus)


def accelerator_facts(gpus: Iterable[Mapping[str, Any]]) -> Facts:
    rows = list(gpus)
    return {f"accelerators.{name}": [row.get(name) for row in rows] for name in _ACCELERATOR}


def planned_facts(plan: "RunPlan", sha256: Mapping[str, str]) -> Facts:
    """Return the facts of a plan and of the model's files."""
    content = plan.model_dump(mode="json")
    replicas = content["replicas"] or {}
    if replicas.pop("kept", None) and len(replicas["places"]) == 1:  # the engine that a single run would start
        content |= {"replicas": None, "environment": replicas["places"][0]["environment"]}
    for place in (content["replicas"] or {}).get("places", ()):
        kept = {name: value for name, value in place["environment"].items() if f"environment.{name}" not in ROLE}
        place["environment"] = kept
    facts = {key: value for key, value in flat_facts("", content).items() if key not in ROLE}
    facts |= {
        f"node {number}.{name}": value for number, node in enumerate(plan.nodes) for name, value in node.facts.items()
    }
    files = {name: digest for name, digest in sha256.items() if not name.startswith(".")}
    return facts | (flat_facts("model.sha256", files) if files else {"model.path": plan.model_path})


def flat_facts(place: str, value: Any) -> Facts:
    """Return a value, or the nested fields of a dictionary, by dotted names that begin with a place."""
    if not isinstance(value, dict):
        return {place: value}
    parts = (flat_facts(f"{place}.{key}" if place else str(key), part) for key, part in value.items())
    return {key: fact for part in parts for key, fact in part.items()}


# Scopes -------------------------------------------------------------------------------------------------------------


class Scope(NamedTuple):
    """A selection of facts by keys, and by prefixes that end in a dot or a blank. An empty `only` selects all."""

    only: tuple[str, ...] = ()
    ignoring: tuple[str, ...] = ()

    def of(self, facts: Mapping[str, Any]) -> Facts:
        """Return the selected facts."""
        (only, only_below), (ignored, ignored_below) = _split(self.only), _split(self.ignoring)
        return {
            key: value
            for key, value in facts.items()
            if (not self.only or key in only or key.startswith(only_below))
            and not (key in ignored or key.startswith(ignored_below))
        }

    def text(self, facts: Mapping[str, Any]) -> str:
        """Return the values of the selected facts as text."""
        return ", ".join(value_text(value, 160) for value in self.of(facts).values()) or value_text(None, 160)


def _keys(text: str) -> tuple[str, ...]:
    return tuple(text.split())


@cache
def _split(keys: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the keys, and the prefixes among them."""
    return frozenset(keys), tuple(key for key in keys if key[-1] in ". ")


ALL = Scope()
_MODEL = ("model.", "dataset_sha256")
_SYSTEM = ("host.hostname", "host.cpu", "host.cores_usable", "host.system", "software.", "versions.", "accelerators.")
_CODE = ("loadgen.version", "loadgen.extension_sha256", "loadgen.sources")

# Campaign and tuning: finished runs against runs that would start now. Commits of one version do not change runs.
RESUMED = Scope(
    ignoring=(
        *_keys("harness.git_commit harness.git_changed loadgen.version model.revision host.boot_id"),
        *_keys("technique versions. resolved. weights."),  # unknown before the start, or decided by the files
    )
)
# `compare` and `store compare`: facts that must be equal. The system's facts may differ and are listed as what changed.
# The runs of a bench differ in data and numbers of queries, so a bench states its data, lengths and duration itself.
_ONE_RUN = _keys("scenario dataset_sha256 loadgen.samples") + tuple(f"loadgen.{name}" for name in _SETTINGS[:9])
CONDITIONS = Scope(
    (
        *(*_ONE_RUN, "benchmark", "sampling.", "engine_options.enable_prefix_caching"),
        *(f"loadgen.{name}" for name in (*_SETTINGS[9:], *_LIMITS)),
    )
)
SYSTEM = Scope(
    ignoring=(
        *CONDITIONS.only,
        *_keys("loadgen_scenario loadgen_key sample_count longest_prompt_tokens loadgen.system"),
        *_keys("enable_log_trace warmup_prompts compiles trial loadgen.sources accelerators.uuid weights.shape"),
        *_keys("host.boot_id host.cores_logical resolved.kv_cache_tokens resolved.enable_prefix_caching"),
        *_keys("engine_options.lead_tokens resolved.lead_tokens replicas."),  # the places of replicas follow
    )
)
# Sign-off: reference and candidate, and repeats. Facts without effect on numbers, and duplicates, are ignored.
MEASURED = Scope(
    ignoring=(
        *_keys("loadgen_key enable_log_trace compiles warmup_prompts weights. harness."),
        *_keys("host.boot_id host.cores_logical host.memory_bytes"),
    )
)
# Sign-off: a performance and an accuracy run, without the settings in which they differ.
BOTH_MODES = Scope(ignoring=(*MEASURED.ignoring, *(f"loadgen.{name}" for name in (*_SETTINGS[:5], "min_duration_ms"))))
# Sign-off: all runs of a bundle; runs of one benchmark; runs of one benchmark and mode.
BUNDLE = Scope((*_SYSTEM, *_CODE, "harness."))
BUNDLE_BENCHMARK = Scope(_MODEL)
BUNDLE_MODE = Scope(("sampling.",))
CHANGED_OPTION = Scope(("scenario", "benchmark", *_SYSTEM, *_MODEL), ignoring=("software.", "versions."))
CODE = Scope(("harness.version", "harness.git_commit"))  # code of the harness, for runs outside a submission
AUDITED = Scope(  # the runs of an audit and the performance run
    (
        *(*_MODEL, *_SYSTEM, *_CODE),
        *_keys("engine engine_options. sampling. resolved. technique replicas replicas. admission admission."),
    )
)
# Submission: runs of one result; results of one tree; scenarios of one benchmark; scenarios of one precision.
RESULT = Scope(
    ignoring=(
        *_keys("enable_log_trace technique resolved. weights. model.revision loadgen.version harness.version"),
        *_keys("harness.git_changed host.hostname host.boot_id host.system host.cores_usable"),
        *(f"accelerators.{name}" for name in _ACCELERATOR[1:]),
    )
)
TREE = Scope(
    (
        *_keys("harness.git_commit loadgen.extension_sha256 host.cpu host.cores_logical host.memory_bytes"),
        *("accelerators.name", "software.", "versions.", "node "),  # prefixes for a cluster's nodes: "node 0.…"
    )
)
BENCHMARK = Scope(("dataset_sha256", "weights.shape"))
PRECISION = Scope(("model.sha256.", "model.path"))
# SERVERS: audited servers and others. RESPONSES: facts that change responses of greedy decoding.
SERVERS = Scope(("engine_options.api_server", "versions.", "resolved.told_by_the_server.", "resolved.declared."))
_NUMERICS = _keys("dtype kv_cache_dtype model quantization speculative speculative_config speculative_config.")
RESPONSES = Scope(
    (*_keys("model.sha256. model.path dataset_sha256 sampling."), *(f"engine_options.{name}" for name in _NUMERICS))
)
# The gate: facts that change a model's numbers.
LOSSY = Scope(
    (
        "weights.precision",
        *(
            f"{place}.{name}"
            for place in ("resolved", "resolved.declared", "engine_options")
            for name in ("kv_cache_dtype", "quantization", "speculative", "speculative_config", "attention_backend")
        ),
        *("engine_options.speculative_config.", "engine_options.hf_overrides."),
    )
)
# `verify`: both runs of a result, by the subject of the finding.
# Facts that every run's log has.
LOGGED = {"scenario": Scope(("scenario",)), "dataset size": Scope(("loadgen.samples",))}
PAIR = LOGGED | {
    "LoadGen module": Scope(("loadgen.extension_sha256", "loadgen.build.kind")),
    "engine": Scope(("engine",)),
    "model": Scope(("model.",), ignoring=("model.revision",)),
    "dataset": Scope(("dataset_sha256",)),
    "sampling": Scope(("sampling.",)),
    "prefix caching setting": Scope(("engine_options.enable_prefix_caching",)),
    "data type": Scope(("engine_options.dtype",)),
    "quantization": Scope(("engine_options.quantization",)),
    "KV cache type": Scope(("engine_options.kv_cache_dtype",)),
    "speculative decoding": Scope(("engine_options.speculative_config", "engine_options.speculative_config.")),
}


def conditions_of(facts: Mapping[str, Any], *, of_bench: bool = False) -> tuple[Facts, Facts]:
    """Return the facts that must be equal in a comparison, and those of the system; lists become text.

    Args:
        of_bench: Leave out the facts in which the runs of one bench differ.
    """
    left_out = _ONE_RUN if of_bench else ()
    equal = {key: _plain(value) for key, value in CONDITIONS.of(facts).items() if key not in left_out}
    return equal, {key: _plain(value) for key, value in SYSTEM.of(facts).items()}


def _plain(value: Any) -> str | int | float | bool | None:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


# Comparison ---------------------------------------------------------------------------------------------------------


def _same_boot(first: Facts, second: Facts) -> bool:
    """Compare boot IDs, because the host name may change."""
    return first.get("host.boot_id") is not None and first["host.boot_id"] == second.get("host.boot_id")


def _within(key: str, share: float) -> Callable[[Facts, Facts], bool]:
    def close(first: Facts, second: Facts) -> bool:
        values = [facts[key] for facts in (first, second) if facts.get(key) is not None]
        return len(values) == 2 and abs(values[0] - values[1]) <= share * max(values)

    return close


def _same_module(first: Facts, second: Facts) -> bool:
    """Compare the hashes of LoadGen's module, because earlier manifests do not contain how it was built."""
    return first.get("loadgen.extension_sha256") == second.get("loadgen.extension_sha256")


SPACE = "resolved.environment.VLLM_CPU_KVCACHE_SPACE"
# Facts that depend on the free memory at the start; they change no response.
FREE_MEMORY = frozenset({"resolved.kv_cache_tokens", SPACE})
# Facts with a tolerance → function that compares two fingerprints.
TOLERANCES: dict[str, Callable[[Facts, Facts], bool]] = {
    "host.hostname": _same_boot,
    **{f"loadgen.build{part}": _same_module for part in ("", ".kind", ".compiler", ".pybind11")},
    "host.memory_bytes": _within("host.memory_bytes", 0.01),  # the kernel's share changes with each boot
    "resolved.kv_cache_tokens": _within("resolved.kv_cache_tokens", 0.02),  # depends on the free memory
    "engine_options.kv_cache_dtype": lambda *both: (
        {facts.get("engine_options.kv_cache_dtype") for facts in both} <= {None, "auto"}
    ),
}


def differences(first: Mapping[str, Any], second: Mapping[str, Any], scope: Scope = ALL) -> Differences:
    """Return the facts of a scope that differ by more than TOLERANCES, with both values; None for a missing fact."""
    both = {key: (first.get(key), second.get(key)) for key in scope.of({**first, **second})}
    return {
        key: pair
        for key, pair in both.items()
        if pair[0] != pair[1] and not (key in TOLERANCES and TOLERANCES[key](dict(first), dict(second)))
    }


def describe_differences(unequal: Differences, here: str, second_place: str) -> list[str]:
    """Return each difference as text: `host.cpu: A then, B now`, with `here` "then" and `there` "now"."""
    return [
        f"{key}: {value_text(before, 160)} {here}, {value_text(after, 160)} {second_place}"
        for key, (before, after) in unequal.items()
    ]


def changes(then: Facts, now: Facts) -> list[str]:
    """Return the differences between a finished run and a run that would start now: `host.cpu: A then, B now`."""
    return describe_differences(differences(then, now, RESUMED), "then", "now")


def value_text(value: Any, limit: int) -> str:
    """Return a value as text, shortened to a number of characters."""
    text = "not set" if value is None else str(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
