"""The plan of a bench: its options, prompts, and the files of its runs."""

import contextlib
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console

from qsl.dataset import load_dataset
from qsl.tokenizers import BYTES
from runs.bench.bench_record import BenchRecord, BenchRun, Conditions, Limits, write_bench
from runs.bench.find_bench import bench_directory, find_bench, folder_of
from runs.errors import InputError, SetupError
from runs.record.layout import BENCH_FILE
from runs.record.requests_log import read_request_table
from scenarios.bench.bench_plan import Bench
from scenarios.bench.ladder import LoadStep, PlannedBenchRun, default_steps
from scenarios.bench.load import load_bench
from scenarios.bench.prompts import BLOCK, Synthetic, read_prompts
from scenarios.bench.run_files import repeated_rows, write_run_files
from scenarios.dispatch import main
from scenarios.launch.parent import execute_run
from scenarios.launch.plan import prepare
from scenarios.launch.run_config import make_config
from tests.support.servers import server_dialects
from tests.support.servers.http_server import HttpServer, serving
from tests.support.servers.text_server import text_server


def loaded(
    *targets: str, others: dict[str, str] | None = None, runs: dict[str, Any] | None = None, **options: Any
) -> Bench:
    """Return the plan of a bench of the dummy engine."""
    return load_bench(["bench"], targets, options, {"engine": "dummy", **(runs or {})}, others or {})


def mistakes_of(*targets: str, **arguments: Any) -> str:
    with pytest.raises((InputError, SetupError)) as refused:
        loaded(*targets, **arguments)
    return str(refused.value)


# Options --------------------------------------------------------------------------------------------------------------


def test_a_bench_without_options_has_documented_defaults() -> None:
    bench = loaded()
    assert bench.steps == default_steps("Server")
    assert bench.is_adaptive
    assert bench.limits == Limits(ttft=2000, tpot=100)
    assert (bench.options.duration, bench.options.repeats, bench.options.max_runs) == (60, 1, 8)
    assert bench.ladder().longest_s > 60
    assert bench.values["sampling_arg"] == {"min_tokens": 32, "max_tokens": 32}
    assert bench.equal_conditions()["input_tokens"] == "128"
    assert "no accelerator" in bench.notes[0]
    assert loaded(scenario="interactive").limits == Limits(ttft=500, tpot=30)
    assert loaded(scenario="Offline").steps == (LoadStep("offline"),)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rates": "10, 5"}, {"steps": (LoadStep("server", qps=5), LoadStep("server", qps=10))}),
        ({"rates": "25%"}, {"steps": (LoadStep("offline"), LoadStep("server", share=0.25))}),
        ({"rates": "inf"}, {"steps": (LoadStep("offline"),), "is_adaptive": False}),
        (
            {"concurrency": "8,1"},
            {"steps": (LoadStep("concurrency", concurrency=1), LoadStep("concurrency", concurrency=8))},
        ),
        ({"max_concurrency": "4"}, {"steps": (LoadStep("concurrency", concurrency=4),)}),
        ({"limits": "ttft=200"}, {"limits": Limits(ttft=200)}),
        ({"limits": "none"}, {"limits": None}),
        ({"goodput": "ttft:500"}, {"limits": Limits(ttft=500)}),
        ({"goodput": "e2el:5000"}, {"limits": Limits(e2el=5000)}),
        ({"limits": "e2el=5000,ttft=500"}, {"limits": Limits(ttft=500, e2el=5000)}),
        ({"ttft_sla_ms": "500", "tpot_sla_ms": "9"}, {"limits": Limits(ttft=500, tpot=9)}),
        ({"output_len": "64-128"}, {"output_len": (64, 128)}),
        ({"output_len": "100", "random_range_ratio": "0.5"}, {"output_len": (50, 150)}),
        ({"label": "team=search"}, {"metadata": {"team": "search"}}),
        ({"label": "bf16 tp2"}, {"folder": Path("output/bench-bf16-tp2")}),
        ({"metadata": ["a=1", "b=x=y"]}, {"metadata": {"a": "1", "b": "x=y"}}),
    ],
)
def test_valid_option_values_are_converted(options: dict[str, Any], expected: dict[str, Any]) -> None:
    bench = loaded(**options)
    assert {name: getattr(bench, name) for name in expected} == expected


@pytest.mark.parametrize(("text", "seconds"), [("10m", 600), ("60s", 60), ("60", 60)])
def test_a_given_duration_is_the_longest_duration(text: str, seconds: float) -> None:
    ladder = loaded(duration=text).ladder()
    assert (ladder.duration_s, ladder.longest_s) == (seconds, seconds)


def test_words_after_goodput_are_read_as_limits() -> None:
    assert loaded("tpot:50", goodput="ttft:500").limits == Limits(ttft=500, tpot=50)
    assert "server http://[::1]:9 accepts no" in mistakes_of("[::1]:9", goodput="ttft:500", runs={"engine": "endpoint"})


def test_max_concurrency_bounds_open_queries_at_a_rate(tmp_path: Path) -> None:
    bench = loaded(rates="5", max_concurrency="32", output_log_dir=str(tmp_path))
    assert "their latency includes the wait" in bench.notes[0]
    server = write_run_files(bench, PlannedBenchRun(2, "server", 8, 0, 5.0))
    assert (server.admission, server.admission_queries) == ("fcfs", 32)
    assert write_run_files(bench, PlannedBenchRun(1, "offline", 8, 0)).admission_queries is None


def test_all_mistakes_are_reported_at_once() -> None:
    text = mistakes_of(
        rates="5,x", limits="itl=3", duration="3x", output_len="1", repeats="0", metadata=["a"], scenario="D(100,100)",
        dataset_name="c4", seed="-1", runs={"stall_timeout_s": "x"}, others={"profile": "kind=sweep"},
    )  # fmt: skip
    for line in (
        "--rates 5,x: 'x' is not a number\n  fix: write, for example, --rates 5,10,20",
        "--limits itl=3: 'itl' is not a limit",
        "--duration 3x: must be a number of seconds",
        "--output-len 1: must be at least 2 tokens",
        "--repeats 0: must be at least 1\n  fix: write, for example, --repeats 1",
        "--metadata a: not of the form KEY=VALUE",
        "--scenario D(100,100): must be Server, Interactive or Offline; for lengths give --input-len",
        "--dataset-name c4: must be one of random, custom, sharegpt",
        "--seed -1: must be at least 0",
        "--stall-timeout-s x: must be a number",
        "--profile kind=sweep: not an option of bench\n  fix: give --rates",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rates": "0"}, "'0' must be finite and above 0"),
        ({"rates": "-3"}, "'-3' must be finite"),
        ({"rates": "nan"}, "'nan' must be finite"),
        ({"rates": ""}, "--rates: '' is not a number"),
        ({"rates": "5,inf"}, "inf is the Offline run alone"),
        ({"rates": "5,50%"}, "the list mixes rates and shares"),
        ({"rates": "5,5.0"}, "contains a value twice"),
        ({"rates": "5", "concurrency": "3"}, "--rates 5 with --concurrency 3: "),
        ({"rates": "5", "max_concurrency": "3,4"}, "must be one number"),
        ({"concurrency": "2", "max_concurrency": "3"}, "exclude each other"),
        ({"concurrency": "1.5"}, "'1.5' must be a whole number"),
        ({"queries": "1.5"}, "--queries 1.5: must be a whole number"),
        ({"scenario": "Servr"}, "did you mean --scenario Server?"),
        ({"rates": "5", "scenario": "Offline"}, "--rates 5 with --scenario Offline"),
        ({"goodput": "ttft:5", "ttft_sla_ms": "5"}, "--ttft-sla-ms: "),
        ({"limits": "ttft=5,ttft=6"}, "ttft is given twice"),
        ({"input_len": "9-3"}, "the lower end 9 is above the upper end 3"),
        ({"random_range_ratio": "1"}, "--random-range-ratio 1: must be below 1"),
        ({"dataset_name": "custom"}, "give --dataset-path FILE"),
        ({"dataset_path": "absent.jsonl"}, "absent.jsonl does not exist"),
        ({"backend": "openai-chat"}, "--backend openai-chat: "),
        ({"label": ""}, "--label"),
        ({"result_filename": "a/b"}, "--result-filename a/b: must be a file name"),
        ({"input_len": "9999999"}, "must be at most 1,048,576 tokens"),
        ({"tokenizer": "/absent", "runs": {"engine": "vllm"}}, "--tokenizer /absent: "),
        ({"runs": {"replicas": "0"}}, "see `python main.py bench --help-all`"),
        ({"model": ""}, "--model: empty value"),
        ({"tokenizer": ""}, "--tokenizer: empty value"),
        ({"like": "absent"}, "absent"),
        ({"runs": {"sampling_arg": {"max_tokens": 5}}}, "--sampling-arg max_tokens: "),
        ({"runs": {"engine": "nothing"}}, "--engine nothing"),
        ({"endpoint": "/v1/embeddings"}, "--endpoint /v1/embeddings: unknown route"),
    ],
)
def test_each_invalid_value_is_refused(options: dict[str, Any], words: str) -> None:
    assert words in mistakes_of(**options)


def test_two_models_are_refused() -> None:
    assert "one, two: 2 models given" in mistakes_of("one", "two")


def test_options_without_effect_are_noted() -> None:
    output = mistakes_of(others={"data": "prompt_tokens=64,output_tokens=16", "max_time_per_run": "90s"})
    assert "give --input-len 64 --output-len 16" in output
    assert "give --duration 90s" in output
    assert "--burstiness 0.5: " in mistakes_of(others={"burstiness": "0.5"})
    assert "give --input-len 100 --output-len 20" in mistakes_of(others={"traffic_scenario": "D(100,20)"})
    assert "--num-workers is ignored" in loaded(others={"num_workers": "4"}).notes[0]


def test_a_bench_like_an_earlier_one_has_its_options_and_rates(tmp_path: Path) -> None:
    bench = loaded(seed="1795719000", input_len="64", output_len="16", limits="ttft=300,e2el=900", duration="20")
    runs = [BenchRun(number=1, kind="offline", scenario="Offline", verdict="maximum")]
    runs += [
        BenchRun(number=i, kind="server", scenario="Server", verdict="within", asked_qps=qps)
        for i, qps in ((2, 2.5), (3, 7.0), (4, 7.0))
    ]
    record = BenchRecord(
        status="complete", label="old", command=[], target="x", limits=bench.limits, percentile=None, runs=runs,
        conditions=Conditions(equal=bench.equal_conditions(), system=bench.other_conditions()), percentile_reason="",
    )  # fmt: skip
    write_bench(tmp_path, record)
    again = loaded(like=str(tmp_path))
    assert again.steps == (LoadStep("offline"), LoadStep("server", qps=2.5), LoadStep("server", qps=7.0))
    assert again.like == record
    assert again.equal_conditions() == bench.equal_conditions()
    assert again.prompts.rows(0, 3) == bench.prompts.rows(0, 3)
    assert "--rates: not supported with --like" in mistakes_of(like=str(tmp_path), rates="3")
    with pytest.raises(InputError, match=BENCH_FILE):
        find_bench(str(tmp_path / "absent"))
    with contextlib.chdir(tmp_path):
        folder_of("a label").mkdir(parents=True)
        write_bench(folder_of("a label"), record)
        assert bench_directory("a label") == Path("output/bench-a-label")


# Other programs' names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "field", "value"),
    [
        ("--base-url U|--url U|-u U|--target U|--api-base U|--endpoints U|--api_server U", "api_server", "U"),
        ("--model U|-m U|--model-names U", "model", "U"),
        ("--api-model-name U|--served-model-name U", "api_model_name", "U"),
        ("--tokenizer U|--model-tokenizer U", "tokenizer", "U"),
        ("--backend U|--endpoint-type U|--api-backend U", "backend", "U"),
        ("--endpoint U", "endpoint", "U"),
        ("--request-rate 5|--target-qps 5|--rate 5|--rates 5", "rates", "5"),
        ("--concurrency 5|--num-concurrency 5", "concurrency", "5"),
        ("--max-concurrency 5", "max_concurrency", "5"),
        ("--num-prompts 5|--request-count 5|--num-requests 5|--num-samples 5|--max-requests 5", "queries", "5"),
        ("--duration 5|--benchmark-duration 5|--max-seconds 5", "duration", "5"),
        ("--dataset-path U|--input-file U", "dataset_path", "U"),
        ("--input-len 5|--random-input-len 5|--isl 5|--synthetic-input-tokens-mean 5", "input_len", "5"),
        ("--output-len 5|--random-output-len 5|--osl 5|--synthetic-output-tokens-mean 5", "output_len", "5"),
        ("--result-dir U|--output-dir U|-o U|--artifact-dir U|--report-dir U", "output_log_dir", "U"),
        ("--repeats 5|--num-runs 5|--num-profile-runs 5", "repeats", "5"),
        ("--percentile-metrics U", "percentile_metrics", "U"),
        ("--metric-percentiles U", "metric_percentiles", "U"),
        ("--num-warmups U", "num_warmups", "U"),
        ("--profile U", "profile", "U"),
        ("--output U", "output", "U"),
        ("--streaming", "streaming", ""),
    ],
)
def test_option_names_of_other_benchmarks_are_accepted(
    lines: str, field: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []

    def load(_: Any, __: Any, options: Any, runs: Any, other_options: Any) -> None:
        calls.append({**options, **runs, **other_options})
        raise InputError("the plan of this test")

    monkeypatch.setattr("scenarios.bench.load.load_bench", load)
    for line in lines.split("|"):
        assert main(["bench", *line.split()]) == 2
    assert [str(call.get(field)) for call in calls] == [value] * (lines.count("|") + 1)


# Servers --------------------------------------------------------------------------------------------------------------


def test_an_unreachable_server_and_an_invalid_rate_are_reported_together() -> None:
    text = mistakes_of("http://127.0.0.1:9/v1/chat/completions", rates="x", runs={"engine": "endpoint"})
    assert "server http://127.0.0.1:9 accepts no connection" in text
    assert "--rates x" in text


@pytest.mark.parametrize("path", ["", "/v1/chat/completions"])
def test_a_server_that_sends_text_needs_no_tokenizer(path: str) -> None:
    """The server counts the tokens, and the prompts are characters."""
    with serving(text_server("openai-chat", model="somebody/model")) as server:
        bench = loaded(f"{server.url}{path}", runs={"engine": "endpoint"})
        assert "somebody/model" in mistakes_of(f"{server.url}{path}", runs={"engine": "endpoint"}, model="other")
    assert bench.values["model_path"] == BYTES
    assert bench.values["api_dialect"] == "openai-chat"
    assert any("the tokenizer of somebody/model is unknown" in note for note in bench.notes)
    assert bench.limits is None
    assert (bench.equal_conditions()["input_tokens"], bench.output_len) == ("1024", (128, 128))


def test_a_server_of_token_ids_needs_the_models_tokenizer() -> None:
    with serving(HttpServer("/v1/completions", server_dialects.vllm, "vllm", model="somebody/model")) as server:
        assert "give --tokenizer with the folder" in mistakes_of(server.url, runs={"engine": "endpoint"})
        runs = {"engine": "endpoint", "model_path": BYTES}
        assert "takes token IDs (dialect vllm)" in mistakes_of(server.url, runs=runs)


@pytest.mark.parametrize("arguments", [{"runs": {"engine": "endpoint", "model_path": BYTES}}, {"tokenizer": BYTES}])
def test_the_byte_tokenizer_of_a_text_server_is_recorded(arguments: dict[str, Any]) -> None:
    with serving(text_server("openai-chat", model="somebody/Llama-3.1-8B-Instruct")) as server:
        bench = loaded(server.url, **{"runs": {"engine": "endpoint"}, **arguments})
    assert bench.values["model_path"] == BYTES
    assert bench.equal_conditions()["input_tokens"] == "1024"


@pytest.fixture
def models() -> Iterator[list[dict[str, str]]]:
    """Return the model list of a server at `models[0]["url"]`. Further entries are its models."""
    listed: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"data": listed[1:]}).encode()
            self.send_response(401 if listed[0].get("key", "") not in self.headers.get("authorization", "") else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        listed.append({"url": f"http://127.0.0.1:{server.server_port}"})
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield listed
        server.shutdown()


def load_from_server(models: list[dict[str, str]], path: str = "", **arguments: Any) -> Bench:
    return load_bench(["bench"], [models[0]["url"] + path], arguments.pop("own", {}), arguments, {})


def test_the_model_is_read_from_the_server(models: list[dict[str, str]], small_model: Path) -> None:
    models.append({"id": "served", "root": str(small_model)})
    bench = load_from_server(models, "/v1/chat/completions")
    assert bench.values["model_path"] == str(small_model)
    assert bench.values["api_model_name"] == bench.label == "served"
    assert bench.seed > 1e9  # a server may have the prompts of an earlier bench in its cache
    assert make_config({**bench.values, "scenario": "Server"}).engine == "endpoint"
    assert load_from_server(models, own={"seed": "3"}).seed == 3
    assert load_from_server(models, own={"model": "served"}).values["model_path"] == str(small_model)
    address = models[0]["url"].removeprefix("http://")
    for options in ({"host": address.split(":")[0], "port": address.split(":")[1]}, {"endpoint": f"http://{address}"}):
        assert load_bench([], [], options, {}, {}).values["api_server"] == models[0]["url"]
    assert (
        load_bench([], [address], {"endpoint": "v1/completions"}, {}, {})
        .values["api_server"]
        .endswith("/v1/completions")
    )
    assert load_from_server(models, own={"backend": "chat"}).values["api_dialect"] == "openai-chat"
    assert not any("same model" in note for note in bench.notes)
    models[1] = {"id": "another"}
    assert any("serves model another" in note for note in load_from_server(models, model_path=str(small_model)).notes)


def test_the_key_of_a_server_is_read_from_the_environment(
    models: list[dict[str, str]], small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models[0]["key"] = "secret"
    models.append({"id": "served", "root": str(small_model)})
    with pytest.raises(SetupError, match=r"status 401"):
        load_from_server(models)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert load_from_server(models).values["api_key_env"] == "OPENAI_API_KEY"


@pytest.mark.parametrize(
    ("entries", "options", "words"),
    [
        (["a", "b"], {}, "serves multiple models: a, b"),
        (["a"], {"model": "c"}, "--api-model-name c: server http://127.0.0.1:.* serves a"),
        ([], {}, "lists no models"),
        (["a"], {"reset_cache": True}, "--reset-cache: "),
        (["a"], {"backend": "tgi"}, "--api-dialect tgi: unknown\n  fix: choose from vllm"),
    ],
)
def test_an_unsupported_server_is_refused(
    models: list[dict[str, str]], entries: list[str], options: dict[str, Any], words: str
) -> None:
    models += [{"id": name} for name in entries]
    with pytest.raises((InputError, SetupError), match=words):
        load_from_server(models, own=options)


# Prompts --------------------------------------------------------------------------------------------------------------


def prompts_of(rows: list[bytes]) -> list[list[int]]:
    return [orjson.loads(row)["tok_input"] for row in rows]


def test_synthetic_prompts_are_different_and_reproducible(tmp_path: Path) -> None:
    source = Synthetic("bytes", (3, 9), (4, 6), seed=1)
    rows = source.rows(-5, BLOCK + 20)
    assert rows[5:15] == source.rows(0, 10)
    assert rows != Synthetic("bytes", (3, 9), (4, 6), seed=2).rows(-5, BLOCK + 20)
    prompts = prompts_of(rows)
    assert len(set(map(tuple, prompts))) == len(prompts)
    assert {len(prompt) for prompt in prompts} == set(range(3, 10))
    assert len({tuple(orjson.loads(row)["output_lengths"]) for row in rows}) == 3
    (tmp_path / "data.json").write_bytes(b"[" + b",".join(rows) + b"]")
    assert load_dataset(tmp_path / "data.json", vocab_size=258).prompts == prompts


def test_short_synthetic_prompts_repeat_after_all_combinations() -> None:
    source = Synthetic("bytes", (2, 2), (2, 2), seed=0)
    assert source.total == 52**2
    assert len(set(map(tuple, prompts_of(source.rows(0, source.total))))) == source.total
    assert prompts_of(source.rows(0, 1))[0] == prompts_of(source.rows(source.total, 1))[0]


def file_of(tmp_path: Path, *lines: Any) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_prompts_and_lengths_are_read_from_a_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, {"prompt": "one"}, {"prompt": "two", "output_tokens": 9}, {"prompt": "three"})
    bench = loaded(dataset_path=str(path), output_len="5")
    assert bench.output_len == (2, 9)
    assert not bench.exact_output
    rows = [orjson.loads(row) for row in bench.prompts.rows(1, 3)]
    assert [row["input"] for row in rows] == ["two", "three", "one"]
    assert [row["output_lengths"] for row in rows] == [[2, 9], [2, 5], [2, 5]]
    assert bytes(rows[0]["tok_input"][1:]) == b"two"
    assert repeated_rows(bench, PlannedBenchRun(1, "offline", 3, 0)) == ""
    assert repeated_rows(bench, PlannedBenchRun(3, "offline", 3, first_row=4)) == ""
    warning = "prompts repeat from run 2 on, because the source has only 3 prompts"
    assert repeated_rows(bench, PlannedBenchRun(2, "offline", 3, first_row=3)) == warning
    exact = loaded(dataset_path=str(path), output_len="5", ignore_eos=True)
    assert orjson.loads(exact.prompts.rows(1, 1)[0])["output_lengths"] == [9, 9]


def test_prompts_are_read_from_a_file_of_conversations(tmp_path: Path) -> None:
    path = file_of(tmp_path, {"conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "x"}]})
    bench = loaded(dataset_path=str(path), dataset_name="sharegpt")
    assert orjson.loads(bench.prompts.rows(0, 1)[0])["input"] == "hello"


def test_a_dataset_in_the_mlcommons_format_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps([{"input": "a", "tok_input": [5, 6], "output": "b"}]))
    bench = loaded(dataset_path=str(path))
    assert prompts_of(bench.prompts.rows(0, 2)) == [[5, 6], [5, 6]]
    assert "sampling_arg" not in bench.values


def test_unusable_rows_of_a_file_are_listed_by_line(tmp_path: Path) -> None:
    lines: list[Any] = [{"prompt": "fine"}, "", {"text": "x"}, {"prompt": " "}, {"prompt": "x", "output_tokens": 1}]
    text = mistakes_of(dataset_path=str(file_of(tmp_path, *lines)))
    assert "3 of 4 rows cannot be used: line 3: no prompt; line 4: prompt ' ' is not a text, or empty; line 5" in text
    text = mistakes_of(dataset_path=str(file_of(tmp_path, {"prompt": "x"}, "{", {"prompt": "x"})))
    assert "line 2" in text


def test_prompts_longer_than_the_context_are_listed(tmp_path: Path) -> None:
    path = file_of(tmp_path, {"prompt": "x" * 90}, {"prompt": "y" * 95}, {"prompt": "z"})
    with pytest.raises(InputError, match="1 of 3 rows cannot be used: line 2: 96 tokens; at most 92 fit"):
        read_prompts(path, None, "bytes", 8, exact=False, vocab_size=258, longest=100)


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "kind", "more"),
    [
        ("Server", "server", {"limits": "ttft=400,tpot=40"}),
        ("Interactive", "server", {"limits": "none"}),
        ("Offline", "offline", {}),
    ],
)
def test_a_run_issues_each_row_once(tmp_path: Path, scenario: str, kind: Any, more: dict[str, str]) -> None:
    bench = loaded(scenario=scenario, output_log_dir=str(tmp_path), **more)
    percentile = "p90" if "ttft" in more.get("limits", "") else None
    queries = 70 if percentile else 5  # fewer than LoadGen's early stopping needs at its default percentile
    spec = PlannedBenchRun(3, kind, queries, 0, 200.0 if kind == "server" else None, percentile=percentile)
    output = io.StringIO()
    result = execute_run(write_run_files(bench, spec), Console(file=output, width=200)).result
    assert result.verdict == "VALID", output.getvalue()
    assert not {"will be INVALID", "why:", "early stopping"} & set(output.getvalue().split("  "))
    folder = tmp_path / "runs" / ("03-server-200" if kind == "server" else "03-offline")
    requests = read_request_table(folder / "requests.jsonl")
    assert sorted(requests.sample_index.tolist()) == list(range(queries))
    assert set(requests.output_tokens.tolist()) == {32}


def test_a_dataset_above_the_size_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.bench.run_files.MAX_BYTES", 1000)
    with pytest.raises(SetupError, match="run 1: 100 prompts exceed"):
        write_run_files(loaded(output_log_dir=str(tmp_path)), PlannedBenchRun(1, "offline", 100, 0))


def test_each_response_has_the_length_of_its_row(tmp_path: Path) -> None:
    lines = [{"prompt": f"prompt {number}", "output_tokens": 2 + number} for number in range(7)]
    bench = loaded(dataset_path=str(file_of(tmp_path, *lines)), ignore_eos=True, output_log_dir=str(tmp_path / "bench"))
    bench = replace(bench, values=bench.values | {"replicas": "1"})  # the lengths are also passed to another process
    config = write_run_files(bench, PlannedBenchRun(1, "offline", 7, 0))
    assert any("output tokens of each row" in reason for reason in prepare(config).unofficial_reasons)
    execute_run(config, Console(file=io.StringIO()))
    requests = read_request_table(tmp_path / "bench/runs/01-offline/requests.jsonl")
    assert (requests.output_tokens == 2 + requests.sample_index).all()
