"""The plan of a run: all checks of the options, the model and the dataset before the run starts."""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compliance.techniques.declaration import MAX_RESULTS_BYTES, QUALITY_RESULTS
from qsl.dataset import SYNTHETIC_MARK, Dataset, load_dataset
from qsl.embedded.articles import bundled_dataset
from qsl.embedded.default_model import ensure_default_model
from qsl.model_files import ModelFacts
from qsl.tokenizers import BYTES, ByteTokenizer
from qsl.weights import read_weights
from runs.attestation.signing_key import load_signer
from runs.benchmark import Benchmark
from runs.errors import SetupError
from runs.files.reading import read_whole
from runs.mistakes import Mistakes
from runs.record.layout import RunDir
from runs.record.manifest import ReplicasPlan, RunPlan
from runs.record.observed import Weights
from runs.record.official_inputs import dataset_reasons, model_reasons
from runs.wording import counted
from scenarios.launch.loadgen_conf import read_conf
from scenarios.launch.machine_checks import check_installed, check_model, required
from scenarios.launch.planned_engine import plan_engine
from scenarios.launch.resolved_options import ResolvedOptions, resolve_options
from scenarios.launch.run_config import RunConfig
from sut.engine_kind import EngineKind, EnginePlan, RunFacts

if TYPE_CHECKING:
    from compliance.judge.verdict import Finding

WARMUP_PROMPTS = 16
WARMUP_PROMPTS_WITHOUT_COMPILING = 4
DISK_RESERVE_BYTES = 64 << 20
TRIAL_REASON = "trial run: its load depends on the engine's speed, and its limits differ from the official limits"
LOG_BYTES_PER_SAMPLE = 1_500
TRACE_BYTES_PER_SAMPLE = 2_500
Say = Callable[[str], None]


@dataclass
class PreparedRun:
    """A checked run: its plan, its LoadGen configuration, and the facts that the parent needs later."""

    asked: dict[str, Any]  # options that the user gave
    plan: RunPlan
    benchmark: Benchmark
    run_dir: RunDir
    conf_path: Path  # path of the user.conf that the user chose
    user_conf: str  # content of user.conf; in a trial, without the settings that the trial measures
    audit_config: str | None
    dataset: Dataset
    model: ModelFacts | None
    weights: Weights | None  # weights of the model; None without local files, as with a server
    bundled: bool  # True if the dataset is the bundled articles
    unofficial_reasons: list[str]
    notes: list[str]  # resolved defaults, for the manifest and --verbose
    hints: list[str]  # ignored or overridden options, and unregistered techniques; always shown
    quality_results: bytes | None  # results file of the declared quality evaluation

    @property
    def is_trial(self) -> bool:
        """True if the speed of the engine during the warm-up decides the load (scenarios/launch/trial.py)."""
        return self.plan.trial


def prepare(
    config: RunConfig,
    say: Say = print,
    kind: EngineKind[Any] | None = None,
    *,
    rate_follows: bool = False,
    cores_taken: Callable[[], int] = lambda: 0,
    rows: Sequence[int] | None = None,
) -> PreparedRun:
    """Check a configuration and resolve every default.

    Args:
        say: Called with a line before a slow step (creating the embedded model).
        kind: Kind of the engine; None = the kind in `config`.
        rate_follows: True if the caller sets the rate of each run later.
        cores_taken: Returns the number of cores that other programs use. Only a trial asks, because the number of
            threads of other runs must not depend on it.
        rows: Rows of the dataset that LoadGen can load. The engine is planned for all rows. Default: all rows.

    Raises:
        InputError, SetupError: If the run cannot start.
    """
    if config.signing_key is not None:
        load_signer(config.signing_key)
    mistakes = Mistakes()
    resolved = resolve_options(config, kind, mistakes)
    if not mistakes:
        check_installed(vllm=resolved.kind.uses_vllm and config.cluster is None)
    inputs = _inputs(resolved, say, mistakes)
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{config.scenario}-{resolved.mode}"
    run_dir = RunDir(config.output_log_dir or Path("output") / name)
    samples = inputs if rows is None else replace(inputs, dataset=inputs.dataset.select(rows))
    conf = read_conf(resolved, len(samples.dataset), rate_follows=rate_follows)
    facts = _run_facts(inputs, cores_taken() if conf.trial else 0)
    engine, replicas = plan_engine(resolved, facts)
    inputs = samples  # The engine was planned for all rows.
    plan = _run_plan(inputs, engine, replicas, rows, audit=conf.audit_config is not None, trial=conf.trial)
    resolved.kind.check_ready(config)
    declared = _declaration_findings(config)
    hints = [*engine.hints, *_hints(config, resolved.kind, engine.environment), *conf.notes]
    hints += [finding.sentence for finding in declared if finding.violated]
    notes = [*engine.notes, f"LoadGen settings from {conf.path}", *hints]
    if Path("audit.config").exists() and conf.audit_config is None:
        notes.append("./audit.config is ignored; use it with --audit-conf audit.config")
    notes += [finding.sentence for finding in declared if not finding.violated]
    results = config.mechanism and config.mechanism.root.get(QUALITY_RESULTS)
    fix = "give the results of the quality evaluation as quality_results, or remove it"
    check_disk(run_dir.root, log_bytes(len(inputs.dataset), config.enable_log_trace), "this run")
    return PreparedRun(
        asked=config.model_dump(mode="json", exclude_unset=True),
        plan=plan,
        benchmark=resolved.benchmark,
        run_dir=run_dir,
        conf_path=conf.path,
        user_conf=conf.user_conf,
        audit_config=conf.audit_config,
        dataset=inputs.dataset,
        model=inputs.model,
        weights=inputs.weights,
        bundled=config.dataset_path is None,
        unofficial_reasons=[*_unofficial(inputs, plan, engine), *conf.unofficial_reasons],
        notes=notes,
        hints=hints,
        quality_results=read_whole(Path(results), fix, max_bytes=MAX_RESULTS_BYTES) if results else None,
    )


@dataclass(frozen=True)
class _Inputs:
    """The options, model and dataset of a run."""

    resolved: ResolvedOptions
    model: ModelFacts | None
    model_path: str
    weights: Weights | None
    dataset_path: Path
    dataset: Dataset


def _inputs(resolved: ResolvedOptions, say: Say, mistakes: Mistakes) -> _Inputs:
    config = resolved.config
    if config.model_path is None:
        mistakes.refuse()  # before the embedded model is created
    model, model_path = mistakes.attempt(_model, resolved, say) or (None, "")
    dataset_path = config.dataset_path
    if dataset_path is None:
        mistakes.refuse()
        dataset_path = bundled_dataset(model_path)
    dataset = mistakes.accept(mistakes.attempt(_dataset, resolved, dataset_path, model))
    return _Inputs(
        resolved=resolved,
        model=model,
        model_path=model_path,
        weights=read_weights(model.folder) if model and resolved.kind.record.computes_here else None,
        dataset_path=dataset_path,
        dataset=dataset,
    )


def _dataset(resolved: ResolvedOptions, path: Path, model: ModelFacts | None) -> Dataset:
    config = resolved.config
    limits = [limit for limit in (model and model.max_positions, resolved.kind.longest_sequence(config)) if limit]
    with required("machine/data-set"):
        return load_dataset(
            path,
            count=config.total_sample_count,
            # Without a model, only the token IDs of the byte tokenizer can be decoded and scored.
            vocab_size=model.vocab_size if model else ByteTokenizer.vocab_size if config.accuracy else None,
            max_prompt_tokens=min(limits) - resolved.sampling.max_tokens if limits else None,
        )


def _run_facts(inputs: _Inputs, cores_taken: int) -> RunFacts:
    resolved = inputs.resolved
    return RunFacts(
        scenario=resolved.config.scenario,
        sampling=resolved.sampling,
        official_model=resolved.benchmark.model,
        admission=resolved.config.admission,
        longest_prompt_tokens=inputs.dataset.longest_prompt,
        lead_tokens=_common_lead(inputs.dataset.prompts),
        model_folder=inputs.model.folder if inputs.model else None,
        parameters=inputs.weights.parameters if inputs.weights else 0,
        precision=inputs.weights.precision if inputs.weights else "",
        quantization=inputs.model.quantization if inputs.model else {},
        vocab_size=inputs.model.vocab_size if inputs.model else None,
        light=resolved.config.is_light,
        cores_taken=cores_taken,
    )


def _run_plan(
    inputs: _Inputs,
    engine: EnginePlan,
    replicas: ReplicasPlan | None,
    rows: Sequence[int] | None,
    *,
    audit: bool,
    trial: bool,
) -> RunPlan:
    resolved, config, dataset = inputs.resolved, inputs.resolved.config, inputs.dataset
    return RunPlan(
        scenario=config.scenario,
        loadgen_scenario=resolved.loadgen_scenario,
        mode=resolved.mode,
        loadgen_key=resolved.benchmark.loadgen_key,
        dataset_path=str(inputs.dataset_path.resolve()),
        dataset_sha256=dataset.sha256,
        sample_count=len(dataset),
        rows=None if rows is None else list(rows),
        longest_prompt_tokens=dataset.longest_prompt,
        audit=audit,
        enable_log_trace=config.enable_log_trace,
        engine=resolved.kind.name,
        model_path=inputs.model_path,
        engine_options=engine.options,
        environment=engine.environment,
        sampling=resolved.sampling,
        admission=resolved.admission,
        concurrency=config.concurrency,
        replicas=replicas,
        warmup_prompts=WARMUP_PROMPTS if engine.compiles else WARMUP_PROMPTS_WITHOUT_COMPILING,
        compiles=engine.compiles,
        trial=trial,
        engine_start_timeout_s=config.engine_start_timeout_s,
        stall_timeout_s=max(config.stall_timeout_s, resolved.kind.longest_response_s(config)),
    )


def _unofficial(inputs: _Inputs, plan: RunPlan, engine: EnginePlan) -> list[str]:
    """Return the reasons why a run is not eligible for submission, except the reasons in its user.conf."""
    benchmark, model = inputs.resolved.benchmark, inputs.model
    reasons = [TRIAL_REASON] if plan.trial else []
    reasons += engine.unofficial_reasons
    if plan.concurrency is not None:
        reasons.append(f"closed loop: the harness keeps at most {plan.concurrency} queries open (--concurrency)")
    official = benchmark.sampling[plan.mode].model_dump()
    differs = [f"{name} {value}, not {official[name]}" for name, value in plan.sampling if value != official[name]]
    if differs:
        reasons.append(f"sampling differs from the benchmark: {'; '.join(differs)}")
    reasons += data_reasons(benchmark, plan, bundled=inputs.resolved.config.dataset_path is None)
    if any(SYNTHETIC_MARK in target for target in inputs.dataset.targets):
        reasons.append("the dataset is synthetic")
    if inputs.dataset.output_lengths is not None:
        reasons.append("the dataset limits the output tokens of each row")
    return reasons + (model_reasons(benchmark.model, model.config, inputs.weights) if model else [])


def data_reasons(benchmark: Benchmark, plan: RunPlan, *, bundled: bool) -> list[str]:
    """Return the reasons why a run with this dataset, scenario and benchmark is not eligible for submission."""
    needed = benchmark.samples(plan.mode)
    if bundled:
        reasons = [f"the run uses the bundled articles instead of {benchmark.data_set}"]
    elif plan.sample_count != needed:
        reasons = [f"{counted(plan.sample_count, 'sample')} instead of the {needed:,} of {benchmark.submission_name}"]
    else:
        reasons = dataset_reasons(benchmark, plan.dataset_sha256)
    if plan.scenario not in benchmark.scenarios:
        reasons.append(f"{benchmark.submission_name} has no {plan.scenario} scenario in a submission")
    return reasons


def _model(resolved: ResolvedOptions, say: Say) -> tuple[ModelFacts | None, str]:
    config, kind = resolved.config, resolved.kind
    if kind.own_model is not None and config.model_path is None:
        return None, kind.own_model
    if config.model_path == BYTES and kind.may_lack_model:
        return None, BYTES
    steps: list[str] = []

    def say_once(step: str) -> None:
        if not steps:
            say("creating the embedded model (first use only; download of 93 MB)")
        steps.append(step)

    parts = set(kind.reads(config))
    if config.accuracy:
        parts.add("tokenizer")  # for decoding responses
    facts = check_model(config.model_path or str(ensure_default_model(say_once)), parts)
    return facts, str(facts.folder)


def _common_lead(prompts: list[list[int]]) -> int:
    """Return the number of token IDs at the start of all prompts that are equal (the instruction)."""
    first, last = min(prompts), max(prompts)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)


def _hints(config: RunConfig, kind: EngineKind[Any], environment: dict[str, str]) -> list[str]:
    hints = [
        f"environment variable {name}={os.environ[name]} overrides the harness default {value}"
        for name, value in environment.items()
        if os.environ.get(name, value) != value
    ]
    if config.batch_size is not None:
        hints.append(
            f"--batch-size {config.batch_size} is ignored; the engine batches continuously (--engine-arg max_num_seqs)"
        )
    if config.num_workers is not None:
        hints.append(f"--num-workers {config.num_workers} is ignored; one event loop serves all queries")
    if kind.record.is_server and config.model_path is None:
        hints.append("prompts are tokenized for the embedded model; give the server's model with --model-path")
    return hints


def _declaration_findings(config: RunConfig) -> "list[Finding]":
    """Compare the declared technique with the registries."""
    if config.mechanism is None:
        return []
    from compliance.techniques.declaration_rules import check_declaration
    from compliance.techniques.technique_registry import registries_or_error

    return list(check_declaration(config.mechanism.root, registries_or_error()))


def log_bytes(samples: int, trace: bool) -> int:
    """Return the maximum size of a run's files in bytes."""
    return samples * (LOG_BYTES_PER_SAMPLE + (TRACE_BYTES_PER_SAMPLE if trace else 0))


def check_disk(path: Path, needed: int, what: str) -> None:
    """Check that a directory can be created, with enough free space for `what`.

    Raises:
        SetupError: If it cannot be created, or the free space is too small.
    """
    existing = next(folder for folder in (path.resolve(), *path.resolve().parents) if folder.exists())
    if not existing.is_dir():
        raise SetupError(f"{path} cannot be created: {existing} is a file", "give another --output-log-dir")
    needed += DISK_RESERVE_BYTES
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise SetupError(
            f"{existing} has {free >> 20} MiB free; {what} may need {needed >> 20} MiB",
            "free disk space, or give an --output-log-dir on another disk",
        )
