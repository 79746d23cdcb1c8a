"""Runs over HTTP against the real vLLM server: equal IDs, and the end of a run when the server dies."""

import contextlib
import json
import socket
import subprocess
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from runs.errors import ExitCode
from runs.harness import HARNESS_ROOT
from runs.loadgen.accuracy_log import read_accuracy_log
from tests.conftest import StartMain
from tests.support.engines.engine_turn import engine_turn
from tests.support.engines.greedy import GreedyResponse
from tests.support.processes.patience import until
from tests.support.runs.run_commands import check_failed, is_running, progress, run_pid
from tests.support.servers.manipulations import ROWS
from tests.sut.http.endpoint_runs import SAMPLING, probe_server
from tests.vllm.vllm_runs import FinishedVllmRun, execute_run

pytestmark = pytest.mark.vllm

SERVER = "serve {model} --port {port} --dtype float32 --enforce-eager --max-model-len 4096 --no-enable-prefix-caching"
CONF = "*.Offline.min_duration = 1000\n*.Offline.target_qps = 100\n"
CONF += "*.Server.min_duration = 60000\n*.Server.target_qps = 5\n"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _command(model: Path, run_dir: Path, port: int, *arguments: str, command: str = "run") -> list[str]:
    conf = run_dir.with_suffix(".conf")
    conf.write_text(CONF)
    server = ["--engine", "endpoint", "--api-server", f"http://127.0.0.1:{port}"]
    options = ["--model-path", str(model), "--user-conf", str(conf), "--output-log-dir", str(run_dir)]
    return [sys.executable, str(HARNESS_ROOT / "main.py"), command, *server, *options, *arguments]


@contextlib.contextmanager
def _running(model: Path, folder: Path, *options: str) -> Iterator[int]:
    """Start a vLLM server. Yield its port."""
    port = _free_port()
    words = [*SERVER.format(model=model, port=port).split(), *options]
    log = folder / "server.log"
    with log.open("wb") as output:
        command = [str(Path(sys.executable).with_name("vllm")), *words]
        server = psutil.Popen(command, cwd=HARNESS_ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        with engine_turn:
            until(lambda: _listens(port) or server.poll() is not None, "the server", log=log)
        assert server.poll() is None, log.read_text()
        yield port
    finally:
        for process in [*server.children(recursive=True), server]:
            process.kill()
        server.wait()


@pytest.fixture(scope="module")
def port(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Start a server for the dialects of token IDs and of text. The tiny model has no chat template."""
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    options = ("--enable-scale-out", "--chat-template", template)
    with _running(tiny_model, tmp_path_factory.mktemp("server"), *options) as port:
        yield port


@pytest.mark.parametrize(("scenario", "dialect"), [("Offline", "vllm"), ("Server", "vllm"), ("Server", "vllm-tokens")])
def test_responses_over_http_equal_those_in_the_process(
    scenario: str, dialect: str, port: int, tiny_model: Path, responses: list[GreedyResponse], tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    named = ("--api-dialect", dialect) if dialect == "vllm" else ()  # the other dialect is detected
    arguments = ("--scenario", scenario, "--accuracy", *named, "--total-sample-count", "24")
    run: FinishedVllmRun = execute_run(_command(tiny_model, run_dir, port, *arguments), run_dir)
    assert run.exit_code in (ExitCode.OK, ExitCode.NEGATIVE), run
    entries = read_accuracy_log(run.dir.accuracy_log)
    assert len(entries) == 24
    for entry in entries:
        assert responses[entry.qsl_idx].matches(array("i", entry.data).tolist())
    (observed,) = [engine["client"] for engine in run.manifest["observed"]["engines"]]
    assert observed["answers"] == 24
    assert observed["cached_tokens_by_metrics"] == 0
    assert observed["tokens_by_metrics"] == observed["tokens_that_came"]
    assert run.manifest["engine"]["configuration"]["dialect"] == dialect
    assert run.manifest["engine"]["configuration"]["told_by_the_server"]["prefix_caching"] is False
    assert run.manifest["engine"]["configuration"]["probes"]["min_tokens_honoured"] is True


def test_a_run_on_the_chat_route_counts_its_tokens(port: int, tiny_model: Path, tmp_path: Path) -> None:
    run_dir, exact = tmp_path / "run", ("--max-new-tokens", "16", "--sampling-arg", "min_tokens=16")
    arguments = ("--scenario", "Server", "--accuracy", "--total-sample-count", "24", "--api-dialect", "openai-chat")
    run = execute_run(_command(tiny_model, run_dir, port, *arguments, *exact), run_dir)
    assert run.exit_code in (ExitCode.OK, ExitCode.NEGATIVE), run
    assert any("sends text (dialect openai-chat)" in reason for reason in run.manifest["unofficial_reasons"])
    (observed,) = [engine["client"] for engine in run.manifest["observed"]["engines"]]
    text = observed["text"]
    assert text["responses_with_usage"] == observed["answers"] == 24
    assert text["tokens_by_usage"] == 24 * 16  # vLLM honors ignore_eos
    assert text["prompt_tokens_by_usage"] == text["prompt_tokens_sent"]
    assert (text["short"], text["long"], text["empty"]) == (0, 0, 0)
    assert observed["answers_read_at_once"] < 24


@pytest.mark.parametrize("dialect", ["vllm", "vllm-tokens"])
async def test_each_proxy_manipulation_fails_or_is_recorded(dialect: str, port: int) -> None:
    # Long enough that the first event never has the complete response, however late the front end of the server is.
    sampling = SAMPLING.model_copy(update={"min_tokens": 90, "max_tokens": 96})
    for name, row in ROWS.items():
        try:
            await probe_server(f"http://127.0.0.1:{port}", row, dialect=dialect, sampling=sampling)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.long  # three runs or more
@pytest.mark.parametrize("reuses", [True, False])
def test_the_audit_detects_prefix_caching(reuses: bool, tiny_model: Path, tmp_path: Path) -> None:
    with _running(tiny_model, tmp_path, *(("--enable-prefix-caching",) if reuses else ())) as port:
        arguments = ("--scenario", "Offline", "--test", "output_caching")
        audit = execute_run(_command(tiny_model, tmp_path / "out", port, *arguments, command="audit"), tmp_path / "out")
    assert audit.exit_code == (ExitCode.NEGATIVE if reuses else ExitCode.OK), audit
    (record,) = (tmp_path / "out").rglob("audit_output_caching.json")
    assert json.loads(record.read_bytes())["passed"] is not reuses
    for path in (tmp_path / "out").rglob("manifest.json"):
        reasons = json.loads(path.read_bytes())["unofficial_reasons"]
        assert any("prefix caching is on" in reason for reason in reasons) is reuses


def test_a_killed_server_ends_the_run(tiny_model: Path, start_main: StartMain, tmp_path: Path) -> None:
    out, port = tmp_path / "run", _free_port()
    serve = f"vllm {SERVER.format(model=tiny_model, port=port)}"
    words = _command(tiny_model, out, port, "--scenario", "Server", "--target-qps", "20", "--serve", serve)[2:]
    with engine_turn:
        started = start_main(*words, anew=True)
        until(lambda: progress(out).get("samples_per_second"), "responses", process=started.process)
    run = psutil.Process(run_pid(out))
    family = run.children(recursive=True)
    (client,) = [child for child in run.children() if "sut.replicas.replica" in child.cmdline()]
    (server,) = client.children()
    server.kill()
    finished = started.wait()
    until(lambda: not any(map(is_running, family)), "the end of all processes")
    check_failed(finished, out, ExitCode.FAILED, "server")
    assert (out / "server.log").stat().st_size > 0
