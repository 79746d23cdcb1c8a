"""The two shipped configurations with the real vLLM: configuration → run → row → gate."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qsl.cache import CACHE_VARIABLE
from qsl.embedded.articles import bundled_articles
from runs.errors import ExitCode
from scenarios.commands.gate import gate
from scenarios.commands.store import store
from tests.conftest import ROOT
from tests.support.tiny_llama import make_tiny_llama

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

USER_CONF = "*.Offline.min_duration = 100\n*.Offline.min_query_count = 1\n*.Offline.target_qps = 100\n"
LEG_TIMEOUT_S = 600  # far beyond these legs, also on a busy machine


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [article.article for article in bundled_articles()]
    return make_tiny_llama(tmp_path_factory.mktemp("model") / "tiny-llama", texts)


@pytest.mark.parametrize(
    ("name", "shown", "misdeclared"),
    [("baseline", "auto", ExitCode.OK), ("fp8-kv", "fp8", ExitCode.NEGATIVE)],
)
def test_configuration_to_gate(
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    shown: str,
    misdeclared: ExitCode,
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # a second would only wait, which it does computing
    conf, run, db = tmp_path / "user.conf", tmp_path / "run", tmp_path / "results.sqlite"
    conf.write_text(USER_CONF)
    leg = ["--config", ROOT / "configs" / f"run-{name}.yaml", "--model-path", tiny_model]
    leg += ["--user-conf", conf, "--output-log-dir", run, "--total-sample-count", "8"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "main.py"), "run", *map(str, leg)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LEG_TIMEOUT_S,
    )
    assert done.returncode in (ExitCode.OK, ExitCode.NEGATIVE), done.stdout + done.stderr

    def call(command: Any, *arguments: object) -> int:
        return int(command.main([str(one) for one in arguments], standalone_mode=False))

    declaration = ("--declaration", ROOT / "configs" / f"mechanism-{name}.yaml")
    assert call(store, "ingest", "--db", db, run, *declaration) == ExitCode.OK
    capsys.readouterr()
    call(store, "export", "--db", db, "--format", "json")
    (row,) = json.loads(capsys.readouterr().out)
    assert row["kv_cache_dtype"] == shown
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([row]))
    assert call(gate, rows, "--strict") == ExitCode.OK, capsys.readouterr().out
    assert call(gate, run, *declaration, "--strict") == ExitCode.OK, capsys.readouterr().out
    as_baseline = ("--mechanism", "baseline", "--mechanism-variant", "none")
    assert call(gate, run, *as_baseline) == misdeclared
