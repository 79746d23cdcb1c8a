"""A shipped configuration with the real vLLM: configuration → run → row → gate."""

import json
from pathlib import Path
from typing import Any

import pytest

from runs.errors import ExitCode
from scenarios.commands.gate import gate
from scenarios.commands.store import store
from tests.conftest import ROOT
from tests.vllm.legs import Legs

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


def test_configuration_to_gate(legs: Legs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, db = legs["offline"].run.root, tmp_path / "results.sqlite"

    def call(command: Any, *arguments: object) -> int:
        return int(command.main([str(one) for one in arguments], standalone_mode=False))

    declaration = ("--declaration", ROOT / "configs" / "mechanism-baseline.yaml")
    assert call(store, "ingest", "--db", db, run, *declaration) == ExitCode.OK
    capsys.readouterr()
    call(store, "export", "--db", db, "--format", "json")
    (row,) = json.loads(capsys.readouterr().out)
    assert row["kv_cache_dtype"] == "auto"
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([row]))
    assert call(gate, rows, "--strict") == ExitCode.OK, capsys.readouterr().out
    assert call(gate, run, *declaration, "--strict") == ExitCode.OK, capsys.readouterr().out
