"""The check of a bench's command line, and the plan that follows from it."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qsl.embedded.default_model import default_model_folder
from qsl.model_files import ModelFacts
from qsl.tokenizers import ByteTokenizer
from runs.bench.bench_record import BenchRecord, Limits, read_bench_record
from runs.bench.find_bench import file_name, find_bench, folder_of
from runs.harness import PROGRAM
from runs.machine.environment import vllm_is_cpu_build
from runs.mistakes import Mistakes
from runs.record.layout import BENCH_FILE
from runs.record.official_inputs import model_reasons
from scenarios.bench.bench_plan import Bench, benchmark_of
from scenarios.bench.bench_target import BenchDraft, find_bench_model, set_target
from scenarios.bench.foreign_options import check_foreign
from scenarios.bench.ladder import LoadStep, default_steps
from scenarios.bench.options import BenchOptions
from scenarios.bench.prompts import FilePrompts, PromptLengths, Prompts, Synthetic, read_prompts
from scenarios.checked_options import check_options
from scenarios.launch.run_config import check_config
from sut.engines import DEFAULT, KINDS

MAX_TOKENS = 10**9
LENGTHS: tuple[PromptLengths, PromptLengths] = (
    (1024, 1024),
    (128, 128),
)  # prompt and output tokens, as in `vllm bench serve`
CPU_LENGTHS: tuple[PromptLengths, PromptLengths] = (128, 128), (32, 32)  # for the embedded model without an accelerator
_LOADS = ("rates", "concurrency", "max_concurrency")


def load_bench(
    command: Sequence[str],
    targets: Sequence[str],
    bench_values: Mapping[str, Any],
    runs: Mapping[str, Any],
    foreign_options: Mapping[str, str],
    *,
    say: Callable[[str], None] = print,
) -> Bench:
    """Check the options of a bench and resolve every default.

    Args:
        command: Words of the command line.
        targets: The model or URL, and words that follow --goodput.
        bench_values: Fields of `BenchOptions` as typed.
        runs: Fields of `RunConfig` as typed.
        foreign_options: Options of other programs with their values.
        say: Called with a line before a slow step.

    Raises:
        InputError: If options, files or the server are wrong; the message lists all mistakes and fixes.
    """
    mistakes = Mistakes("bench")
    notes = check_foreign(foreign_options, mistakes)
    typed, like = _with_like(bench_values, mistakes)
    words = [word for word in targets if "goodput" in typed and re.match(r"(ttft|tpot|e2el)[:=]", word)]
    if words:  # `--goodput ttft:500 tpot:50`
        typed["goodput"] = ",".join([typed["goodput"], *words])
    options = check_options(mistakes, BenchOptions, typed, f"see `{PROGRAM} bench --help-all`")
    assert options is not None  # No option is required.
    draft = BenchDraft(options, typed, dict(runs), mistakes, notes, say)
    target = set_target(draft, [word for word in targets if word not in words])
    label, metadata = _label_and_metadata(draft)
    steps = _steps(draft)
    if like is not None and _has_offline(like) and LoadStep("offline") not in steps:
        steps = (LoadStep("offline"), *steps)
    model, tokenizer = find_bench_model(draft)
    label = label or file_name(Path(draft.values.get("api_model_name") or target).name)
    folder = options.output_log_dir or folder_of(label)
    longest = _longest_sequence(draft, model)
    lengths = _lengths(draft, model, longest)
    seed = _seed(draft, folder)
    limits = _limits(draft, model)
    prompts = mistakes.accept(mistakes.attempt(_prompts, draft, tokenizer, model, lengths, seed, longest))
    return Bench(
        options=options,
        label=label,
        target=target,
        command=list(command),
        folder=folder,
        steps=steps or default_steps(options.scenario),
        is_adaptive=not steps,
        limits=limits,
        prompts=prompts,
        output_len=_fix_engine(draft, prompts, lengths[1], longest),
        values=draft.values,
        exact_output=_is_exact(options),
        seed=seed,
        like=like,
        metadata=metadata,
        notes=notes,
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _has_offline(record: BenchRecord) -> bool:
    return any(run.kind == "offline" for run in record.runs)


def _is_exact(options: BenchOptions) -> bool:
    return options.dataset_path is None or options.ignore_eos


def _with_like(typed: Mapping[str, Any], mistakes: Mistakes) -> tuple[dict[str, Any], BenchRecord | None]:
    """Return the options with those of the bench in --like, and this bench."""
    record = mistakes.attempt(find_bench, typed["like"]) if "like" in typed else None
    if record is None:
        return dict(typed), None
    conditions = record.conditions.equal | record.conditions.system
    update = {
        **{name: conditions.get(name) for name in ("scenario", "seed", "limits", "dataset_path")},
        "duration": conditions.get("duration_s"),
        "input_len": conditions.get("input_tokens"),
        "output_len": conditions.get("output_tokens"),
        "ignore_eos": conditions.get("exact_output") or None,
        "rates": ",".join(dict.fromkeys(repr(run.asked_qps) for run in record.runs if run.asked_qps))
        or ("inf" if _has_offline(record) else ""),
        "concurrency": ",".join(dict.fromkeys(str(run.concurrency) for run in record.runs if run.concurrency)),
    }
    for name in sorted(typed.keys() & update.keys()):
        mistakes.add(
            f"{_flag(name)}: not supported with --like {typed['like']}, which sets this option",
            f"remove {_flag(name)}, or --like",
        )
    return {**typed, **{name: str(value) for name, value in update.items() if value not in (None, "")}}, record


def _label_and_metadata(draft: BenchDraft) -> tuple[str | None, dict[str, str]]:
    label, pairs, metadata = draft.options.label, list(draft.options.metadata), {}
    if label is not None and "=" in label:  # guidellm's --label takes KEY=VALUE metadata
        pairs, label = [*pairs, label], None
    for text in pairs:
        key, equals, value = text.partition("=")
        if not equals or not key:
            example = "write, for example, --metadata team=search"
            draft.mistakes.add(f"--metadata {text}: not of the form KEY=VALUE", example)
        metadata[key] = value
    if label is not None and not file_name(label):
        draft.mistakes.add(f"--label {label!r}: no letter or digit", "write, for example, --label bf16")
    return label, metadata


def _steps(draft: BenchDraft) -> tuple[LoadStep, ...]:
    """Return the requested loads; none if the loads of the scenario apply."""
    options, mistakes = draft.options, draft.mistakes
    rates, open_queries, most = (getattr(options, name) or () for name in _LOADS)
    typed = {name: f"{_flag(name)} {draft.typed[name]}" for name in _LOADS if name in draft.typed}
    if "concurrency" in typed and len(typed) > 1:
        fix = "give one list; --max-concurrency 32 with --rates bounds the open queries at each rate"
        mistakes.add(f"{' with '.join(typed.values())}: exclude each other", fix)
    if options.scenario == "Offline" and any(step.kind == "server" for step in rates):
        mistakes.add(f"{typed['rates']} with --scenario Offline: Offline has no rates", "give --scenario Server")
    if most and "rates" in typed:
        if len(most) > 1:
            mistakes.add(f"{typed['max_concurrency']} with {typed['rates']}: must be one number", "give one number")
        draft.values.update(admission_queries=most[0].concurrency, admission_tokens=MAX_TOKENS)
        draft.values.setdefault("admission", "fcfs")
        draft.notes.append(
            f"{typed['max_concurrency']}: queries above this number wait, and their latency includes the wait"
        )
        most = ()
    return rates or open_queries or most or ((LoadStep("offline"),) if options.scenario == "Offline" else ())


def _lengths(draft: BenchDraft, model: ModelFacts | None, longest: int | None) -> tuple[PromptLengths, PromptLengths]:
    options, default = draft.options, LENGTHS
    requested = options.input_len, options.output_len
    if (_is_embedded(model) and vllm_is_cpu_build()) if model is not None else "api_server" not in draft.values:
        default = CPU_LENGTHS
        if None in requested and options.dataset_path is None:
            draft.notes.append(
                f"{default[0][0]} prompt and {default[1][0]} output tokens, because no accelerator is used"
            )
    if requested == (None, None) and longest is not None and 2 < longest < default[0][0] + default[1][0]:
        default = (longest * 8 // 9,) * 2, (max(2, longest // 9),) * 2  # ratio of LENGTHS, in the model's context
    spread = options.random_range_ratio

    def spread_out(low: int, high: int) -> PromptLengths:
        return (max(2, int(low * (1 - spread))), int(high * (1 + spread))) if spread and low == high else (low, high)

    return spread_out(*(requested[0] or default[0])), spread_out(*(requested[1] or default[1]))


def _seed(draft: BenchDraft, folder: Path) -> int:
    if draft.options.seed is not None:
        return draft.options.seed
    if (folder / BENCH_FILE).is_file():
        with draft.mistakes.collected():
            return int(read_bench_record(folder / BENCH_FILE).conditions.system.get("seed") or 0)
    # A server may still have the prompts of an earlier bench in its prefix cache.
    return int(time.time()) if draft.values.get("api_server") else 0


def _longest_sequence(draft: BenchDraft, model: ModelFacts | None) -> int | None:
    """Check the fields of a run; return the maximum number of prompt and output tokens, if a maximum applies."""
    limits = [model.max_positions] if model else []
    for name in sorted({"min_tokens", "max_tokens"} & draft.values.get("sampling_arg", {}).keys()):
        draft.mistakes.add(f"--sampling-arg {name}: the bench sets this parameter", "give --output-len N")
    config = check_config(draft.mistakes, {**draft.values, "scenario": draft.options.scenario})
    most = None if config is None else draft.mistakes.attempt(KINDS[config.engine].longest_sequence, config)
    if most is not None:
        limits.append(most)
    return min(limits, default=None)


def _prompts(
    draft: BenchDraft,
    tokenizer: str,
    model: ModelFacts | None,
    lengths: tuple[PromptLengths, PromptLengths],
    seed: int,
    longest: int | None,
) -> Prompts | None:
    options, mistakes, (inputs, outputs) = draft.options, draft.mistakes, lengths
    name, path = options.dataset_name, options.dataset_path
    if name in ("custom", "sharegpt") and path is None:
        mistakes.add(f"--dataset-name {name}: no file", "give --dataset-path FILE")
    if path is None:
        if longest is not None and inputs[1] + outputs[1] > longest:
            mistakes.add(
                f"--input-len {inputs[1]} with --output-len {outputs[1]}: the model supports at most {longest:,} "
                "tokens",
                f"give --input-len {max(1, longest - outputs[1])}, or fewer output tokens",
            )
        return Synthetic(tokenizer, inputs, outputs, seed) if tokenizer else None
    for option in ("input_len", "random_range_ratio"):
        if option in draft.typed:
            fix = f"remove {_flag(option)}"
            mistakes.add(f"{_flag(option)} with --dataset-path: the file decides the lengths of the prompts", fix)
    if name == "random":
        mistakes.add(f"--dataset-name random with --dataset-path {path}: exclude each other", "remove one of these")
    if outputs[0] != outputs[1] and "output_len" in draft.typed:
        mistakes.add(
            f"--output-len {draft.typed['output_len']} with --dataset-path: must be one number", "give a number"
        )
    if not tokenizer:
        return None
    kind = None if name == "random" else name
    vocab_size = model.vocab_size if model else ByteTokenizer.vocab_size
    return read_prompts(
        path, kind, tokenizer, outputs[1], exact=_is_exact(options), vocab_size=vocab_size, longest=longest
    )


def _limits(draft: BenchDraft, model: ModelFacts | None) -> Limits | None:
    options = draft.options
    sources = {
        "limits": options.limits,
        "goodput": options.goodput,
        "ttft_sla_ms": Limits(ttft=options.ttft_sla_ms),
        "tpot_sla_ms": Limits(tpot=options.tpot_sla_ms),
    }
    limits_ms: dict[str, float] = {}
    for source, limits in sources.items():
        values = limits.model_dump(exclude_none=True) if limits is not None else {}
        for name in sorted(values.keys() & limits_ms.keys()):
            draft.mistakes.add(f"{_flag(source)}: the limit of {name} is given twice", f"remove {_flag(source)}")
        limits_ms |= values
    if limits_ms or options.limits is not None:
        return Limits(**limits_ms) if limits_ms else None
    benchmark = benchmark_of(draft.values, options.scenario)
    if options.scenario == "Offline" or benchmark.limits is None:
        return None
    # The embedded model stands in for the benchmark's model, and so does the dummy engine.
    is_unknown = model is None and "api_server" in draft.values
    if not is_unknown and (model is None or _is_embedded(model) or not model_reasons(benchmark.model, model.config)):
        return Limits(ttft=benchmark.limits.ttft_ms, tpot=benchmark.limits.tpot_ms)
    draft.notes.append(
        "no limits for this model: the best rate is the highest unsaturated rate; give --limits ttft=2000,tpot=100"
    )
    return None


def _fix_engine(draft: BenchDraft, prompts: Prompts, output_len: PromptLengths, longest: int | None) -> PromptLengths:
    """Set the sampling, and a maximum of tokens that all runs share; return the output lengths."""
    options, values, is_exact = draft.options, draft.values, _is_exact(draft.options)
    if isinstance(prompts, FilePrompts):
        outputs = [prompts.output_of(row) for row in prompts.content]
        output_len = min(outputs) if is_exact else 2, max(outputs)
    if not isinstance(prompts, FilePrompts) or prompts.kind != "benchmark" or options.output_len or is_exact:
        engine_values = {"min_tokens": output_len[0], "max_tokens": output_len[1]}
        values["sampling_arg"] = values.get("sampling_arg", {}) | engine_values
    needed = prompts.longest + output_len[1]
    if "api_server" not in values and values.get("engine", DEFAULT) == DEFAULT:
        values["engine_arg"] = {"max_model_len": min(needed, longest or needed)} | values.get("engine_arg", {})
    return output_len


def _is_embedded(model: ModelFacts) -> bool:
    return model.folder == default_model_folder()
