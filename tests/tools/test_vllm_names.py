"""The names and signatures of vLLM that the engine uses, read from its files without an import."""

import ast
import importlib.util
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import ROOT
from tools.vllm_names import USES, VERSIONS, lacking, locked_version, main

FOUND = importlib.util.find_spec("vllm")  # does not import it
INSTALLED = Path(str(FOUND.origin)).parents[1] if FOUND is not None else Path()


def read(path: str) -> str | None:
    file = INSTALLED / path
    return file.read_text() if file.is_file() else None


@pytest.mark.skipif(FOUND is None, reason="vLLM is not installed")
def test_the_installed_vllm_has_all_used_names() -> None:
    assert lacking(read) == []


@pytest.mark.skipif(FOUND is None, reason="vLLM is not installed")
@pytest.mark.parametrize(
    ("path", "before", "after", "missing"),
    [
        ("vllm/sampling_params.py", "detokenize", "decode", "vllm.SamplingParams.detokenize is missing"),
        ("vllm/sampling_params.py", "FINAL_ONLY", "LAST", "RequestOutputKind.FINAL_ONLY is missing"),
        ("vllm/usage/usage_lib.py", "class UsageContext", "class Context", "usage_lib.UsageContext is missing"),
        ("vllm/v1/engine/async_llm.py", "request_id", "name", "generate: positional parameters prompt, "),
        ("vllm/v1/engine/llm_engine.py", "priority", "rank", "LLMEngine.add_request: parameter priority is missing"),
        ("vllm/v1/engine/llm_engine.py", "def step(self)", "def step(self, now)", "step: parameter now is required"),
        ("vllm/v1/engine/async_llm.py", "def from_engine_args", "def from_args", ".from_engine_args is missing"),
        ("vllm/envs.py", "environment_variables", "variables", "vllm.envs.environment_variables is missing"),
    ],
)  # fmt: skip
def test_names_missing_in_another_version_are_reported(path: str, before: str, after: str, missing: str) -> None:
    def changed(name: str) -> str | None:
        text = read(name)
        return text.replace(before, after) if text and name == path else text

    assert any(missing in text for text in lacking(changed)), lacking(changed)


def test_each_import_of_the_vllm_interface_is_checked() -> None:
    tree = ast.parse((ROOT / "sut/vllm/interface.py").read_text())
    imports = [
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and str(node.module).startswith("vllm")
    ]
    used = {(node.module, alias.name) for node in imports for alias in node.names} - {("vllm", "envs")}
    assert len(used) > 5
    assert used <= {(use.module, use.name) for use in USES}


def test_a_version_without_a_wheel_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1, stderr="no such version\n"))
    assert main(["9.9.9"]) == 3
    assert capsys.readouterr().out == "vLLM 9.9.9: skipped: no such version\n"


@pytest.mark.long
@pytest.mark.parametrize("version", dict.fromkeys((*VERSIONS, locked_version())))
def test_each_listed_version_has_all_used_names(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main([version])
    output = capsys.readouterr().out
    if code == 3:
        pytest.skip(output)
    assert code == 0, output
