"""Findings of `doctor` on described hosts."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from qsl.cache import CACHE_VARIABLE
from runs.errors import ExitCode, InputError
from runs.machine.gpu_state import GpuState
from scenarios.commands.doctor import print_findings
from scenarios.launch import machine_checks
from scenarios.launch.machine_checks import DoctorRequest, examine_machine
from sut.vllm.machine import NO_FLASHINFER, Machine

GPU = {"vendor": "NVIDIA", "name": "H100", "memory.total": "81559", "driver_version": "570"}
LOADGEN = {
    "version": "6.0.17",
    "extension": "/lib/mlperf_loadgen.so",
    "extension_sha256": "0123456789ab" + "c" * 52,
    "build": {"kind": "wheel", "compiler": None, "pybind11": None},
}
H100 = Machine("cuda", 2, [0, 1], "H100", 80 << 30, "CUDA_VISIBLE_DEVICES")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that describes a host. Facts that are not given are without fault."""

    def describe(**facts: Any) -> None:
        replaced = {
            "accelerators": [],
            "software_versions": {"vllm": "0.32.0", "torch": "2.13.0"},
            "loadgen_facts": LOADGEN,
            "vllm_is_cpu_build": False,
            "this_machine": H100,
            **facts,
        }
        specs = replaced.pop("specs", {"vllm": True, "mlperf_loadgen": True})
        states = replaced.pop("states", [])
        monkeypatch.setattr(machine_checks, "gpu_states", lambda rows: states)
        for name, value in replaced.items():
            monkeypatch.setattr(machine_checks, name, lambda value=value: value)
        # Transformers, which loads a tokenizer, would find no installed package.
        monkeypatch.setattr("importlib.util.find_spec", lambda name: specs.get(name))
        monkeypatch.setattr(machine_checks, "load_tokenizer", lambda name: None)

    return describe


def check_states(model: str | None = None, dataset: Path | None = None) -> dict[str, tuple[str, str]]:
    return {
        finding.slug: (finding.severity, finding.text) for finding in examine_machine(DoctorRequest(model, dataset))
    }


def test_a_complete_host_passes_all_checks(machine: Callable[..., None]) -> None:
    machine(accelerators=[GPU], harness_facts={"version": "0.1.0", "git_commit": "ab" * 20, "git_changed": True})
    checks = check_states()
    assert checks["harness"] == ("pass", "0.1.0, commit abababababab (changed)")
    assert checks["accelerator"] == ("pass", "H100, 81559 MiB, driver 570")
    assert "2 × H100, 80 GiB each" in checks["vLLM"][1]
    assert checks["LoadGen"][0] == checks["vLLM"][0] == checks["data-set"][0] == "pass"
    assert "vllm 0.32.0 with torch 2.13.0" in checks["vLLM"][1]
    assert "MISSING" not in report(ExitCode.OK)


def test_an_unusable_cache_folder_does_not_hide_other_checks(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine()
    monkeypatch.setenv(CACHE_VARIABLE, "/dev/null/cache")
    checks = check_states()
    severity, text = checks["cache"]
    assert severity == "error"
    assert text.startswith(f"cache folder /dev/null/cache cannot be created: Not a directory; set {CACHE_VARIABLE} to")
    assert checks["data-set"][0] == "pass"


@pytest.mark.parametrize(("in_checkout", "why"), [(True, "safe.directory"), (False, "not a git checkout")])
def test_a_missing_commit_is_noted_with_its_consequence(
    in_checkout: bool, why: str, machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(harness_facts={"version": "0.1.0", "git_commit": None, "git_changed": None})
    monkeypatch.setattr(machine_checks, "IN_CHECKOUT", in_checkout)
    severity, text = check_states()["harness"]
    assert severity == "note"
    assert why in text
    assert "`submit` will require --source DIR" in text


@pytest.mark.parametrize(
    ("build", "text"),
    [
        ({"kind": "wheel", "compiler": None, "pybind11": None}, "wheel"),
        (
            {"kind": "source", "compiler": "g++ 12.2.0", "pybind11": "2.11.1"},
            "built from source with g++ 12.2.0 and pybind11 2.11.1",
        ),
        ({"kind": "source", "compiler": None, "pybind11": None}, "built from source without `make setup`"),
    ],
)
def test_the_build_of_loadgen_is_reported(
    machine: Callable[..., None], build: dict[str, str | None], text: str
) -> None:
    machine(loadgen_facts=LOADGEN | {"build": build})
    expected = f"mlcommons-loadgen 6.0.17, {text}, SHA-256 0123456789ab, /lib/mlperf_loadgen.so"
    assert check_states()["LoadGen"] == ("pass", expected)


def report(code: ExitCode) -> str:
    text = io.StringIO()
    assert print_findings(Console(file=text, width=80), DoctorRequest()) == code
    return text.getvalue()


@pytest.mark.parametrize(
    ("facts", "subject", "words"),
    [
        ({"loadgen_facts": {"version": None, "extension": None}, "specs": {"vllm": True}}, "LoadGen", "make setup"),
        ({"software_versions": {}}, "vLLM", "only --engine dummy can run"),
        ({"specs": {}}, "vLLM", "make setup"),
        ({"this_machine": Machine("unspecified", 0, [0])}, "vLLM", "(platform: unspecified)"),
        ({"this_machine": Machine("cuda", 1, [0], fault=NO_FLASHINFER)}, "vLLM", "VLLM_USE_FLASHINFER_SAMPLER=0"),
        ({"vllm_is_cpu_build": True, "specs": {"vllm": True, "torchaudio": True}}, "package", "torchaudio breaks"),
    ],
)
def test_each_missing_part_is_an_error(
    facts: dict[str, Any], subject: str, words: str, machine: Callable[..., None]
) -> None:
    machine(**facts)
    state, text = check_states()[subject]
    assert state == "error"
    assert words in text
    assert f"MISSING  {subject}" in report(ExitCode.REFUSED)


def test_a_cpu_build_beside_an_accelerator_is_noted(machine: Callable[..., None]) -> None:
    idle = Machine("cpu", 0, [0], unused=("H100, 81559 MiB",))
    machine(accelerators=[GPU], vllm_is_cpu_build=True, this_machine=idle)
    state, text = check_states()["vLLM"]
    assert state == "note"
    assert "does not use H100, 81559 MiB" in text
    machine(vllm_is_cpu_build=True, this_machine=Machine("cpu", 0, [0]))
    assert check_states()["vLLM"][0] == "pass"


def test_a_missing_vendor_tool_is_noted(machine: Callable[..., None]) -> None:
    machine(accelerators=[{"vendor": "AMD", "index": "0", "name": None, "problem": "amdsmi cannot be imported"}])
    state, text = check_states()["accelerator"]
    assert state == "note"
    assert text == "AMD device 0, without facts: amdsmi cannot be imported"


def test_the_state_of_gpus_is_stated_once_for_equal_gpus(machine: Callable[..., None]) -> None:
    usual = GpuState(0, "GPU-a", 700.0, 700.0, 1980.0, 1980.0, (), True, False, 4.0, 0, "PCIe Gen5 x16", 18)
    limited = replace(usual, index=2, uuid="GPU-c", power_limit_w=500.0, used_mib=70_012.0, processes=1)
    machine(accelerators=[GPU], states=[usual, replace(usual, index=1, uuid="GPU-b"), limited])
    rows = [(row.severity, row.text) for row in examine_machine(DoctorRequest()) if row.slug == "accelerator"][1:]
    assert [text.partition(":")[0] for _, text in rows] == ["GPU 0, 1, 2", "GPU 2", "GPU 2"]
    assert [severity for severity, _ in rows] == ["pass", "note", "note"]
    assert "accelerator_interconnect NVLink (18 links)" in rows[0][1]
    assert "power limit 500 W" in rows[1][1]
    assert "hw_notes" in rows[1][1]
    assert "70,012 MiB" in rows[2][1]


def test_the_model_folder_is_described(machine: Callable[..., None], small_model: Path) -> None:
    machine()
    state, text = check_states(str(small_model))["model"]
    assert state == "note"
    assert "300 IDs, 200 positions; not Llama-3.1-8B" in text
    assert check_states(str(small_model / "none"))["model"][0] == "error"


def test_a_tokenizer_that_cannot_be_loaded_is_an_error(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, small_model: Path
) -> None:
    machine()

    def refuses(name: str) -> None:
        raise InputError(f"no tokenizer could be loaded from {name}", "fetch it")

    monkeypatch.setattr(machine_checks, "load_tokenizer", refuses)
    assert check_states(str(small_model))["model"] == (
        "error",
        f"no tokenizer could be loaded from {small_model}; fetch it",
    )


def test_the_dataset_is_described(machine: Callable[..., None], make_dataset: Callable[..., Path]) -> None:
    machine()
    state, text = check_states(None, make_dataset([1, 2], [3]))["data-set"]
    assert state == "note"
    assert "2 rows, longest prompt 2 tokens" in text
    assert "(5,000, 13,368, 24,576)" in text
    state, text = check_states(None, make_dataset(*[[1]] * 5000))["data-set"]
    assert state == "pass"
    assert "the row count of llama3.1-8b-edge" in text
    state, text = check_states(None, Path("none.json"))["data-set"]
    assert state == "error"
    assert "none.json" in text
