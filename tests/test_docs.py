"""The documentation: small enough to be read, and what it tells to type can be typed."""

import importlib
import re
from pathlib import Path

import pytest

from scenarios.command_line.dispatch import COMMANDS
from scripts.bench.__main__ import bench
from tests.conftest import ROOT
from tests.support.command_lines import parse
from tests.support.docs import DOCUMENTS, CommandLine, command_lines

LINES = [line for path in DOCUMENTS for line in command_lines(path)]

# Every command of a page is run by a test, or here is said why not. main.py's are told by their command.
RUN_BY = {
    "init": "tests/test_walk.py",
    "tune": "tests/test_walk.py",
    "anchor": "tests/scenarios/commands/test_anchor_command.py",
    "campaign": "tests/test_walk.py",
    "submit": "tests/compliance/submission/test_submission_build.py",
    "check": "tests/compliance/submission/test_submission_check_command.py",
    "doctor": "tests/test_walk.py",
    "scripts/make_rehearsal_dataset.py": "tests/test_walk.py",
    "run": "tests/scenarios/leg/test_leg.py",
    "audit": "tests/scenarios/audit/test_audit_command.py",
    "verify": "tests/compliance/verify/test_verify.py",
    "report": "tests/scenarios/status/test_report.py",
    "status": "tests/scenarios/status/test_status.py",
    "results": "tests/scenarios/commands/test_json_answers.py",
    "signoff": "tests/scenarios/commands/test_signoff_command.py",
    "gate": "tests/scenarios/commands/test_gate_command.py",
    "quantize": "tests/scenarios/quantize/test_quantize.py",
    "store": "tests/scenarios/commands/test_gate_command.py",
    "scripts/prepare_dataset.py": "tests/qsl/test_prepare.py",
    "scripts/get_model.py": "tests/qsl/test_default_model.py",
    "scripts.bench": "tests/test_bench.py",
    "make setup": "tests/test_setup.py",
    "make bench": "tests/test_bench.py",
}
NOT_RUN = {
    "make setup-quantize": "fetches packages; the steps are those of scripts/setup_quantize.sh",
    "scripts/make_baseline.py": "a quarter of an hour of transformers; what it writes is committed",
    "git": "fetches",
    "hf": "fetches a gated model",
    "ray": "a cluster of two machines; tests/vllm/test_cluster.py has one on this",
    "vllm": "a server of a gated model; tests/vllm/test_endpoint.py starts one of a small model",
    "podman": "no builder on every machine; tests/test_packaging.py runs the steps of the Containerfile",
    "eval": "the shell's; tests/test_packaging.py asks for the completion",
    "cd": "the shell's",
    "export": "the shell's",
    "mkdir": "the shell's",
    "tail": "the shell's",
}


def kind(line: CommandLine) -> str:
    if line.head in ("main.py", "mlperf-llama-vllm"):
        return parse(line.arguments)
    return f"make {line.arguments[0]}" if line.head == "make" else line.head


def test_they_can_be_read_in_an_hour_and_a_half() -> None:
    words = {path.name: len(path.read_text().split()) for path in DOCUMENTS}
    assert sum(words.values()) <= 18_500, words
    start_pages = ("start-gpu.md", "walk.md", "start-server.md", "start-review.md")
    assert max(words[name] for name in start_pages) <= 400
    assert words["README.md"] + words["start-gpu.md"] < 600
    assert words["README.md"] + words["walk.md"] + words["tuning.md"] + words["campaign.md"] < 3_000


@pytest.mark.parametrize("line", LINES, ids=str)
def test_every_command_can_be_typed(line: CommandLine) -> None:
    name = kind(line)
    if line.head.startswith("scripts"):
        if line.head == "scripts.bench":
            bench.make_context("bench", list(line.arguments))
        else:
            program = importlib.import_module(line.head.removesuffix(".py").replace("/", "."))
            program._parser().parse_args(line.arguments)
    elif line.head == "make":
        assert f"\n{line.arguments[0]}:" in (ROOT / "Makefile").read_text()
    elif line.head.endswith(".py") and line.head != "main.py":
        raise AssertionError(f"{line.head} is no program of ours")
    assert name in RUN_BY or name in NOT_RUN, f"{line}: {name}: run it in a test, or say why not"


def test_what_is_said_to_be_run_or_not_is_there() -> None:
    said = {kind(line) for line in LINES}
    assert set(NOT_RUN) <= said
    assert set(RUN_BY) <= said
    for place in RUN_BY.values():
        assert (ROOT / place).is_file()


def test_every_command_has_a_page() -> None:
    assert {kind(line) for line in LINES} >= set(COMMANDS)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_named_files_exist(path: Path) -> None:
    text = path.read_text()
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        page = path.parent / target if target else path
        assert page.exists(), f"{path.name} links to {target}"
        if anchor:
            titles = re.findall(r"(?m)^#+ (.*)$", page.read_text())
            assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, anchor
    for named in re.findall(r"`((?:sut|qsl|runs|scenarios|compliance|scripts|configs|tests)/[\w./-]+)`", text):
        assert (ROOT / named).exists(), f"{path.name} names {named}"
