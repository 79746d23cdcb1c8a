"""A curve's configuration for the stub of the client, and its server."""

import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from main import main as run_command
from tests.support.mlperf_endpoints.stub_client import SERVER
from tests.support.mlperf_endpoints.table_day import TABLE_DAY, fix_day
from tests.support.servers.http_server import HttpServer, ServerReply, serving

ROWS = 24
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def day_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    fix_day(monkeypatch)
    monkeypatch.setattr("scenarios.curve.curve_config.today", lambda: TABLE_DAY)


@pytest.fixture(scope="package")
def server_url() -> Iterator[str]:
    """A server that only lists its model."""
    with serving(HttpServer("/v1/chat/completions", lambda _: ServerReply([b"{}"]), "test")) as server:
        yield server.url


class CurveFiles:
    """The files of a curve in a directory, and the command."""

    def __init__(self, root: Path, url: str) -> None:
        self.root, self.output = root, root / "curve"
        program = root / "client"
        program.write_text(
            f'#!/bin/sh\ncd {REPOSITORY} && exec {sys.executable} -m tests.support.mlperf_endpoints.stub_client "$@"\n'
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        (root / "prompts.jsonl").write_text(
            "".join(json.dumps({"prompt": f"prompt {row} " * (row + 1)}) + "\n" for row in range(ROWS))
        )
        for name in ("impl", "docs"):
            (root / name).mkdir()
            (root / name / "README.md").write_text("text")
        (root / "system.json").write_text(json.dumps({"system_name": "one"}))
        (root / "server.json").write_text("{}")
        self.values: dict[str, Any] = {
            "server": url, "client": str(program), "model": "model", "tokenizer": "bytes",
            "model_params": {"temperature": 0.0, "max_new_tokens": 128},
            "datasets": [
                {"path": "prompts.jsonl"},
                {"path": "prompts.jsonl", "name": "scored", "type": "accuracy",
                 "accuracy_config": {"eval_method": "string_match"}},
            ],
            "division": "RDI", "seed_set": "A", "target_cohort": "2026-11-C0",
            "disclosures": {"model_precision": "bf16", "link_to_model": "l", "dataset_link": "d"},
            "system": "system.json", "shared_src": "impl", "shared_docs": "docs", "accelerators": 8,
        }  # fmt: skip

    def write(self, **changes: Any) -> Path:
        """Write curve.yaml with changed keys; None removes a key."""
        self.values |= changes
        path = self.root / "curve.yaml"
        path.write_text(yaml.safe_dump({name: value for name, value in self.values.items() if value is not None}))
        return path

    def serve(self, **fields: Any) -> None:
        """Set the fields of the simulated server."""
        (self.root / "server.json").write_text(json.dumps(fields))

    def run(self, *options: str) -> int:
        """Run the command."""
        arguments = ["curve", "--config", str(self.root / "curve.yaml"), "--output-log-dir", str(self.output), *options]
        return int(run_command(arguments))


@pytest.fixture
def curve_files(tmp_path: Path, server_url: str, monkeypatch: pytest.MonkeyPatch) -> CurveFiles:
    files = CurveFiles(tmp_path, server_url)
    monkeypatch.setenv(SERVER, str(tmp_path / "server.json"))
    return files
