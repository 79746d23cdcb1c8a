"""The device of vLLM: its own report in another process, with a stand-in for its platform object."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runs.benchmark import Scenario
from runs.errors import SetupError
from sut.vllm.cpu import FEWEST_TOKENS, cpu_batch_limits
from sut.vllm.machine import NO_FLASHINFER, Machine, ask_vllm
from sut.vllm.vllm_kind import VllmKind, VllmOptions
from tests.support.runs.records import run_facts

FACTS = run_facts(parameters=0)
PLATFORM = """
import enum

class Enum(enum.Enum):
    CUDA = ROCM = XPU = TPU = CPU = OOT = UNSPECIFIED = enum.auto()

class Named:
    def __init__(self, name): self.name = name

class current_platform:
    _enum = Named({name!r})
    device_control_env_var = {variable!r}
    supported_dtypes = {dtypes}
    device_count = staticmethod(lambda: {devices})
    get_device_name = staticmethod(lambda device: "device " + str(device))
    get_device_total_memory = staticmethod(lambda device: (80 - device) << 30)
"""

AddPlatform = Callable[..., Machine]


@pytest.fixture
def add_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddPlatform:
    """Return a function that asks a vLLM with the described platform."""

    def ask(
        name: str, devices: int = 0, variable: str = "", dtypes: str = "[]", more: str = "", sampler: bool = False
    ) -> Machine:
        package = tmp_path / "vllm" / "platforms"
        package.mkdir(parents=True)
        (package.parent / "__init__.py").write_text("print('vllm says something')\n")
        (package.parent / "envs.py").write_text(f"VLLM_USE_FLASHINFER_SAMPLER = {sampler}\n")
        text = PLATFORM.format(name=name, devices=devices, variable=variable, dtypes=dtypes)
        (package / "__init__.py").write_text(text + more)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        ask_vllm.cache_clear()
        try:
            return ask_vllm()
        finally:
            ask_vllm.cache_clear()

    return ask


@pytest.mark.parametrize(
    ("name", "variable"),
    [("CUDA", "CUDA_VISIBLE_DEVICES"), ("ROCM", "HIP_VISIBLE_DEVICES"), ("XPU", "ZE_AFFINITY_MASK")],
)
def test_a_platform_with_devices_is_described(name: str, variable: str, add_platform: AddPlatform) -> None:
    machine = add_platform(name, 2, variable, "['torch.bfloat16', 'torch.float16']")
    assert machine.platform == name.lower()
    assert (machine.devices, machine.device_name, machine.visible_variable) == (2, "device 0", variable)
    assert machine.device_bytes == 79 << 30  # the smallest
    assert machine.bfloat16
    assert not machine.on_cpu


def test_unreported_platform_facts_are_unknown(add_platform: AddPlatform) -> None:
    silent = "del current_platform.get_device_name, current_platform.get_device_total_memory\n"
    machine = add_platform("TPU", 4, "TPU_VISIBLE_CHIPS", "['torch.float16']", silent)
    assert (machine.devices, machine.device_name, machine.device_bytes, machine.bfloat16) == (4, "", 0, False)


@pytest.mark.parametrize(
    ("name", "samples", "installed", "fault"),
    [
        ("CUDA", True, False, NO_FLASHINFER),
        ("CUDA", True, True, ""),
        ("CUDA", False, False, ""),
        ("ROCM", True, False, ""),
    ],
)
def test_missing_flashinfer_is_a_fault(
    name: str, samples: bool, installed: bool, fault: str, add_platform: AddPlatform, tmp_path: Path
) -> None:
    if installed:
        (tmp_path / "flashinfer.py").write_text("")
    machine = add_platform(name, 1, sampler=samples)
    assert machine.fault == fault


def test_a_host_with_a_fault_is_refused_before_the_start() -> None:
    machine = Machine("cuda", 1, [0], fault=NO_FLASHINFER)
    with pytest.raises(SetupError, match=r"flashinfer, .*, is not installed") as refused:
        VllmKind(lambda: machine).plan(VllmOptions(), FACTS)
    assert refused.value.fix.endswith("VLLM_USE_FLASHINFER_SAMPLER=0")


@pytest.mark.parametrize("name", ["UNSPECIFIED", "CPU"])
def test_only_the_cpu_platform_has_no_devices(name: str, add_platform: AddPlatform) -> None:
    machine = add_platform(name, 3)
    assert machine.devices == 0
    assert machine.on_cpu == (name == "CPU")


def test_a_vllm_that_cannot_be_imported_is_refused(add_platform: AddPlatform) -> None:
    with pytest.raises(SetupError, match=r"vLLM does not report its devices: ImportError: libcudart\.so"):
        add_platform("CUDA", more="raise ImportError('libcudart.so.12: cannot open')\n")


@pytest.mark.parametrize(
    ("machine", "device", "words"),
    [
        (Machine("cpu", 0, [0], unused=("MI300X",)), "auto", "CPU build and does not use MI300X"),
        (Machine("unspecified", 0, [0]), "auto", "finds no usable accelerator"),
        (Machine("rocm", 8, [0]), "cpu", "--device cpu: this build of vLLM computes on rocm"),
        (Machine("cpu", 0, [0]), "cuda", "--device cuda: this build of vLLM computes on the CPU"),
        (Machine("xpu", 8, [0]), "cuda", "--device cuda: this build of vLLM computes on xpu"),
    ],
)
def test_a_device_unused_by_the_vllm_build_is_refused(machine: Machine, device: str, words: str) -> None:
    with pytest.raises(SetupError, match=words):
        VllmKind(lambda: machine).plan(VllmOptions(device=device), FACTS)  # type: ignore[arg-type]  # a Literal


def test_the_cpu_is_used_if_requested() -> None:
    machine = Machine("cpu", 0, [0], unused=("MI300X",))
    assert VllmKind(lambda: machine).plan(VllmOptions(device="cpu"), FACTS).options["dtype"] == "float32"


@pytest.mark.parametrize("platform", ["cuda", "rocm", "xpu", "tpu", "oot"])
@pytest.mark.parametrize("bfloat16", [True, False])
def test_accelerators_have_no_cpu_options(platform: str, bfloat16: bool) -> None:
    machine = Machine(platform, 1, [0, 1], bfloat16=bfloat16)
    plan = VllmKind(lambda: machine).plan(VllmOptions(), FACTS)
    assert plan.options["dtype"] == ("bfloat16" if bfloat16 else "float16")
    assert "enforce_eager" not in plan.options
    assert not any("CPU" in name or name.startswith(("OMP", "MALLOC")) for name in plan.environment)
    assert plan.environment["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert plan.compiles


@pytest.mark.vllm
def test_the_installed_vllm_reports_its_platform() -> None:
    assert ask_vllm().platform == "cpu"


@pytest.mark.parametrize(
    ("scenario", "parameters", "cores", "tokens"),
    [
        ("Server", 400_000, 2, 2048),
        ("Interactive", 400_000, 2, 1024),
        ("Server", 9_500_000, 2, 768),  # 842 in time
        ("Server", 9_500_000, 4, 1664),
        ("Interactive", 9_500_000, 4, FEWEST_TOKENS),  # 505 in time
        ("Server", 8_000_000_000, 128, FEWEST_TOKENS),
    ],
)
def test_a_prompt_step_is_limited_by_its_time(scenario: Scenario, parameters: int, cores: int, tokens: int) -> None:
    limits = cpu_batch_limits({}, scenario, parameters=parameters, cores=cores)
    assert limits == {"max_num_seqs": 512, "max_num_batched_tokens": tokens}


def test_a_step_has_room_for_one_token_of_each_query() -> None:
    limits = cpu_batch_limits({"max_num_seqs": 800}, "Server", parameters=9_500_000, cores=2)
    assert limits["max_num_batched_tokens"] == 800
