"""The two shipped configurations with the real vLLM: configuration → run → row → gate."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from runs.errors import ExitCode
from scenarios.commands.gate import gate
from scenarios.commands.store import store
from tests.conftest import ROOT
from tests.vllm.legs import Legs

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
needs_fp8 = pytest.mark.skipif(
    not re.search(r"\b(avx512f|amx_tile)\b", Path("/proc/cpuinfo").read_text()),
    reason="vLLM's CPU build keeps a cache in FP8 on processors with AVX-512 or AMX alone",
)


@pytest.mark.parametrize(
    ("name", "leg", "shown", "misdeclared"),
    [
        ("baseline", "offline", "auto", ExitCode.OK),
        pytest.param("fp8-kv", "fp8-kv", "fp8", ExitCode.NEGATIVE, marks=needs_fp8),
    ],
)
def test_configuration_to_gate(
    legs: Legs,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    leg: str,
    shown: str,
    misdeclared: ExitCode,
) -> None:
    run, db = legs[leg].run.root, tmp_path / "results.sqlite"

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
