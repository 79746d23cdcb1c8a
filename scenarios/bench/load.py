"""The check of a bench's command line, and the plan that follows from it."""

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qsl.embedded.default_model import DEFAULT_MODEL_NAME, default_model_folder, ensure_default_model
from qsl.model_files import ModelFacts, facts_of, find_model
from qsl.tokenizers import ByteTokenizer
from runs.bench.bench_record import BENCH_FILE, BenchRecord, Limits, read_bench
from runs.benchmark import Scenario
from runs.machine.environment import vllm_is_cpu_build
from runs.record.official_inputs import model_reasons
from scenarios.bench import mistakes as parse
from scenarios.bench.ladder import MAX_RUNS, Step, default_steps
from scenarios.bench.mistakes import Mistakes
from scenarios.bench.options import (
    DATA_NAMES,
    IGNORED,
    REFUSED,
    Bench,
    BenchOptions,
    benchmark_of,
    file_name,
    find_bench,
)
from scenarios.bench.prompts import FilePrompts, Lengths, Prompts, Synthetic, read_prompts
from scenarios.run.config import make_config
from sut.endpoint.address import Access, addresses
from sut.endpoint.server import read_card
from sut.engines import DEFAULT, KINDS

DURATION_S = 60.0
MAX_TOKENS = 10**9
LENGTHS: tuple[Lengths, Lengths] = (1024, 1024), (128, 128)  # prompt and output tokens, as in `vllm bench serve`
CPU_LENGTHS: tuple[Lengths, Lengths] = (128, 128), (32, 32)  # for the embedded model without an accelerator
# Path of a URL, or backend of another program → dialect.
DIALECT_OF = {"/v1/chat/completions": "openai-chat", "/v1/completions": "openai"}
DIALECT_OF |= {"chat": "openai-chat", "completions": "openai"}
KEY_VARIABLE = "OPENAI_API_KEY"
_LOADS = ("rates", "concurrency", "max_concurrency")
# Option → function that parses its text, and an example.
_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "scenario": (parse.scenario, "Server, Interactive or Offline"),
    "rates": (parse.rates, "5,10,20 or 25%,50%"),
    "concurrency": (parse.concurrency, "1,8,32"),
    "max_concurrency": (parse.concurrency, "32"),
    **dict.fromkeys(("limits", "goodput"), (parse.limits, "ttft=2000,tpot=100")),
    **dict.fromkeys(("ttft_sla_ms", "tpot_sla_ms"), (parse.number, "500")),
    "duration": (parse.seconds, "60s"),
    "input_len": (parse.lengths, "1024"),
    "output_len": (parse.outputs, "128"),
    "random_range_ratio": (parse.ratio, "0.5"),
    **dict.fromkeys(("queries", "repeats", "max_runs", "port"), (parse.count, "3")),
    "seed": (parse.seed, "1"),
}


def _is_embedded(model: ModelFacts) -> bool:
    return model.folder == default_model_folder()


def load_bench(
    command: Sequence[str],
    targets: Sequence[str],
    own: Mapping[str, Any],
    runs: Mapping[str, Any],
    others: Mapping[str, str],
    *,
    say: Callable[[str], None] = print,
) -> Bench:
    """Check the options of a bench and resolve every default.

    Args:
        command: Words of the command line.
        targets: The model or URL, and words that follow --goodput.
        own: Fields of `BenchOptions`.
        runs: Fields of `RunConfig`.
        others: Options in `REFUSED` and `IGNORED` with their values.
        say: Called with a line before a slow step.

    Raises:
        InputError: If options, files or the server are wrong; the message lists all mistakes and fixes.
    """
    return _Loader(BenchOptions.model_validate(own), dict(runs), say).load(list(command), targets, others)


class _Loader:
    """The check of one command line, which collects its mistakes."""

    def __init__(self, options: BenchOptions, values: dict[str, Any], say: Callable[[str], None]) -> None:
        self.options, self.values, self.say = options, values, say
        self.mistakes = Mistakes()
        self.notes: list[str] = []

    def load(self, command: list[str], targets: Sequence[str], others: Mapping[str, str]) -> Bench:
        mistakes, add = self.mistakes, self.mistakes.add
        for name, value in others.items():
            flag = "--" + name.replace("_", "-")
            if name in REFUSED:
                add(f"{flag} {value}: not an option of bench", REFUSED[name])
            else:
                self.notes.append(f"{flag} is ignored; {IGNORED[name]}")
        words = [word for word in targets if self.options.goodput and re.match(r"\w+[:=][\d.]+$", word)]
        goodput = ",".join([self.options.goodput, *words]) if self.options.goodput else None
        self.options = self.options.model_copy(update={"goodput": goodput})
        like = self._like()
        options = self.options
        given = {name: self._parsed(name) for name in _PARSERS}
        scenario: Scenario = given["scenario"] or "Server"
        target = self._target([word for word in targets if word not in words], given["port"])
        label, metadata = self._label_and_metadata()
        steps = self._steps(given, scenario)
        model, tokenizer = self._model()
        label = label or file_name(Path(self.values.get("api_model_name") or target).name)
        folder = Path(options.output_log_dir or Path("output") / f"bench-{file_name(label)}")
        input_len, output_len = self._lengths(given, model)
        exact = options.dataset_path is None or bool(options.ignore_eos)
        seed = self._seed(given["seed"], folder)
        limit = self._longest(scenario, model)
        prompts: Prompts | None = None
        if tokenizer:
            with mistakes.collected():
                prompts = self._prompts(tokenizer, model, (input_len, output_len), seed, limit)
        if options.reset_cache and self.values.get("api_server"):
            add("--reset-cache: a server's cache cannot be reset", "remove --reset-cache; each run has new prompts")
        limits = self._limits(given, scenario, model)
        mistakes.refuse()
        assert prompts is not None
        output_len = self._fix_engine(prompts, output_len, limit, exact=exact)
        return Bench(
            label=label,
            target=target,
            command=command,
            folder=folder,
            values=self.values,
            scenario=scenario,
            steps=steps or default_steps(scenario),
            is_adaptive=not steps,
            limits=limits,
            prompts=prompts,
            duration_s=given["duration"] or DURATION_S,
            is_duration_given=given["duration"] is not None,
            queries=given["queries"],
            output_len=output_len,
            exact_output=exact,
            repeats=given["repeats"] or 1,
            max_runs=given["max_runs"] or MAX_RUNS,
            seed=seed,
            dataset_path=Path(options.dataset_path).resolve() if options.dataset_path else None,
            like=like,
            metadata=metadata,
            save_result=bool(options.save_result),
            result_filename=options.result_filename,
            notes=self.notes,
        )

    def _parsed(self, name: str) -> Any:
        text, (how, example) = getattr(self.options, name), _PARSERS[name]
        flag = "--" + name.replace("_", "-")
        try:
            return None if text is None else how(text)
        except ValueError as error:
            self.mistakes.add(f"{flag} {text}: {error}", f"write, for example, {flag} {example}")
            return None

    def _like(self) -> BenchRecord | None:
        """Replace options by those of the bench in --like."""
        if self.options.like is None:
            return None
        with self.mistakes.collected():
            record = find_bench(self.options.like)
            known = record.conditions.equal | record.conditions.system
            update = {
                "scenario": known.get("scenario"), "seed": known.get("seed"), "limits": known.get("limits"),
                "dataset_path": known.get("dataset_path"), "duration": known.get("duration_s"),
                "output_len": known.get("output_tokens"), "input_len": known.get("input_tokens"),
                "rates": ",".join(dict.fromkeys(repr(run.asked_qps) for run in record.runs if run.asked_qps)),
                "concurrency": ",".join(dict.fromkeys(str(run.concurrency) for run in record.runs if run.concurrency)),
            }  # fmt: skip
            for name in sorted(self.options.model_fields_set & update.keys()):
                flag = "--" + name.replace("_", "-")
                self.mistakes.add(f"{flag}: --like {self.options.like} decides it", f"remove {flag}, or --like")
            texts = {name: str(value) for name, value in update.items() if value not in (None, "")}
            self.options = self.options.model_copy(update=texts)
            return record
        return None

    def _target(self, words: Sequence[str], port: int | None) -> str:
        """Move the model or URL to the fields of a run; return it."""
        options, values = self.options, self.values
        if options.endpoint is not None and not options.endpoint.startswith("http"):
            dialect = DIALECT_OF.get("/" + options.endpoint.strip("/"))
            if dialect is None:
                paths = " or ".join(path for path in DIALECT_OF if "/" in path)
                self.mistakes.add(
                    f"--endpoint {options.endpoint}: unknown path", f"give {paths}, or --api-dialect NAME"
                )
            values.setdefault("api_dialect", dialect)
        elif options.endpoint is not None:
            words = [*words, options.endpoint]
        if options.host is not None or options.port is not None:
            host = (options.host or "localhost").removeprefix("http://")
            words = [*words, f"http://{host}:{port or 8000}"]
        urls = [
            word for word in (*words, values.get("api_server")) if word and word.startswith(("http://", "https://"))
        ]
        models = [word for word in words if word not in urls] + [values[n] for n in ("model_path",) if n in values]
        models += [options.model] if options.model else []
        for found, what in ((urls, "servers"), (models, "models")):
            if len(set(found)) > 1:
                self.mistakes.add(f"{', '.join(found)}: {len(found)} {what} given", "give one MODEL or URL")
        if models:
            values["model_path"] = models[0]
        backend = options.backend
        if urls:
            values["api_server"] = urls[0]
            for path, dialect in DIALECT_OF.items():
                if path.startswith("/") and urls[0].rstrip("/").endswith(path):
                    values["api_server"] = urls[0].rstrip("/").removesuffix(path)
                    values.setdefault("api_dialect", dialect)
            if backend is not None:
                values.setdefault("api_dialect", DIALECT_OF.get(backend, backend))
            if options.model is not None:
                values.setdefault("api_model_name", options.model)
            if os.environ.get(KEY_VARIABLE) and "api_key_env" not in values:
                values["api_key_env"] = KEY_VARIABLE
                self.notes.append(f"the key is that of {KEY_VARIABLE}")
        elif backend is not None and backend not in KINDS:
            self.mistakes.add(f"--backend {backend}: there is no server", "give the server's URL")
        elif backend is not None:
            values.setdefault("engine", backend)
        if options.tokenizer is not None:
            values["model_path"] = options.tokenizer if urls else values.get("model_path", options.tokenizer)
        return str(values.get("api_server") or values.get("model_path") or DEFAULT_MODEL_NAME)

    def _label_and_metadata(self) -> tuple[str | None, dict[str, str]]:
        label, metadata = self.options.label, {}
        pairs = list(self.options.metadata)
        if label is not None and "=" in label:  # guidellm's --label is metadata
            pairs, label = [*pairs, label], None
        for text in pairs:
            key, equals, value = text.partition("=")
            if not equals or not key:
                self.mistakes.add(f"--metadata {text}: not of the form KEY=VALUE", "write, for example, team=search")
            metadata[key] = value
        if label is not None and not file_name(label):
            self.mistakes.add(f"--label {label!r}: no letter or digit", "write, for example, --label bf16")
        for name in ("output_log_dir", "result_filename"):
            if getattr(self.options, name) == "":
                self.mistakes.add(f"--{name.replace('_', '-')}: empty value", "check for an unset shell variable")
        return label, metadata

    def _steps(self, given: dict[str, Any], scenario: Scenario) -> tuple[Step, ...]:
        """Return the given loads; none for those of the scenario."""
        steps, open_queries, most = given["rates"] or (), given["concurrency"] or (), given["max_concurrency"] or ()
        flags = {name: f"--{name.replace('_', '-')} {getattr(self.options, name)}" for name in _LOADS}
        if self.options.rates is not None and self.options.concurrency is not None:
            fix = "remove one of the two; --max-concurrency 32 bounds the open queries at each rate"
            self.mistakes.add(f"{flags['rates']} with {flags['concurrency']}: exclude each other", fix)
        if most and self.options.concurrency is not None:
            self.mistakes.add(
                f"{flags['max_concurrency']} with {flags['concurrency']}: two lists", "give one of the two"
            )
        if scenario == "Offline" and any(step.kind == "server" for step in steps):
            self.mistakes.add(
                f"{flags['rates']} with --scenario Offline: Offline has no rate", "give --scenario Server"
            )
        if most and self.options.rates is not None:
            if len(most) > 1:
                self.mistakes.add(f"{flags['max_concurrency']} with {flags['rates']}: must be one number", "give one")
            self.values["admission_queries"] = most[0].concurrency
            self.values.setdefault("admission", "fcfs")
            self.values.setdefault("admission_tokens", MAX_TOKENS)  # only the number of queries is bounded
            self.notes.append(
                f"{flags['max_concurrency']}: at most so many queries are open; the others wait, and the wait counts "
                "in their latency"
            )
            most = ()
        return steps or open_queries or most or ((Step("offline"),) if scenario == "Offline" else ())

    def _model(self) -> tuple[ModelFacts | None, str]:
        """Return the model's facts, and its tokenizer; an empty text after a mistake."""
        values = self.values
        with self.mistakes.collected():
            if values.get("api_server") and not values.get("serve"):
                with_key = Access.from_environment(values.get("api_key_env"), values.get("api_ca"))
                server = addresses(values["api_server"])[0]
                card = asyncio.run(read_card(server, with_key, values.get("api_model_name")))
                values["api_model_name"] = card.id
                if "model_path" not in values:
                    names = [name for name in (card.root, card.id) if name]
                    local = next((name for name in names if Path(name).is_dir()), None)
                    if local is None and not any(DEFAULT_MODEL_NAME in name for name in names):
                        self.mistakes.add(
                            f"{values['api_server']}: the files of model {card.id} are unknown",
                            "give --tokenizer with the folder or hub ID of the model",
                        )
                        return None, ""
                    if local is not None:
                        values["model_path"] = local
            engine = values.get("engine")
            if "model_path" not in values and engine in KINDS and KINDS[engine].own_model is not None:
                return None, str(KINDS[engine].own_model)
            folder, revision = find_model(values.get("model_path") or str(ensure_default_model(self.say)))
            return facts_of(str(folder), folder, revision), self.options.tokenizer or str(folder)
        return None, ""

    def _lengths(self, given: dict[str, Any], model: ModelFacts | None) -> tuple[Lengths, Lengths]:
        default = LENGTHS
        if model is None or (_is_embedded(model) and vllm_is_cpu_build()):
            default = CPU_LENGTHS
            if not (given["input_len"] and given["output_len"]) and self.options.dataset_path is None:
                self.notes.append(f"{default[0][0]} prompt tokens and {default[1][0]} output tokens, as a CPU is slow")
        spread = given["random_range_ratio"] or 0.0
        found = []
        for low, high in (given["input_len"] or default[0], given["output_len"] or default[1]):
            if spread and low == high:
                low, high = max(2, int(low * (1 - spread))), int(high * (1 + spread))
            found.append((low, high))
        return found[0], found[1]

    def _seed(self, given: int | None, folder: Path) -> int:
        if given is not None:
            return given
        if (folder / BENCH_FILE).is_file():
            with self.mistakes.collected():
                return int(read_bench(folder / BENCH_FILE).conditions.system.get("seed") or 0)
        # A server may still have the prompts of an earlier bench in its prefix cache.
        return int(time.time()) if self.values.get("api_server") else 0

    def _longest(self, scenario: Scenario, model: ModelFacts | None) -> int | None:
        """Check the fields of a run; return the maximum of prompt and output tokens, if there is one."""
        limits = [model.max_positions] if model else []
        sampling = self.values.get("sampling_arg") or {}
        for name in sorted({"min_tokens", "max_tokens"} & sampling.keys()):
            self.mistakes.add(f"--sampling-arg {name}: the bench sets it", "give --output-len N")
        with self.mistakes.collected():
            config = make_config({**self.values, "scenario": scenario})
            if config.engine in KINDS and (most := KINDS[config.engine].longest_sequence(config)):
                limits.append(most)
        return min(limits, default=None)

    def _prompts(
        self, tokenizer: str, model: ModelFacts | None, lengths: tuple[Lengths, Lengths], seed: int, limit: int | None
    ) -> Prompts:
        options, add = self.options, self.mistakes.add
        name, path = options.dataset_name, options.dataset_path
        if name is not None and name not in DATA_NAMES:
            add(f"--dataset-name {name}: unknown", f"choose from {', '.join(DATA_NAMES)}")
        elif name in ("custom", "sharegpt") and path is None:
            add(f"--dataset-name {name}: no file", "give --dataset-path FILE")
        if path is None:
            longest = lengths[0][1] + lengths[1][1]
            if limit is not None and longest > limit:
                add(
                    f"--input-len {lengths[0][1]} with --output-len {lengths[1][1]}: {longest:,} tokens, but the "
                    f"model takes {limit:,}",
                    f"give --input-len {max(1, limit - lengths[1][1])}, or fewer output tokens",
                )
            return Synthetic(tokenizer, *lengths, seed)
        for given in ("input_len", "random_range_ratio"):
            if getattr(options, given) is not None:
                flag = "--" + given.replace("_", "-")
                add(f"{flag} with --dataset-path: the prompts have their own lengths", f"remove {flag}")
        if name == "random":
            add(f"--dataset-name random with --dataset-path {path}: exclude each other", "remove one of the two")
        if lengths[1][0] != lengths[1][1]:
            add(f"--output-len {options.output_len} with --dataset-path: must be one number", "give --output-len 128")
        vocab = model.vocab_size if model else ByteTokenizer.vocab_size
        return read_prompts(
            Path(path), DATA_NAMES.get(name or ""), tokenizer, lengths[1][1],
            exact=bool(options.ignore_eos), vocab_size=vocab, longest=limit,
        )  # fmt: skip

    def _limits(self, given: dict[str, Any], scenario: Scenario, model: ModelFacts | None) -> Limits | None:
        sources: dict[str, dict[str, float]] = {name: given[name] for name in ("limits", "goodput") if given[name]}
        sources |= {
            f"{name}_sla_ms": {name: given[f"{name}_sla_ms"]} for name in ("ttft", "tpot") if given[f"{name}_sla_ms"]
        }
        found: dict[str, float] = {}
        for source, values in sources.items():
            if twice := values.keys() & found.keys():
                flag = "--" + source.replace("_", "-")
                self.mistakes.add(f"{flag}: the limit of {min(twice)} is given twice", f"remove {flag}")
            found |= values
        if found or given["limits"] is not None:
            return Limits(**found) if found else None
        benchmark = benchmark_of(self.values, scenario)
        if scenario == "Offline" or benchmark.limits is None:
            return None
        # The embedded model stands in for the benchmark's model, and so does the dummy engine.
        if model is None or _is_embedded(model) or not model_reasons(benchmark.model, model.config):
            return Limits(ttft=benchmark.limits.ttft_ms, tpot=benchmark.limits.tpot_ms)
        self.notes.append("no limits for this model: the curve has no best rate; give --limits ttft=2000,tpot=100")
        return None

    def _fix_engine(self, prompts: Prompts, output_len: Lengths, limit: int | None, *, exact: bool) -> Lengths:
        """Set the sampling, and a maximum of tokens that all runs share; return the output lengths."""
        values = self.values
        if isinstance(prompts, FilePrompts):
            outputs = [prompts.output_of(row) for row in prompts.content]
            output_len = min(outputs) if exact else 2, max(outputs)
        if not isinstance(prompts, FilePrompts) or prompts.kind != "benchmark" or self.options.output_len or exact:
            given = {"min_tokens": output_len[0], "max_tokens": output_len[1]}
            values["sampling_arg"] = (values.get("sampling_arg") or {}) | given
        longest = prompts.longest + output_len[1]
        if "api_server" not in values and values.get("engine", DEFAULT) == DEFAULT:
            most = {"max_model_len": min(longest, limit or longest)}
            values["engine_arg"] = most | (values.get("engine_arg") or {})
        return output_len
