"""The check of a bench's command line, and the plan that follows from it."""

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from qsl.embedded.default_model import DEFAULT_MODEL_NAME, default_model_folder, ensure_default_model
from qsl.model_files import ModelFacts, facts_of, find_model
from qsl.tokenizers import BYTES, ByteTokenizer
from runs.bench.bench_record import BENCH_FILE, BenchRecord, Limits, read_bench_record
from runs.bench.find_bench import file_name, find_bench, folder_of
from runs.benchmark import Scenario
from runs.machine.environment import vllm_is_cpu_build
from runs.record.official_inputs import model_reasons
from scenarios.bench import mistakes as parse
from scenarios.bench.ladder import MAX_RUNS, LoadStep, default_steps
from scenarios.bench.options import DATA_NAMES, IGNORED, REASONS, REFUSED, Bench, BenchOptions, benchmark_of, fix_of
from scenarios.bench.prompts import FilePrompts, PromptLengths, Prompts, Synthetic, read_prompts
from scenarios.launch.run_config import make_config
from scenarios.mistakes import Mistakes
from sut.engines import DEFAULT, KINDS
from sut.http.address import Access, addresses, route_at_end, with_route
from sut.http.dialects import DIALECTS, ROUTES
from sut.http.server import ModelCard, choose_dialect, read_card

DURATION_S = 60.0
SERVER_STALL_S = 60.0  # in Offline, a server without streaming that serves requests one by one is quiet for long
MAX_TOKENS = 10**9
LENGTHS: tuple[PromptLengths, PromptLengths] = (
    (1024, 1024),
    (128, 128),
)  # prompt and output tokens, as in `vllm bench serve`
CPU_LENGTHS: tuple[PromptLengths, PromptLengths] = (128, 128), (32, 32)  # for the embedded model without an accelerator
BACKENDS = {"chat": "openai-chat", "completions": "openai"}  # backend of another program → dialect
KEY_VARIABLE = "OPENAI_API_KEY"
_ADDRESS = re.compile(r"https?://|([\w.-]+|\[[\da-f:]+\]):\d+(/|$)")
_LOADS = ("rates", "concurrency", "max_concurrency")
# Option → function that parses its text, and an example.
_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "scenario": (parse.parse_scenario, "Server"),
    "rates": (parse.parse_rates, "5,10,20 or 25%,50%"),
    "concurrency": (parse.concurrency, "1,8,32"),
    "max_concurrency": (parse.concurrency, "32"),
    **dict.fromkeys(("limits", "goodput"), (parse.limits, "ttft=2000,tpot=100")),
    **dict.fromkeys(("ttft_sla_ms", "tpot_sla_ms"), (parse.number, "500")),
    "duration": (parse.seconds, "60s"),
    "input_len": (parse.lengths, "1024"),
    "output_len": (parse.outputs, "128"),
    "random_range_ratio": (parse.ratio, "0.5"),
    **dict.fromkeys(("queries", "repeats", "max_runs"), (parse.count, "3")),
    "port": (parse.count, "8000"),
    "seed": (parse.seed, "1"),
}


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
        own: Fields of `BenchOptions`.
        runs: Fields of `RunConfig`.
        others: Options in `REFUSED` and `IGNORED` with their values.
        say: Called with a line before a slow step.

    Raises:
        InputError: If options, files or the server are wrong; the message lists all mistakes and fixes.
    """
    return _Loader(BenchOptions.model_validate(bench_values), dict(runs), say).load(
        list(command), targets, foreign_options
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _has_offline(record: BenchRecord) -> bool:
    return any(run.kind == "offline" for run in record.runs)


class _Loader:
    """The check of one command line. It collects the mistakes."""

    def __init__(self, options: BenchOptions, values: dict[str, Any], say: Callable[[str], None]) -> None:
        self.options, self.values, self.say = options, values, say
        self.mistakes = Mistakes("bench")
        self.add = self.mistakes.add
        self.notes: list[str] = []
        self.given: dict[str, Any] = {}

    def load(self, command: list[str], targets: Sequence[str], foreign_options: Mapping[str, str]) -> Bench:
        for name, value in foreign_options.items():
            if name in REFUSED:
                self.add(f"{_flag(name)} {value}: {REASONS.get(name, 'not an option of bench')}", fix_of(name, value))
            else:
                self.notes.append(f"{_flag(name)} is ignored; {IGNORED[name]}")
        like = self._like()
        words = [word for word in targets if self.options.goodput and re.match(r"(ttft|tpot|e2el)[:=]", word)]
        if words:  # `--goodput ttft:500 tpot:50`
            self.options = self.options.model_copy(update={"goodput": ",".join([str(self.options.goodput), *words])})
        options = self.options
        parsed = self.given = {name: self._parsed(name) for name in _PARSERS}
        scenario: Scenario = parsed["scenario"] or "Server"
        target = self._target([word for word in targets if word not in words])
        label, metadata = self._label_and_metadata()
        steps = self._steps(scenario)
        if like is not None and _has_offline(like) and LoadStep("offline") not in steps:
            steps = (LoadStep("offline"), *steps)
        model, tokenizer = self._model()
        label = label or file_name(Path(self.values.get("api_model_name") or target).name)
        folder = options.output_log_dir or folder_of(label)
        limit = self._longest(scenario, model)
        input_len, output_len = self._lengths(model, limit)
        exact = options.dataset_path is None or bool(options.ignore_eos)
        seed = self._seed(folder)
        limits = self._limits(scenario, model)
        prompts: Prompts | None = None
        with self.mistakes.collected():
            prompts = self._prompts(tokenizer, model, (input_len, output_len), seed, limit)
        self.mistakes.refuse()
        assert prompts is not None
        return Bench(
            label=label,
            target=target,
            command=command,
            folder=folder,
            scenario=scenario,
            steps=steps or default_steps(scenario),
            is_adaptive=not steps,
            limits=limits,
            prompts=prompts,
            duration_s=parsed["duration"] or DURATION_S,
            is_duration_given=parsed["duration"] is not None,
            queries=parsed["queries"],
            output_len=self._fix_engine(prompts, output_len, limit, exact=exact),
            values=self.values,
            exact_output=exact,
            repeats=parsed["repeats"] or 1,
            max_runs=parsed["max_runs"] or MAX_RUNS,
            seed=seed,
            dataset_path=options.dataset_path.resolve() if options.dataset_path else None,
            like=like,
            metadata=metadata,
            save_result=bool(options.save_result or options.save_detailed),
            save_detailed=bool(options.save_detailed),
            result_filename=options.result_filename,
            notes=self.notes,
        )

    def _parsed(self, name: str) -> Any:
        text, (how, example) = getattr(self.options, name), _PARSERS[name]
        try:
            return None if text is None else how(text)
        except ValueError as error:
            self.add(f"{_flag(name)} {text}: {error}", f"write, for example, {_flag(name)} {example}")
            return None

    def _like(self) -> BenchRecord | None:
        """Replace options with the options of the bench in --like."""
        record = None
        with self.mistakes.collected():
            if self.options.like is not None:
                record = find_bench(self.options.like)
        if record is None:
            return None
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
        for name in sorted(self.options.model_fields_set & update.keys()):
            self.add(
                f"{_flag(name)}: not supported with --like {self.options.like}, which sets this option",
                f"remove {_flag(name)}, or --like",
            )
        texts = {name: str(value) for name, value in update.items() if value not in (None, "")}
        self.options = BenchOptions.model_validate({**self.options.model_dump(exclude_unset=True), **texts})
        return record

    def _target(self, words: list[str]) -> str:
        """Move the model or URL to the fields of a run; return the model or URL."""
        options, values, backend = self.options, self.values, self.options.backend
        for name in ("model", "tokenizer", "backend", "endpoint", "host"):
            if getattr(options, name) == "":
                self.add(f"{_flag(name)}: empty value", "check for an unset shell variable")
        servers = [word for word in words if _ADDRESS.match(word)]
        models = [word for word in words if word not in servers]
        models += [word for word in (values.pop("model_path", None), options.model) if word]
        if options.host is not None or options.port is not None:
            servers.append(f"{options.host or 'localhost'}:{self.given['port'] or 8000}")
        route = options.endpoint or ""
        if _ADDRESS.match(route):
            servers, route = [*servers, route], ""
        route = route and "/" + route.strip("/")
        servers += [values.pop("api_server")] if "api_server" in values else []
        urls = list(dict.fromkeys(word if "://" in word else f"http://{word}" for word in servers))
        if urls and options.model in models and not Path(options.model or "").is_dir():
            models.remove(options.model)  # this name of the model is for the server; it is no path
        models = list(dict.fromkeys(models))
        for targets_of_kind, what in ((urls, "servers"), (models, "models")):
            if len(targets_of_kind) > 1:
                self.add(f"{', '.join(targets_of_kind)}: {len(targets_of_kind)} {what} given", "give one MODEL or URL")
        if models:
            values["model_path"] = models[0]
        if urls:
            values["api_server"] = urls[0]
            with self.mistakes.collected("--api-server", "URL"):
                values["api_server"] = with_route(urls[0], route)
            values.setdefault("stall_timeout_s", SERVER_STALL_S)
            if backend is not None:
                values.setdefault("api_dialect", BACKENDS.get(backend, backend))
            if options.model is not None:
                values.setdefault("api_model_name", options.model)
            own_key = any(name.lower() == "authorization" for name in values.get("header", ()))
            if os.environ.get(KEY_VARIABLE) and "api_key_env" not in values and not own_key:
                values["api_key_env"] = KEY_VARIABLE
                self.notes.append(f"the API key of the server comes from {KEY_VARIABLE}")
        elif backend in KINDS:
            values.setdefault("engine", backend)
        elif backend or route:
            flag = f"--backend {backend}" if backend else f"--endpoint {route}"
            self.add(f"{flag}: no server is given", "give the server's URL")
        if route and not route_at_end(route):
            self.add(f"--endpoint {route}: unknown route", f"choose from {', '.join(ROUTES)}")
        if (dialect := values.get("api_dialect")) is not None and dialect not in DIALECTS:
            self.add(f"--api-dialect {dialect}: unknown", f"choose from {', '.join(DIALECTS)}")
        if options.reset_cache and urls:
            self.add(
                "--reset-cache: a server's cache cannot be reset", "remove --reset-cache; each run has new prompts"
            )
        if options.tokenizer is not None and (urls or not models):
            values["model_path"] = options.tokenizer
        return str(values.get("api_server") or values.get("model_path") or DEFAULT_MODEL_NAME)

    def _label_and_metadata(self) -> tuple[str | None, dict[str, str]]:
        label, pairs, metadata = self.options.label, list(self.options.metadata), {}
        if label is not None and "=" in label:  # guidellm's --label takes KEY=VALUE metadata
            pairs, label = [*pairs, label], None
        for text in pairs:
            key, equals, value = text.partition("=")
            if not equals or not key:
                self.add(f"--metadata {text}: not of the form KEY=VALUE", "write, for example, --metadata team=search")
            metadata[key] = value
        if label is not None and not file_name(label):
            self.add(f"--label {label!r}: no letter or digit", "write, for example, --label bf16")
        if (name := self.options.result_filename) is not None and Path(name).name != name:
            self.add(f"--result-filename {name!r}: must be a file name without a directory", "give a name and -o DIR")
        return label, metadata

    def _steps(self, scenario: Scenario) -> tuple[LoadStep, ...]:
        """Return the given loads; none if the loads of the scenario apply."""
        rates, open_queries, most = (self.given[name] or () for name in _LOADS)
        typed = {name: f"{_flag(name)} {text}" for name in _LOADS if (text := getattr(self.options, name)) is not None}
        if "concurrency" in typed and len(typed) > 1:
            fix = "give one list; --max-concurrency 32 with --rates bounds the open queries at each rate"
            self.add(f"{' with '.join(typed.values())}: exclude each other", fix)
        if scenario == "Offline" and any(step.kind == "server" for step in rates):
            self.add(f"{typed['rates']} with --scenario Offline: Offline has no rates", "give --scenario Server")
        if most and "rates" in typed:
            if len(most) > 1:
                self.add(f"{typed['max_concurrency']} with {typed['rates']}: must be one number", "give one number")
            self.values |= {"admission_queries": most[0].concurrency, "admission_tokens": MAX_TOKENS}
            self.values.setdefault("admission", "fcfs")
            self.notes.append(
                f"{typed['max_concurrency']}: queries above this number wait, and their latency includes the wait"
            )
            most = ()
        return rates or open_queries or most or ((LoadStep("offline"),) if scenario == "Offline" else ())

    def _card(self) -> ModelCard | None:
        """Return the server's entry of its model; None without a server, or for a server that the runs start."""
        values = self.values
        if not values.get("api_server") or values.get("serve"):
            return None
        access = Access.of(values)
        address = addresses(values["api_server"])[0]
        card = asyncio.run(read_card(address, access, values.get("api_model_name")))
        if values.get("api_dialect") in (None, *DIALECTS):
            dialect = asyncio.run(choose_dialect(address, access, card.owned_by, values.get("api_dialect")))
            values["api_dialect"] = dialect.name
        return card

    def _model(self) -> tuple[ModelFacts | None, str]:
        """Return the model's facts, and its tokenizer; an empty text after a mistake."""
        values = self.values
        with self.mistakes.collected("--model-path", "--tokenizer" if self.options.tokenizer else "--model-path"):
            card = self._card()
            if card is not None:
                values["api_model_name"] = card.id
                names = [name for name in (card.root, card.id) if name]
                local = next((name for name in names if Path(name).is_dir()), None)
                if "model_path" not in values and local is not None:
                    values["model_path"] = local
                elif "model_path" not in values and not any(DEFAULT_MODEL_NAME in name for name in names):
                    dialect = DIALECTS.get(values.get("api_dialect") or "")
                    if dialect is not None and dialect.sends_text:
                        self.notes.append(
                            f"the tokenizer of {card.id} is unknown: the lengths of prompts are characters, and the "
                            "server counts the output tokens; give --tokenizer with its folder or hub ID"
                        )
                        values["model_path"] = BYTES
                        return None, BYTES
                    fix = "give --tokenizer with the folder or hub ID of this model"
                    self.add(f"{values['api_server']}: the files of model {card.id} are unknown", fix)
                    return None, ""
                tokenized = values.get("model_path", DEFAULT_MODEL_NAME)
                if tokenized != BYTES and not any(PurePath(name).name in tokenized for name in names):
                    self.notes.append(
                        f"the server serves model {', '.join(names)}, and the prompts are tokenized for {tokenized}: "
                        "check that both are the same model"
                    )
            if values.get("model_path") == BYTES and values.get("api_server"):
                dialect = DIALECTS.get(values.get("api_dialect") or "")
                if dialect is not None and not dialect.sends_text:
                    what = f"--model-path {BYTES}: server {values['api_server']} takes token IDs"
                    self.add(f"{what} (dialect {dialect.name})", "give the server's model with --tokenizer MODEL")
                return None, BYTES
            kind = KINDS.get(values.get("engine", DEFAULT))
            if "model_path" not in values and kind is not None and kind.own_model is not None:
                return None, kind.own_model
            folder, revision = find_model(values.get("model_path") or str(ensure_default_model(self.say)))
            return facts_of(str(folder), folder, revision), self.options.tokenizer or str(folder)
        return None, ""

    def _lengths(self, model: ModelFacts | None, limit: int | None) -> tuple[PromptLengths, PromptLengths]:
        default, requested = LENGTHS, (self.given["input_len"], self.given["output_len"])
        if (_is_embedded(model) and vllm_is_cpu_build()) if model is not None else "api_server" not in self.values:
            default = CPU_LENGTHS
            if None in requested and self.options.dataset_path is None:
                self.notes.append(
                    f"{default[0][0]} prompt and {default[1][0]} output tokens, because no accelerator is used"
                )
        if requested == (None, None) and limit is not None and 2 < limit < default[0][0] + default[1][0]:
            default = (limit * 8 // 9,) * 2, (max(2, limit // 9),) * 2  # ratio of LENGTHS, in the model's context
        spread, lengths_found = self.given["random_range_ratio"] or 0.0, []
        for low, high in (requested[0] or default[0], requested[1] or default[1]):
            is_spread = spread and low == high
            lengths_found.append(
                (max(2, int(low * (1 - spread))), int(high * (1 + spread))) if is_spread else (low, high)
            )
        return lengths_found[0], lengths_found[1]

    def _seed(self, folder: Path) -> int:
        if self.given["seed"] is not None:
            return int(self.given["seed"])
        if (folder / BENCH_FILE).is_file():
            with self.mistakes.collected():
                return int(read_bench_record(folder / BENCH_FILE).conditions.system.get("seed") or 0)
        # A server may still have the prompts of an earlier bench in its prefix cache.
        return int(time.time()) if self.values.get("api_server") else 0

    def _longest(self, scenario: Scenario, model: ModelFacts | None) -> int | None:
        """Check the fields of a run; return the maximum number of prompt and output tokens, if a maximum applies."""
        limits = [model.max_positions] if model else []
        for name in sorted({"min_tokens", "max_tokens"} & self.values.get("sampling_arg", {}).keys()):
            self.add(f"--sampling-arg {name}: the bench sets this parameter", "give --output-len N")
        with self.mistakes.collected():
            config = make_config({**self.values, "scenario": scenario})
            if (most := KINDS[config.engine].longest_sequence(config)) is not None:
                limits.append(most)
        return min(limits, default=None)

    def _prompts(
        self,
        tokenizer: str,
        model: ModelFacts | None,
        lengths: tuple[PromptLengths, PromptLengths],
        seed: int,
        limit: int | None,
    ) -> Prompts | None:
        name, path, (inputs, outputs) = self.options.dataset_name, self.options.dataset_path, lengths
        if name is not None and name not in DATA_NAMES:
            self.add(f"--dataset-name {name}: unknown", f"choose from {', '.join(DATA_NAMES)}")
        if name in ("custom", "sharegpt") and path is None:
            self.add(f"--dataset-name {name}: no file", "give --dataset-path FILE")
        if path is None:
            if limit is not None and inputs[1] + outputs[1] > limit:
                self.add(
                    f"--input-len {inputs[1]} with --output-len {outputs[1]}: the model supports at most {limit:,} "
                    "tokens",
                    f"give --input-len {max(1, limit - outputs[1])}, or fewer output tokens",
                )
            return Synthetic(tokenizer, inputs, outputs, seed) if tokenizer else None
        for option in ("input_len", "random_range_ratio"):
            if getattr(self.options, option) is not None:
                fix = f"remove {_flag(option)}"
                self.add(f"{_flag(option)} with --dataset-path: the file decides the lengths of the prompts", fix)
        if name == "random":
            self.add(f"--dataset-name random with --dataset-path {path}: exclude each other", "remove one of these")
        if outputs[0] != outputs[1]:
            self.add(f"--output-len {self.options.output_len} with --dataset-path: must be one number", "give a number")
        if not tokenizer:
            return None
        vocab = model.vocab_size if model else ByteTokenizer.vocab_size
        exact = bool(self.options.ignore_eos)
        return read_prompts(
            path, DATA_NAMES.get(name or ""), tokenizer, outputs[1], exact=exact, vocab_size=vocab, longest=limit
        )

    def _limits(self, scenario: Scenario, model: ModelFacts | None) -> Limits | None:
        sources = [(name, self.given[name] or {}) for name in ("limits", "goodput")]
        for name in ("ttft", "tpot"):
            value = self.given[f"{name}_sla_ms"]
            sources.append((f"{name}_sla_ms", {name: value} if value else {}))
        limits_ms: dict[str, float] = {}
        for source, values in sources:
            for name in sorted(values.keys() & limits_ms.keys()):
                self.add(f"{_flag(source)}: the limit of {name} is given twice", f"remove {_flag(source)}")
            limits_ms |= values
        if limits_ms or self.given["limits"] is not None:
            return Limits(**limits_ms) if limits_ms else None
        benchmark = benchmark_of(self.values, scenario)
        if scenario == "Offline" or benchmark.limits is None:
            return None
        # The embedded model stands in for the benchmark's model, and so does the dummy engine.
        is_unknown = model is None and "api_server" in self.values
        if not is_unknown and (
            model is None or _is_embedded(model) or not model_reasons(benchmark.model, model.config)
        ):
            return Limits(ttft=benchmark.limits.ttft_ms, tpot=benchmark.limits.tpot_ms)
        self.notes.append(
            "no limits for this model: the best rate is the highest unsaturated rate; give --limits ttft=2000,tpot=100"
        )
        return None

    def _fix_engine(
        self, prompts: Prompts, output_len: PromptLengths, limit: int | None, *, exact: bool
    ) -> PromptLengths:
        """Set the sampling, and a maximum of tokens that all runs share; return the output lengths."""
        values = self.values
        if isinstance(prompts, FilePrompts):
            outputs = [prompts.output_of(row) for row in prompts.content]
            output_len = min(outputs) if exact else 2, max(outputs)
        if not isinstance(prompts, FilePrompts) or prompts.kind != "benchmark" or self.options.output_len or exact:
            engine_values = {"min_tokens": output_len[0], "max_tokens": output_len[1]}
            values["sampling_arg"] = values.get("sampling_arg", {}) | engine_values
        longest = prompts.longest + output_len[1]
        if "api_server" not in values and values.get("engine", DEFAULT) == DEFAULT:
            most = {"max_model_len": min(longest, limit or longest)}
            values["engine_arg"] = most | values.get("engine_arg", {})
        return output_len


def _is_embedded(model: ModelFacts) -> bool:
    return model.folder == default_model_folder()
