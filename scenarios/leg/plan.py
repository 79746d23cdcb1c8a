"""From what was asked to a leg that can run: everything that can be checked is checked here, before anything starts."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from compliance.mechanisms.declaration import validate
from compliance.mechanisms.technique_registry import registries_or_error
from qsl.cnn_dailymail.rehearsal import MARK as SYNTHETIC_MARK
from qsl.dataset import Dataset, load_dataset
from qsl.embedded.articles import bundled_dataset
from qsl.embedded.default_model import ensure_default_model
from qsl.model_files import ModelFacts, model_facts
from qsl.tokenizers import ByteTokenizer
from qsl.weights import read_weights
from runs.benchmark import LOADGEN_SCENARIO, Benchmark, Mode, SamplingPolicy
from runs.benchmarks import BENCHMARKS, default_benchmark, submitted_benchmark
from runs.environment import HARNESS_ROOT
from runs.errors import InputError, SetupError
from runs.loadgen.user_conf import Setting, lookup, parse_conf, read_conf_text, with_setting
from runs.record.attestation import load_signer
from runs.record.engine_records import engine_record
from runs.record.layout import RunDir
from runs.record.manifest import AdmissionPlan, LegPlan
from runs.record.observed import Weights
from runs.record.official_inputs import model_reasons
from scenarios.leg.config import EMBEDDED_CONF, TRIAL_CONF, RunConfig
from scenarios.leg.official import data_reasons, sampling_reasons, settings_reasons
from scenarios.leg.replica_plan import plan_engine
from sut.engine_kind import EngineKind, LegFacts
from sut.engines import ENDPOINT, engine_kind, refuse_options_of_others

WARMUP_PROMPTS = 16
WARMUP_PROMPTS_WITHOUT_COMPILING = 4
DISK_RESERVE_BYTES = 64 << 20
TRIAL_REASON = "a trial: nobody named a rate, and the latency limits are not the official ones"
LOG_BYTES_PER_SAMPLE = 1_500
TRACE_BYTES_PER_SAMPLE = 2_500


@dataclass
class PreparedLeg:
    """A checked leg: its plan, the texts LoadGen will be given, and what the parent needs afterwards."""

    asked: dict[str, Any]  # the options that were given
    plan: LegPlan
    benchmark: Benchmark
    run_dir: RunDir
    user_conf: str
    conf_path: Path  # where most of it comes from
    audit_config: str | None
    dataset: Dataset
    model: ModelFacts | None
    weights: Weights | None  # of the model; None for a server's, which no file here tells
    bundled: bool  # the bundled articles are the data set
    unofficial_reasons: list[str]
    notes: list[str] = field(default_factory=list)  # what was resolved, for the record and under --verbose
    hints: list[str] = field(default_factory=list)  # what was asked for and has another effect; always shown

    @property
    def is_trial(self) -> bool:
        """Whether limits of an hour hold in place of the official ones (configs/trial.conf)."""
        return self.conf_path == TRIAL_CONF


def prepare(config: RunConfig, say: Any = print, kind: EngineKind[Any] | None = None) -> PreparedLeg:
    """Check a configuration and resolve every default.

    Args:
        say: told what takes time (making the embedded model).
        kind: of the engine; None = the one that `config` names.

    Raises:
        InputError, SetupError: see the message.
    """
    notes: list[str] = []
    if config.signing_key is not None:
        load_signer(config.signing_key)
    kind = kind or _engine_kind(config)
    benchmark = _benchmark(config)
    mode: Mode = "accuracy" if config.accuracy else "performance"
    sampling = _sampling(config, benchmark.sampling[mode])
    run_dir = RunDir(_output_dir(config))
    model, model_path = _model(config, kind, say)
    bundled = config.dataset_path is None
    dataset_path = config.dataset_path or bundled_dataset(model_path)
    conf_path, conf_text, settings = _user_conf(config, benchmark, bundled)
    notes.append(f"LoadGen settings from {conf_path}")
    weights = read_weights(model.folder) if model and engine_record(kind.name).computes_here else None
    limit = model.max_positions if model else None
    if (asked_limit := kind.longest_sequence(config)) is not None:
        limit = min(limit or asked_limit, asked_limit)
    # Without a model any ids can be run, but only the byte tokenizer's can be decoded and scored.
    vocab_size = model.vocab_size if model else ByteTokenizer.vocab_size if config.accuracy else None
    dataset = load_dataset(
        dataset_path,
        count=config.total_sample_count,
        vocab_size=vocab_size,
        max_prompt_tokens=limit - sampling.max_tokens if limit else None,
    )
    audit_config = _audit_config(config, benchmark, settings, len(dataset))
    engine, replicas = plan_engine(
        kind,
        config,
        LegFacts(
            scenario=config.scenario,
            sampling=sampling,
            official_model=benchmark.model,
            admission=config.admission,
            longest_prompt_tokens=dataset.longest_prompt,
            lead_tokens=_common_lead(dataset.prompts),
            model_folder=model.folder if model else None,
            parameters=weights.parameters if weights else 0,
            vocab_size=model.vocab_size if model else None,
        ),
    )
    notes[:0] = engine.notes
    reasons = engine.unofficial_reasons + sampling_reasons(sampling, benchmark.sampling[mode])
    reasons += data_reasons(benchmark, config.scenario, mode, len(dataset), dataset.sha256, bundled=bundled)
    if any(SYNTHETIC_MARK in target for target in dataset.targets):
        reasons.append("the data set is synthetic")
    reasons += model_reasons(benchmark.model, model.config, weights) if model else []
    if conf_path == TRIAL_CONF:
        reasons.insert(0, TRIAL_REASON)
    reasons += settings_reasons(settings, benchmark, config.scenario)
    if audit_config is not None:
        reasons.append("an audit configuration changes LoadGen's settings: this leg is an audit, not a result")
    if Path("audit.config").exists() and audit_config is None:
        notes.append("./audit.config is not used: an audit requires --audit-conf")
    notes += (hints := _hints(config, engine.environment))
    if config.mechanism is not None:
        notes += validate(config.mechanism.root, registries_or_error())["issues"]
    check_disk(run_dir.root, log_bytes(len(dataset), config.enable_log_trace), "this leg")
    plan = LegPlan(
        scenario=config.scenario,
        loadgen_scenario=LOADGEN_SCENARIO[config.scenario],
        mode=mode,
        loadgen_key=benchmark.loadgen_key,
        dataset_path=str(Path(dataset_path).resolve()),
        dataset_sha256=dataset.sha256,
        sample_count=len(dataset),
        longest_prompt_tokens=dataset.longest_prompt,
        audit=audit_config is not None,
        enable_log_trace=config.enable_log_trace,
        engine=kind.name,
        model_path=model_path,
        engine_options=engine.options,
        environment=engine.environment,
        sampling=asdict(sampling),
        admission=_admission(config, kind),
        replicas=replicas,
        warmup_prompts=WARMUP_PROMPTS if engine.compiles else WARMUP_PROMPTS_WITHOUT_COMPILING,
        compiles=engine.compiles,
        engine_start_timeout_s=config.engine_start_timeout_s,
        stall_timeout_s=config.stall_timeout_s,
    )
    return PreparedLeg(
        asked=config.model_dump(mode="json", exclude_unset=True),
        plan=plan,
        benchmark=benchmark,
        run_dir=run_dir,
        user_conf=conf_text,
        conf_path=conf_path,
        audit_config=audit_config,
        dataset=dataset,
        model=model,
        weights=weights,
        bundled=bundled,
        unofficial_reasons=reasons,
        notes=notes,
        hints=hints,
    )


def _admission(config: RunConfig, kind: EngineKind[Any]) -> AdmissionPlan | None:
    # Offline has no first tokens, and SingleStream never two queries at a time.
    latency_bound = LOADGEN_SCENARIO[config.scenario] == "Server"
    if config.admission == "off":
        for name in ("admission_tokens", "admission_queries"):
            if getattr(config, name) is not None:
                flag = "--" + name.replace("_", "-")
                raise InputError(f"{flag} has no effect with --admission off", "choose an --admission order")
        return None
    if not latency_bound:
        raise InputError(
            f"--admission {config.admission}: {config.scenario} has no first-token limit", "leave --admission out"
        )
    if config.admission == "priority" and not kind.has_priorities:
        raise InputError(f"--admission priority: engine {kind.name} has no priorities", "choose another order")
    return AdmissionPlan(
        policy=config.admission, prefill_tokens=config.admission_tokens, queries=config.admission_queries
    )


def _engine_kind(config: RunConfig) -> EngineKind[Any]:
    if config.vllm and config.engine != "vllm":
        raise InputError(f"--vllm and --engine {config.engine} contradict each other", "give one of them")
    kind = engine_kind(config.engine)
    refuse_options_of_others(kind, config)
    return kind


def _benchmark(config: RunConfig) -> Benchmark:
    key = config.lg_model_name
    if key is None:
        return default_benchmark(config.scenario)
    benchmark = BENCHMARKS[key]
    # Interactive is LoadGen's Server scenario with the limits of a key of its own.
    if (config.scenario == "Interactive") != ("Interactive" in benchmark.scenarios):
        interactive = submitted_benchmark(benchmark.submission_name, "Interactive")
        raise InputError(
            f"--scenario {config.scenario} with --lg-model-name {key}: {interactive.loadgen_key} is the key of "
            "Interactive alone",
            f"--scenario Interactive --lg-model-name {interactive.loadgen_key}, or another scenario and key",
        )
    return benchmark


def _sampling(config: RunConfig, official: SamplingPolicy) -> SamplingPolicy:
    kinds = {name: type(value) for name, value in asdict(official).items()}
    values: dict[str, Any] = {}
    for name, value in config.sampling_arg.items():
        if name not in kinds:
            raise InputError(f"--sampling-arg {name}: unknown", f"choose from {', '.join(kinds)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or kinds[name](value) != value:
            raise InputError(f"--sampling-arg {name}={value!r}: not a {kinds[name].__name__}", "give a number")
        values[name] = kinds[name](value)
    policy = replace(official, **values)
    if not 1 <= policy.min_tokens <= policy.max_tokens:
        raise InputError(
            f"--sampling-arg: min_tokens {policy.min_tokens} and max_tokens {policy.max_tokens} exclude every output",
            "keep 1 <= min_tokens <= max_tokens",
        )
    if policy.max_tokens < 2 and config.scenario != "Offline":
        raise InputError(
            f"--sampling-arg max_tokens={policy.max_tokens}: in {config.scenario} LoadGen divides by the tokens after "
            "the first one",
            "give max_tokens 2 or more, or --scenario Offline",
        )
    return policy


def _output_dir(config: RunConfig) -> Path:
    if config.output_log_dir is not None:
        return config.output_log_dir
    mode = "accuracy" if config.accuracy else "performance"
    return Path("output") / f"{time.strftime('%Y%m%d-%H%M%S')}-{config.scenario}-{mode}"


def _model(config: RunConfig, kind: EngineKind[Any], say: Any) -> tuple[ModelFacts | None, str]:
    if kind.own_model is not None and config.model_path is None:
        return None, kind.own_model
    facts = model_facts(config.model_path or str(ensure_default_model(_told_once(say))))
    return facts, str(facts.folder)


def _told_once(say: Any) -> Callable[[str], None]:
    """One line for all the steps in which the embedded model is made."""
    steps: list[str] = []

    def step(text: str) -> None:
        if not steps:
            say("making the embedded model (first use only; 93 MB are downloaded)")
        steps.append(text)

    return step


def _default_conf(config: RunConfig, bundled: bool) -> Path:
    if not bundled:
        return HARNESS_ROOT / "user.conf"
    rate_is_needed = LOADGEN_SCENARIO[config.scenario] == "Server" and config.target_qps is None
    return TRIAL_CONF if rate_is_needed else EMBEDDED_CONF


def _user_conf(config: RunConfig, benchmark: Benchmark, bundled: bool) -> tuple[Path, str, tuple[Setting, ...]]:
    path = config.user_conf or _default_conf(config, bundled)
    text = read_conf_text(path, "--user-conf")
    settings = parse_conf(text, path)
    for setting in settings:
        if setting.key == "mode":
            raise InputError(f"{path}:{setting.line}: the mode is chosen by --accuracy", "remove the line")
        if setting.key == "use_token_latencies" and setting.value != "1":
            raise InputError(f"{path}:{setting.line}: this benchmark needs use_token_latencies", "remove the line")
    scenario = LOADGEN_SCENARIO[config.scenario]
    if config.target_qps is not None:
        if scenario == "SingleStream":
            raise InputError(
                "--target-qps has no meaning in SingleStream",
                "leave it out; *.SingleStream.target_latency in the file of --user-conf is the expected latency",
            )
        text = with_setting(
            text, benchmark.loadgen_key, scenario, "target_qps", f"{config.target_qps:.10f}".rstrip("0").rstrip(".")
        )
    return path, text, settings


def _audit_config(
    config: RunConfig, benchmark: Benchmark, user_settings: tuple[Setting, ...], sample_count: int
) -> str | None:
    """The audit configuration's text, if one was asked for; refuses settings that LoadGen would not survive."""
    path = config.audit_conf
    text = None if path is None else read_conf_text(path, "--audit-conf")
    settings = parse_conf(text, path) if path is not None and text is not None else ()
    scenario = LOADGEN_SCENARIO[config.scenario]
    if text is not None and not settings:
        raise InputError(f"--audit-conf {path} sets nothing", "leave it out, or see audit.config")
    own_mode = "1" if config.accuracy else "2"  # LoadGen's TestMode: AccuracyOnly, PerformanceOnly
    for setting in settings:
        if setting.key == "mode" and setting.value != own_mode:
            raise InputError(
                f"{path}:{setting.line}: mode = {setting.value}, and this leg is {own_mode} "
                f"({'accuracy' if config.accuracy else 'performance'})",
                f"write {own_mode}, remove the line, or {'leave out' if config.accuracy else 'add'} --accuracy",
            )
        if setting.model != "*":
            raise InputError(
                f"{path}:{setting.line}: LoadGen reads only model * from an audit configuration",
                f"write *.{setting.scenario}.{setting.key}",
            )
        if setting.key == "use_token_latencies":
            raise InputError(f"{path}:{setting.line}: an audit must not change use_token_latencies", "remove the line")

    def value(key: str) -> str | None:
        return lookup(settings, "*", scenario, key) or lookup(user_settings, benchmark.loadgen_key, scenario, key)

    place = path or config.user_conf  # the files that come with the harness have none of these keys
    index = value("performance_issue_same_index")
    loaded = min(sample_count, benchmark.performance_samples)
    if index is not None and int(index) >= loaded:
        raise SetupError(
            f"{place}: performance_issue_same_index {index} is outside the {loaded} loaded samples; "
            "LoadGen would crash",
            f"use an index from 0 to {loaded - 1}",
        )
    override = value("performance_sample_count_override")
    fewer = value("accuracy_sample_count_override")
    if config.accuracy and fewer is not None and 0 < int(fewer) < sample_count:  # 0 is LoadGen's word for all
        raise SetupError(
            f"{place}: accuracy_sample_count_override {fewer} is below the {sample_count} samples of an accuracy leg, "
            "which scores every one",
            f"remove the line; --total-sample-count {fewer} takes fewer samples",
        )
    unique = value("performance_issue_unique") not in (None, "0")
    if unique and int(override or benchmark.performance_samples) > sample_count:
        raise SetupError(
            f"{place}: performance_issue_unique with {sample_count} of {benchmark.performance_samples} samples",
            f"LoadGen would crash; add `*.*.performance_sample_count_override = {sample_count}`",
        )
    return text


def _common_lead(prompts: list[list[int]]) -> int:
    """How many ids all prompts share at their start (the instruction)."""
    first, last = min(prompts), max(prompts)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)


def _hints(config: RunConfig, environment: dict[str, str]) -> list[str]:
    hints = [
        f"{name}={os.environ[name]} of your environment holds; without it, it would be {value}"
        for name, value in environment.items()
        if os.environ.get(name, value) != value
    ]
    if config.batch_size is not None:
        hints.append(
            f"--batch-size {config.batch_size} is ignored: the engine batches continuously (--engine-arg max_num_seqs)"
        )
    if config.num_workers is not None:
        hints.append(f"--num-workers {config.num_workers} is ignored: one event loop serves all queries")
    if config.engine == ENDPOINT and config.model_path is None:
        hints.append("prompts are tokenised for the embedded model: name the server's model with --model-path")
    return hints


def log_bytes(samples: int, trace: bool) -> int:
    """What a leg's files may take."""
    return samples * (LOG_BYTES_PER_SAMPLE + (TRACE_BYTES_PER_SAMPLE if trace else 0))


def check_disk(path: Path, needed: int, what: str) -> None:
    """Is there room for so many bytes where a directory is to be made? `what` may need them.

    Raises:
        SetupError: there is not, or no directory can be made there.
    """
    existing = next(folder for folder in (path.resolve(), *path.resolve().parents) if folder.exists())
    if not existing.is_dir():
        raise SetupError(f"output directory {path} cannot be written: {existing} is no directory", "name another")
    needed += DISK_RESERVE_BYTES
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise SetupError(
            f"{existing} has {free >> 20} MiB free; {what} may need {needed >> 20} MiB",
            "free disk space or give --output-log-dir a directory on another disk",
        )
