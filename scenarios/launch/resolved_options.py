"""The options of a run, with what follows from them alone."""

from dataclasses import dataclass
from typing import Any

from runs.benchmark import LOADGEN_SCENARIO, Benchmark, Mode, SamplingPolicy
from runs.benchmarks import BENCHMARKS, default_benchmark, submitted_benchmark
from runs.errors import InputError
from runs.mistakes import Mistakes
from runs.record.manifest import AdmissionPlan
from scenarios.launch.run_config import RunConfig
from sut.engine_kind import EngineKind
from sut.engines import engine_kind, refuse_options_of_others


@dataclass(frozen=True)
class ResolvedOptions:
    """The options of a run, and what they select."""

    config: RunConfig
    kind: EngineKind[Any]
    mode: Mode
    loadgen_scenario: str
    benchmark: Benchmark
    sampling: SamplingPolicy
    admission: AdmissionPlan | None


def resolve_options(config: RunConfig, kind: EngineKind[Any] | None, mistakes: Mistakes) -> ResolvedOptions:
    """Resolve the options; contradictions are added to the mistakes, and the defaults replace their options.

    Args:
        kind: Kind of the engine; None = the kind in `config`.
    """
    if kind is None:
        kind = engine_kind(config.engine)
        if config.vllm and config.engine != "vllm":
            fix = "give only one of these options"
            mistakes.add(f"--vllm and --engine {config.engine} contradict each other", fix)
        mistakes.attempt(refuse_options_of_others, kind, config)
    mode: Mode = "accuracy" if config.accuracy else "performance"
    benchmark = mistakes.attempt(_benchmark, config) or default_benchmark(config.scenario)
    official = benchmark.sampling[mode]
    _check_load(config, mistakes)
    return ResolvedOptions(
        config=config,
        kind=kind,
        mode=mode,
        loadgen_scenario=LOADGEN_SCENARIO[config.scenario],
        benchmark=benchmark,
        sampling=_sampling(config, official, mistakes),
        admission=mistakes.attempt(_admission, config, kind),
    )


def _benchmark(config: RunConfig) -> Benchmark:
    key = config.lg_model_name
    if key is None:
        return default_benchmark(config.scenario)
    benchmark = BENCHMARKS[key]
    # Interactive is LoadGen's Server scenario with the limits of a separate model key.
    if (config.scenario == "Interactive") != ("Interactive" in benchmark.scenarios):
        interactive = submitted_benchmark(benchmark.submission_name, "Interactive")
        raise InputError(
            f"--scenario {config.scenario} with --lg-model-name {key}: only Interactive may use the "
            f"key {interactive.loadgen_key}",
            f"give --scenario Interactive --lg-model-name {interactive.loadgen_key}, or another scenario and key",
        )
    return benchmark


def _sampling(config: RunConfig, official: SamplingPolicy, mistakes: Mistakes) -> SamplingPolicy:
    kinds = {name: type(value) for name, value in official}
    values: dict[str, Any] = {}
    requested, most = dict(config.sampling_arg), config.max_new_tokens
    if most is not None and requested.setdefault("max_tokens", most) != most:
        mistakes.add(
            f"--max-new-tokens {most} and --sampling-arg max_tokens={requested['max_tokens']} contradict each other",
            "give only one of these options",
        )
    for name, value in requested.items():
        if name not in kinds:
            mistakes.add(f"--sampling-arg {name}: unknown parameter", f"choose from {', '.join(kinds)}")
        elif isinstance(value, bool) or not isinstance(value, int | float) or kinds[name](value) != value:
            number = "a whole number" if kinds[name] is int else "a number"
            mistakes.add(f"--sampling-arg {name}={value!r}: must be {number}", f"give {number}")
        else:
            values[name] = kinds[name](value)
    policy = official.model_copy(update=values)
    if not 1 <= policy.min_tokens <= policy.max_tokens:
        mistakes.add(
            f"--sampling-arg: min_tokens {policy.min_tokens} and max_tokens {policy.max_tokens} exclude every output",
            "give 1 <= min_tokens <= max_tokens",
        )
    elif policy.max_tokens < 2 and config.scenario != "Offline":
        mistakes.add(
            f"--sampling-arg max_tokens={policy.max_tokens}: in {config.scenario} LoadGen divides by the tokens after "
            "the first one",
            "give max_tokens 2 or more, or --scenario Offline",
        )
    else:
        return policy
    return official


def _admission(config: RunConfig, kind: EngineKind[Any]) -> AdmissionPlan | None:
    # Offline reports no first tokens, and SingleStream has one query at a time.
    both = {"--admission-tokens": config.admission_tokens, "--admission-queries": config.admission_queries}
    bounds = [f"{flag} {value}" for flag, value in both.items() if value is not None]
    options = bounds if config.admission == "off" else [f"--admission {config.admission}", *bounds]
    if LOADGEN_SCENARIO[config.scenario] != "Server" and options:
        raise InputError(f"{options[0]}: {config.scenario} has no first-token limit", f"remove {', '.join(options)}")
    if config.admission == "off":
        if bounds:
            raise InputError(f"{bounds[0]}: no effect with --admission off", "choose an --admission order")
        return None
    if config.admission == "priority" and not kind.has_priorities:
        raise InputError(
            f"--admission priority: engine {kind.name} does not support priorities",
            "give --admission fcfs, shortest or deadline",
        )
    return AdmissionPlan(
        policy=config.admission, prefill_tokens=config.admission_tokens, queries=config.admission_queries
    )


def _check_load(config: RunConfig, mistakes: Mistakes) -> None:
    if config.target_qps is not None and config.scenario == "SingleStream":
        mistakes.add(
            "--target-qps: no effect in SingleStream",
            "remove --target-qps; set the expected latency with *.SingleStream.target_latency in user.conf",
        )
    if config.concurrency is not None and config.scenario != "Offline":
        mistakes.add(
            f"--concurrency {config.concurrency}: LoadGen decides when {config.scenario} issues a query; only Offline "
            "has a closed loop",
            "give --scenario Offline; for a limit whose wait counts in the latency of Server and Interactive, give "
            f"--admission fcfs --admission-queries {config.concurrency}",
        )
