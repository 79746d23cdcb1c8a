"""Checks G-1, G-5 and G-8: on the options in which reference and candidate differ.

Class A changes how a step of the model is computed: a kernel, its choice, its compilation. Class B changes what is
computed, or how requests are served: data types, memory, parallelism, batching, speculation. A gain by class B is real,
but it is not the gain of a faster kernel.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from compliance.judge.verdict import Finding, stated
from compliance.signoff.claim import Claim
from compliance.signoff.evidence import Evidence, checks
from compliance.signoff.provenance import difference_text
from compliance.signoff.requests import most_at_once
from compliance.signoff.signoff_verdict import SignOffDetails
from runs.record.fingerprint import BOTH_MODES, differences
from runs.record.manifest import Manifest

KV_POOL_SHARE = 0.9  # share of the KV cache; if a run uses less, the size of the cache has no effect
CLASS_A = frozenset(
    {
        "attention_backend", "compilation_config", "cudagraph_mode", "disable_custom_all_reduce", "enforce_eager",
        "kernel_config", "linear_backend", "moe_backend", "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND",
        "VLLM_ATTENTION_BACKEND", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_USE_DEEP_GEMM", "VLLM_USE_FLASHINFER_SAMPLER",
        # these options set the speed of the dummy engine
        "prefill_us", "tpot_ms", "ttft_ms",
    }
)  # fmt: skip
CLASS_B = frozenset(
    {
        "admission", "admission_queries", "admission_tokens", "async_scheduling", "block_size", "data_parallel_size",
        "distributed_executor_backend", "dtype", "long_prefill_token_threshold",
        "enable_chunked_prefill", "enable_prefix_caching", "gpu_memory_utilization", "kv_cache_dtype",
        "kv_cache_memory_bytes", "load_format", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "model",
        "num_gpu_blocks_override", "pipeline_parallel_size", "quantization", "speculative", "speculative_config",
        "swap_space", "tensor_parallel_size", "VLLM_CPU_KVCACHE_SPACE", "VLLM_ENABLE_V1_MULTIPROCESSING",
        # option for the batch size of the dummy engine
        "slots",
    }
)  # fmt: skip
# Options that change the model's arithmetic. Responses may change, so they also need `main.py gate`.
NEEDS_QUALITY_GATE = frozenset(
    {"dtype", "kv_cache_dtype", "model", "quantization", "speculative", "speculative_config"}
)

# Option → other options that may change with it. G-1 checks that these had no effect.
_POOL = frozenset({"kv_cache_tokens"})
_POOL_ONLY = (
    *("attention_backend", "enforce_eager", "quantization", "max_num_batched_tokens", "max_num_seqs"),
    *("gpu_memory_utilization", "tensor_parallel_size"),
)
SIDE_EFFECTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(_POOL_ONLY, _POOL),
    "compilation_config": _POOL | {"enforce_eager"},
    "kv_cache_dtype": _POOL | {"attention_backend"},
    "dtype": _POOL | {"kv_cache_dtype", "attention_backend"},
    "speculative": _POOL | {"async_scheduling"},
    "data_parallel_size": _POOL,
}
# Option → environment variables that the harness derives from it unless the user sets them (cores of each rank).
_DERIVED = dict.fromkeys(("data_parallel_size", "tensor_parallel_size"), frozenset({"VLLM_CPU_OMP_THREADS_BIND"}))

# Fact on the limit of queries in the engine → option of `main.py run`.
_ADMISSION = {
    "admission.policy": "admission",
    "admission.prefill_tokens": "admission_tokens",
    "admission.queries": "admission_queries",
}
# Prefixes of the facts that count as options. Facts on the system, the model and LoadGen's settings do not count.
_OPTIONS = ("resolved.environment.", "environment.", "resolved.", "engine_options.", "admission.")
# Alternative name of an option → the name that this module uses.
_SAME_OPTION = {"speculative_config": "speculative", "cache_dtype": "kv_cache_dtype"}


def class_of(option: str) -> str | None:
    """Return the class A or B of an option; None if the tables do not contain it."""
    if option in CLASS_A:
        return "A"
    return "B" if option in CLASS_B else None


@checks(
    "G-1",
    ("confounded", "error", "differences between reference and candidate other than engine options"),
    ("several_levers", "error", "number of changed options of a patch"),
    ("second_knob", "error", "options that differ but are not declared as changed"),
    ("unproven_side_effect", "error", "effect of options that change with a changed option"),
    ("side_effect_not_told", "warning", "side effects that the claim leaves out"),
    ("inert_side_effect", "note", "options without effect that change with a changed option"),
    ("handicapped_reference", "warning", "options that only the reference sets"),
)
def judge_changed_options(details: SignOffDetails, ref: Evidence, cand: Evidence, claim: Claim) -> Iterator[Finding]:
    """Apply G-1, G-5 and G-8 to a reference and a candidate run. Only a bundle may have multiple changed options."""
    where = ref.dir.root, cand.dir.root
    unequal = differences(ref.facts, cand.facts, BOTH_MODES)
    options = {key: value for key, value in unequal.items() if key.startswith(_OPTIONS)}
    confounds = {key: value for key, value in unequal.items() if key not in options}
    claimed = {_SAME_OPTION.get(name, name) for name in claim.levers}
    requested = {
        name for manifest in (ref.manifest, cand.manifest) if manifest is not None for name in asked_options(manifest)
    }
    changed = sorted({option_of(key) for key in options})
    derived = frozenset().union(*(_DERIVED.get(name, frozenset()) for name in changed)) - requested
    changed = [name for name in changed if name not in derived]
    levers = sorted(claimed) if claimed else [name for name in changed if name not in _effects_of(changed)]
    details.levers, details.lever_evidence = levers, {key: list(value) for key, value in options.items()}
    yield from _handicapped(levers, ref, cand, where)
    if confounds:
        text = f"reference and candidate differ in more than their options: {difference_text(confounds)}"
        yield stated("G-1/confounded", text, *where, keys=sorted(confounds))
    if details.scope == "patch" and len(levers) > 1:
        yield stated(
            "G-1/several_levers",
            f"changed options of the patch: {', '.join(levers)}, required: one",
            *where,
            levers=levers,
        )
    effects = [name for name in changed if name not in levers and name in _effects_of(levers)]
    if extra := [name for name in changed if name not in levers and name not in effects]:
        keys = {key: value for key, value in options.items() if option_of(key) in extra}
        named = ", ".join(levers) or "(none claimed)"
        text = f"differences other than the changed option {named}: {difference_text(keys)}"
        yield stated("G-1/second_knob", text, *where, options=extra)
    if effects:
        yield inert(effects, ref, cand, claim)
    yield _engaged(details, changed, where)
    yield from _class(details, claim, where)


def _handicapped(levers: list[str], ref: Evidence, cand: Evidence, where: tuple[Path, Path]) -> Iterator[Finding]:
    """Report options that only the reference sets, because they may have slowed it down (G-1)."""
    if ref.manifest is None or cand.manifest is None:
        return
    before, after = asked_options(ref.manifest), asked_options(cand.manifest)
    removed = [f"{name} {value}" for name, value in before.items() if name in levers and name not in after]
    if removed:
        text = f"only the reference sets {', '.join(removed)}; the candidate has the engine's default"
        yield stated("G-1/handicapped_reference", f"{text}, so the gain may come from a slower reference", *where)


def _effects_of(names: Iterable[str]) -> frozenset[str]:
    return frozenset().union(*(SIDE_EFFECTS.get(name, frozenset()) for name in names))


def inert(effects: list[str], ref: Evidence, cand: Evidence, claim: Claim) -> Finding:
    """Return a finding on options that change with a changed option: no effect if no run reached their limits."""
    problems = [text for evidence in (ref, cand) if (text := _not_inert(evidence))]
    where = ref.dir.engine_log, cand.dir.engine_log
    shown = ", ".join(effects)
    if problems:
        text = f"changes of {shown} may have affected the numbers: {'; '.join(problems)}"
        return stated("G-1/unproven_side_effect", text, *where, effects=effects)
    if claim.conditions == "identical":
        return stated(
            "G-1/side_effect_not_told",
            "",
            *where,
            found="the claim states identical conditions",
            required=f"{shown} changed; the change had no effect",
        )
    return stated(
        "G-1/inert_side_effect",
        f"{shown} changed without effect: neither run reached the limits that {shown} changes",
        *where,
        effects=effects,
    )


def _not_inert(evidence: Evidence) -> str | None:
    """Return the reason why the limit of the KV cache or batch may have affected a run; None if it did not."""
    if evidence.requests is None or evidence.manifest is None:
        return f"the request log of {evidence.dir.root} is missing"
    table = evidence.requests
    requests = most_at_once(table.issue_ns, table.complete_ns)
    tokens = most_at_once(table.issue_ns, table.complete_ns, table.prompt_tokens + table.output_tokens)
    most = (evidence.manifest.engine.configuration).get("max_num_seqs")
    pool = evidence.engine_log.kv_cache_tokens
    if not isinstance(most, int) or pool is None:
        return f"the batch limit or the size of the KV cache of {evidence.dir.root} is unknown"
    if requests >= most:
        return f"{evidence.dir.root} had {requests} requests in flight; the batch limit is {most} requests"
    if tokens >= KV_POOL_SHARE * pool:
        return f"{evidence.dir.root} had {tokens} tokens in flight; the KV cache has room for {pool} tokens"
    if evidence.engine_log.preempted:
        return f"the engine of {evidence.dir.root} preempted requests"
    return None


@checks(
    "G-5",
    ("no_op", "error", "changed options without a difference between reference and candidate"),
    ("engaged", "note", "effective values of the changed options"),
)
def _engaged(details: SignOffDetails, changed: list[str], where: tuple[Path, Path]) -> Finding:
    """Check that the effective value of each changed option differs between reference and candidate (G-5)."""
    if not details.levers:
        return stated("G-5/no_op", "reference and candidate have the same options", *where)
    if idle := [name for name in details.levers if name not in changed]:
        text = f"manifest.json and engine.log show no difference in {', '.join(idle)}"
        return stated("G-5/no_op", text, *where, levers=idle)
    shown = "; ".join(f"{key} {before} / {after}" for key, (before, after) in details.lever_evidence.items())
    return stated("G-5/engaged", f"effective values of reference / candidate: {shown}", *where)


@checks(
    "G-8",
    ("unknown_lever", "error", "changed options of unknown class"),
    ("not_a_kernel_gain", "warning", "kernel gain claimed for changed options of class B"),
    ("needs_quality_gate", "note", "changed options that also need `main.py gate`"),
)
def _class(details: SignOffDetails, claim: Claim, where: tuple[Path, Path]) -> Iterator[Finding]:
    """Check the class (A or B) of the changed options with the tables in this module (G-8)."""
    classes = {name: class_of(name) for name in details.levers}
    if unknown := [name for name, kind in classes.items() if kind is None]:
        text = f"class of {', '.join(unknown)}: unknown (compliance/signoff/changed_options.py lists the classes)"
        yield stated("G-8/unknown_lever", text, *where, levers=unknown)
        return
    if not classes:
        return
    of_b = [name for name, kind in classes.items() if kind == "B"]
    details.lever_class = "B" if of_b else "A"
    if claim.lever_class == "A" and of_b:
        stated_kernel, required = "the claim states a faster kernel", f"{', '.join(of_b)} changes serving or algorithm"
        yield stated("G-8/not_a_kernel_gain", "", *where, found=stated_kernel, required=required, levers=of_b)
    if gated := [name for name in classes if name in NEEDS_QUALITY_GATE]:
        text = f"{', '.join(gated)} changes the model's arithmetic: check the responses with `main.py gate`"
        yield stated("G-8/needs_quality_gate", text, *where, levers=gated)


def asked_options(manifest: Manifest) -> dict[str, Any]:
    """Return the engine options that the user set, with the engine's names, and the variables that the user changed."""
    requested, record = manifest.asked, manifest.plan.engine_record
    named = dict(requested.get("engine_arg") or {})
    named |= {name: requested[name] for name in record.named_options if requested.get(name) is not None}
    if prefix := record.option_prefix:
        named |= {name.removeprefix(prefix): value for name, value in requested.items() if name.startswith(prefix)}
    in_force, planned = manifest.engine.configuration.get("environment", {}), manifest.plan.environment
    return named | {name: value for name, value in in_force.items() if planned.get(name) != value}


def option_of(key: str) -> str:
    """Return the engine option or variable of a fact: `resolved.dtype` → dtype."""
    if key in _ADMISSION:
        return _ADMISSION[key]
    start = next((option for option in _OPTIONS if key.startswith(option)), "")
    name = key.removeprefix(start).partition(".")[0]
    return _SAME_OPTION.get(name, name)
