"""The measuring programs: they run and write their measurements. No test judges a speed."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from qsl.dataset import load_dataset
from qsl.embedded.articles import bundled_dataset
from runs.errors import ExecutionError
from runs.record.layout import RunDir
from runs.record.requests_log import read_request_table
from sut.vllm.machine import Machine
from tests.support.engines.small_tokenizer import make_tokenizer
from tests.support.processes.patience import until
from tools.peers import endpoints_client, null_path, real_size, sizes
from tools.peers.__main__ import main
from tools.peers.report import PeerPart, at_least, at_most
from tools.peers.support import llm_server as llm_server_module
from tools.peers.support.llm_server import llm_server
from tools.peers.support.models import TINY, make_llama, write_rows
from tools.peers.support.null_run import MIN_QUERIES
from tools.peers.support.peer_runs import engine_plan
from tools.peers.support.programs import measure

SMALLEST = sizes.SMALLEST


def figures(path: Path) -> dict[str, dict[str, object]]:
    """Return the figures of a peers.json with one part, by name."""
    (part,) = json.loads(path.read_text())["parts"]
    return {figure["name"]: figure for figure in part["figures"]}


@pytest.mark.long  # imports torch and transformers
def test_a_single_part_writes_json_and_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "peers.json"
    assert main(["e", "--smallest", "--work-dir", str(tmp_path / "work"), "--json", str(out)]) == 0
    record = json.loads(out.read_text())
    assert record["host"]["cores_usable"] >= 1
    assert record["sizes"]["scored_samples"] == SMALLEST.scored_samples
    by_name = figures(out)
    assert by_name["ours ÷ reference"]["target"] == "≤ 0.6"
    assert by_name["ours"]["median"] in by_name["ours"]["runs"]
    printed = capsys.readouterr().out
    assert "reference procedure" in printed
    assert str(out) in printed


@pytest.mark.long  # LoadGen runs at multiple rates
def test_the_null_path_is_measured_with_and_without_the_harness(tmp_path: Path) -> None:
    part = null_path.run(tmp_path, dataclasses.replace(SMALLEST, null_rates=(500.0, 500.0)))
    assert {figure.name for figure in part.figures} >= {"Server rate held, ours", "Server rate held, bare", "added p99"}
    assert len((tmp_path / "latency-0-ours" / "requests.jsonl").read_text().splitlines()) >= MIN_QUERIES
    assert not (tmp_path / "latency-0-bare" / "requests.jsonl").exists()


@pytest.mark.long  # four runs
def test_a_long_run_of_real_size_is_cut(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.json", SMALLEST.rows, 256)
    engine = {"engine": "dummy", "dummy_slots": 16, "dummy_ttft_ms": 20, "dummy_tpot_ms": 1}  # 2,048 take at least 10 s
    part = real_size.measure_sizes(tmp_path, SMALLEST, {**engine, "dataset_path": str(data)})
    by_name = {figure.name: figure for figure in part.figures}
    assert by_name["loop lag, p99"].median <= by_name["loop lag, worst"].median
    assert by_name["run's memory"].median > 0.01
    assert by_name["rate of the first 4 s"].median > 0
    requests = read_request_table(RunDir(tmp_path / "whole").requests)
    assert 0 < len(requests) < SMALLEST.real_samples


def test_the_highest_rate_is_found_by_halving() -> None:
    rates = null_path.ladder((100.0, 1_000.0))
    assert rates[0] == 100.0
    assert 1_000.0 / null_path.RATE_STEP < rates[-1] <= 1_000.0
    tried: list[float] = []

    def holds_to_400(rate: float) -> bool:
        tried.append(rate)
        return rate <= 400.0

    assert null_path.highest(rates, holds_to_400) == max(rate for rate in rates if rate <= 400.0)
    assert len(tried) <= 5
    assert null_path.highest(rates, lambda rate: False) == 0.0
    assert null_path.highest(rates, lambda rate: True) == rates[-1]


def test_figures_are_medians_and_ratios_are_pairwise() -> None:
    part = PeerPart("x", "an example")
    measured, reference = part.add("ours", "s", [1, 2, 9], at_most(2)), part.add("theirs", "s", [1, 4, 3])
    ratio = part.add_ratio("ratio", measured, reference, at_least(1.5))
    assert (measured.median, measured.met) == (2, True)
    assert (ratio.runs, ratio.median, ratio.met) == ((1.0, 0.5, 3.0), 1.0, False)
    assert part.as_json()["figures"][2]["target"] == "≥ 1.5"
    assert reference.met is None


def test_a_failed_program_is_named_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "scoring.log"
    with pytest.raises(ExecutionError, match="ended with code 1") as caught:
        measure("scoring", "ours", tmp_path / "no-log", log=log)
    assert str(log) in caught.value.fix
    assert "FileNotFoundError" in log.read_text()


def test_the_endpoints_client_runs_only_if_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = PeerPart("l", "an example")
    monkeypatch.delenv(endpoints_client.VARIABLE, raising=False)
    endpoints_client.side_by_side(part, tmp_path, "http://127.0.0.1:1", {}, SMALLEST)
    assert endpoints_client.VARIABLE in part.notes[0]
    assert not part.figures
    model = make_tokenizer(tmp_path / "model")
    common = {"model_path": str(model), "dataset_path": str(bundled_dataset(str(model)))}
    client = endpoints_client.ClientProgram("false", tmp_path / "client", "http://127.0.0.1:1", common)
    with pytest.raises(ExecutionError, match=r"did not complete 8 samples \(code 1\)"):
        client.run("one", {"type": "max_throughput"}, 8)
    rows = (tmp_path / "client" / "prompts.jsonl").read_text().splitlines()
    assert len(rows) == len(load_dataset(Path(common["dataset_path"])).prompts)


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["z"]) == 2
    assert "'z' is not one of 'a', 'b', 'c', 'd', 'e', 'i', 'l', 'm', 't'" in capsys.readouterr().err


@pytest.mark.parametrize(("platform", "engines"), [("cpu", ["+", "leg", "leg", "-"]), ("cuda", ["+", "-", "leg"] * 2)])
def test_an_accelerator_has_one_engine_at_a_time(
    platform: str, engines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    @contextlib.contextmanager
    def llm_server(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        seen.append("+")
        yield SimpleNamespace(ask=lambda command: [1.0])
        seen.append("-")

    monkeypatch.setattr(llm_server_module, "llm_server", llm_server)
    monkeypatch.setattr(llm_server_module, "this_machine", lambda: Machine(platform, 1, [0]))
    plan = engine_plan(tmp_path, {"scenario": "Offline", "engine": "dummy"})
    with llm_server_module.generate_in_turns(tmp_path, plan, [[1]]) as ask:
        for _ in range(2):
            assert ask("all") == [1.0]
            seen.append("leg")
    assert seen == engines


@pytest.mark.long
@pytest.mark.vllm
def test_the_engine_server_responds_and_ends(tmp_path: Path) -> None:
    model = make_llama(tmp_path / "model", TINY)
    options = {"dtype": "float32", "enforce_eager": True, "max_model_len": 512, "enable_prefix_caching": False}
    prompts = [[11] * 50, [12] * 60, [13] * 70]
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    with llm_server(tmp_path, model, options, environment, prompts) as server:
        family = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)]
        batch, single = server.ask("all"), server.ask("one")
        until(
            lambda: all(process.status() == psutil.STATUS_STOPPED for process in family),
            "the stop of all its processes",
        )
    assert (len(batch), len(single), len(family) > 1) == (1, len(prompts), True)
    assert min(*batch, *single) > 0
    until(
        lambda: not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family),
        "their end",
    )
