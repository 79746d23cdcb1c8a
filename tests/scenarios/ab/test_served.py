"""Servers of --serve in benches and comparisons, in real runs."""

import sys
from pathlib import Path

import psutil
import pytest

import mlperf_llama_vllm as api
from runs.ab.ab_record import AB_FILE, read_ab_record
from runs.bench.bench_record import BENCH_FILE, read_bench_record
from runs.errors import ExitCode
from tests.conftest import ROOT, RunMain
from tests.support.servers.http_server import serving
from tests.support.servers.scripted_server import scripted_server

pytestmark = pytest.mark.long  # each command has multiple runs

PROGRAM = "tests.support.servers.served_program"
LENGTHS = ("--tokenizer", "bytes", "--input-len", 16, "--output-len", 8, "--rates", 8)


def command(ttft_ms: int, tpot_ms: int) -> str:
    return f"{sys.executable} -m {PROGRAM} {ttft_ms} {tpot_ms}"


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def are_gone() -> bool:
    return not any(PROGRAM in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))


def test_a_bench_starts_one_server_and_stops_it(run_main: RunMain, tmp_path: Path) -> None:
    finished = run_main("bench", "--serve", command(30, 10), *LENGTHS, "--duration", 2, "-o", tmp_path / "bench")
    assert finished.code == ExitCode.OK
    record = read_bench_record(tmp_path / "bench" / BENCH_FILE)
    assert record.metadata["serve"] == command(30, 10)
    assert len(record.runs) == 1
    assert are_gone()


def test_a_command_that_fails_ends_the_bench_with_its_output(run_main: RunMain, tmp_path: Path) -> None:
    failing = f"{sys.executable} -c \"raise SystemExit('no such model')\""
    finished = run_main("bench", "--serve", failing, *LENGTHS, "-o", tmp_path / "bench")
    assert finished.code == ExitCode.REFUSED
    assert "no such model" in finished.stderr


def test_served_systems_take_turns(run_main: RunMain, tmp_path: Path) -> None:
    run_main("ab", "--serve", command(30, 10), "--serve", command(30, 20), *LENGTHS, "--block", 2, "--max-time", 10,
             "-o", tmp_path / "ab")  # fmt: skip
    record = read_ab_record(tmp_path / "ab" / AB_FILE)
    assert (record.status, record.method) == ("complete", "turns")
    assert [block.systems for block in record.blocks] == [[0], [1]]
    assert record.blocks[0].first_row == record.blocks[1].first_row
    (change,) = [change for change in record.changes if change.quantity == "TPOT mean"]
    assert change.change > 0.5
    assert are_gone()


def test_a_server_that_dies_in_the_middle_ends_the_comparison_with_its_output(
    run_main: RunMain, tmp_path: Path
) -> None:
    finished = run_main("ab", "--serve", command(30, 10), "--serve", f"{command(30, 10)} 75", *LENGTHS, "--block", 4,
                        "--max-time", 60, "-o", tmp_path / "ab")  # fmt: skip
    assert finished.code == ExitCode.FAILED
    assert "status 7: out of memory" in finished.stderr
    assert "Traceback" not in finished.stderr
    record = read_ab_record(tmp_path / "ab" / AB_FILE)
    assert (record.status, record.blocks[0].systems) == ("failed", [0])
    assert are_gone()


def test_running_servers_are_measured_together_and_a_slowdown_fails(tmp_path: Path) -> None:
    with serving(scripted_server(tpot_s=0.01)) as base, serving(scripted_server(tpot_s=0.02)) as changed:
        content = api.ab(base.url, changed.url, *map(str, LENGTHS), "--max-time", "30s", "--fail-if-slower", "3%", "-o",
                         tmp_path / "ab")  # fmt: skip
    assert content["method"] == "interleaved"
    change = next(change for change in content["changes"] if change["quantity"] == "TPOT mean")
    assert (change["verdict"], change["change"] > 0.5) == ("slower", True)
    block = content["blocks"][0]
    assert block["systems"] == [0, 1]
    assert block["run"]["queries"] == 2 * 160


def test_a_server_against_itself_is_not_different_and_a_complete_comparison_is_printed_again(
    run_main: RunMain, tmp_path: Path
) -> None:
    with serving(scripted_server(tpot_s=0.01)) as server:
        words = ("ab", server.url, server.url, *LENGTHS, "--block", 10, "--max-time", 15, "-o", tmp_path / "ab")
        run_main(*words)
        again = run_main(*words)
    record = read_ab_record(tmp_path / "ab" / AB_FILE)
    assert [change.quantity for change in record.changes if change.verdict in ("faster", "slower")] == []
    assert len(record.blocks) == 1
    assert record.sentences[0] in again.stdout
