"""vLLM as a kind of engine: its options, and the plan of a run from them. This module does not import vLLM."""

import importlib
import math
import os
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from runs.benchmark import OfficialModel
from runs.errors import InputError, SetupError
from runs.files.fields import options_in
from runs.harness import PROGRAM
from runs.record.engines.engine_records import EngineRecord
from runs.record.official_inputs import OTHER_WEIGHTS, option_reasons
from runs.wording import counted
from sut.engine_kind import EngineKind, EnginePlan, ModelPart, RunFacts
from sut.vllm.cpu import (
    CORE_PROCESS,
    check_data_types,
    computes_alone,
    computes_in_core,
    cpu_batch_limits,
    cpu_environment,
    threads_per_rank,
)
from sut.vllm.machine import Machine, likely_machine, machine_at, replica_places, this_machine
from sut.vllm.parallel import Layout, choose_layout, copy_need, parallel_size

if TYPE_CHECKING:
    from runs.record.manifest import ReplicaPlace, RunPlan
    from sut.engine import Engine

_PARALLEL = ("data_parallel_size", "tensor_parallel_size", "pipeline_parallel_size", "distributed_executor_backend")

# Values that an option search tries, around vLLM's defaults on such machines. These options affect timing, never the
# output. The smallest token budget is at least the largest number of sequences, because vLLM refuses smaller ones.
GPU_VALUES: dict[str, tuple[Any, ...]] = {
    "admission": ("fcfs", "deadline", "priority", "shortest", "off"),
    "admission_tokens": (2048, 4096, 8192, 16384, 32768),
    "admission_queries": (64, 128, 256, 512),
    "max_num_batched_tokens": (2048, 4096, 8192, 16384, 32768),
    "max_num_seqs": (128, 256, 512, 1024, 2048),
}
CPU_VALUES: dict[str, tuple[Any, ...]] = {
    "admission": ("fcfs", "deadline", "priority", "shortest", "off"),
    "admission_tokens": (1024, 2048, 4096, 8192),
    "admission_queries": (16, 24, 32, 48),
    "max_num_batched_tokens": (512, 1024, 2048, 4096, 8192),
    "max_num_seqs": (32, 64, 128, 256, 512),
}
# Quantization methods whose weights vLLM can compute with in float32. [vLLM 0.32.0: model_executor/layers/quantization,
# get_supported_act_dtypes]
IN_FLOAT32 = ("compressed-tensors", "torchao")
COPIES = (2, 4, 8)  # numbers of data-parallel ranks to try, if the machine has devices for them
_engine = options_in("engine")


class VllmOptions(BaseModel):
    """Options of vLLM."""

    model_config = ConfigDict(defer_build=True)

    dtype: Literal["auto", "half", "float16", "bfloat16", "float", "float32"] | None = _engine(
        "Data type of the model. Default: bfloat16 on accelerators. On CPUs: float32, if the weights allow it.", "TYPE"
    )
    device: Literal["auto", "cpu", "cuda"] = _engine(
        "Hardware for vLLM: auto = the hardware for which vLLM was built; cpu = no accelerators; cuda = GPUs of "
        "NVIDIA or AMD. Default: auto.",
        default="auto",
    )
    tensor_parallel_size: int | None = _engine(
        "Number of accelerators per replica. Default: the smallest number that fits the model; in SingleStream all; "
        "on CPUs 1.",
        "N",
        ge=1,
    )
    engine_arg: dict[str, Any] = _engine(
        "Any vLLM engine argument. Repeatable. The harness checks the effective value in the running engine.",
        "KEY=VALUE",
        {},
    )


class VllmKind(EngineKind[VllmOptions]):
    """vLLM.

    Args:
        machine: function that returns the machine's devices.
        likely: function that returns the machine without examining its accelerators.
    """

    name = "vllm"
    help = "in this process"
    options = VllmOptions
    record = EngineRecord(named_options=("dtype", "tensor_parallel_size"))
    uses_vllm = True
    has_priorities = True
    _has_server: ClassVar[bool] = False  # whether this process has started the server of sut/vllm/core_process.py

    def __init__(
        self, machine: Callable[[], Machine] = this_machine, likely: Callable[[], Machine] = likely_machine
    ) -> None:
        self._machine = machine
        self._likely = likely

    def plan(self, vllm_options: VllmOptions, run: RunFacts) -> EnginePlan:
        _refuse_contradictions(vllm_options, run)
        machine = self._machine()
        _refuse_machine(vllm_options, machine)
        dtype = vllm_options.dtype or _dtype(run, machine)
        taken = run.cores_taken if machine.on_cpu and machine.engines == 1 else 0
        layout = self.layout(vllm_options, run)
        options: dict[str, Any] = {
            "dtype": dtype,
            **_parallel_options(vllm_options, machine, layout),
            "enable_prefix_caching": False,
            "max_model_len": run.longest_prompt_tokens + run.sampling.max_tokens,
            "disable_log_stats": True,
        }
        if machine.on_cpu:
            # On CPUs, torch.compile takes 30 s at each start and needs a C++ compiler. [docs/engine-options.md]
            options["enforce_eager"] = True
            if run.streamed and run.parameters:
                cores = threads_per_rank(len(machine.cores), taken, layout.copies)
                options |= cpu_batch_limits(
                    vllm_options.engine_arg, run.scenario, parameters=run.parameters, cores=cores
                )
        if run.admission == "priority":
            options["scheduling_policy"] = "priority"
        options |= vllm_options.engine_arg
        if machine.on_cpu:
            check_data_types(options, run.precision, run.quantization)
        return EnginePlan(
            options,
            _environment(options, machine, light=run.light, taken=taken),
            # Kernels for accelerators are compiled and tuned for new shapes, with or without graphs.
            compiles=not (machine.on_cpu and options.get("enforce_eager")),
            unofficial_reasons=_unofficial(options, run.official_model),
            notes=[layout.why] if layout.why else [],
            hints=[_beside_others(len(machine.cores), taken)] if taken else [],
        )

    def layout(self, options: VllmOptions, run: RunFacts) -> Layout:
        """Return the number of data-parallel ranks, and the devices of each, on this machine.

        Raises:
            InputError: If a parallel size is not a whole number from 1.
        """
        machine, arguments = self._machine(), options.engine_arg
        stages = parallel_size(arguments, "pipeline_parallel_size")
        named = _asked_layout(options)
        if machine.on_cpu:
            return named
        dtype = options.dtype or str(arguments.get("dtype", ""))
        cache_dtype = str(arguments.get("kv_cache_dtype", dtype))
        need = copy_need(
            run.model_folder,
            run.parameters,
            run.longest_prompt_tokens + run.sampling.max_tokens,
            value_bytes=_value_bytes(dtype),
            cache_value_bytes=_value_bytes(cache_dtype),
        )
        return choose_layout(
            max(1, machine.devices // stages),
            machine.device_bytes * stages,
            need,
            one_at_a_time=run.scenario == "SingleStream",
            place="device" if stages == 1 else "pipeline",
            copies=named.copies if "data_parallel_size" in arguments else None,
            parts=named.parts if options.tensor_parallel_size or "tensor_parallel_size" in arguments else None,
        )

    def early_environment(self, options: VllmOptions, *, light: bool = False) -> dict[str, str]:
        machine = self._likely()
        return _environment(_parallel_options(options, machine, _asked_layout(options)), machine, light=light)

    def places(self, options: VllmOptions, run: RunFacts, count: int | None) -> "list[ReplicaPlace]":
        machine = self._machine()
        sizes = [parallel_size(options.engine_arg, f"{kind}_parallel_size") for kind in ("tensor", "pipeline", "data")]
        each: int | None = (options.tensor_parallel_size or 1) * math.prod(sizes)
        if each == 1 and options.tensor_parallel_size is None and not machine.on_cpu:
            each = self.layout(options, run).parts if count is None else None
        return replica_places(machine, count, each)

    def wants_replicas(self, options: VllmOptions, run: RunFacts) -> str:
        """Return why replicas are better than vLLM's `data_parallel_size`: with the latter, one loop handles all
        tokens.
        """
        if self._machine().on_cpu or "data_parallel_size" in options.engine_arg:
            return ""
        layout = self.layout(options, run)
        return layout.why if layout.copies > 1 else ""

    def at(self, place: "ReplicaPlace", replicas: int) -> "VllmKind":
        return VllmKind(lambda: machine_at(self._machine(), place, replicas), self._likely)

    def reads(self, options: VllmOptions) -> frozenset[ModelPart]:
        """Return the parts of a model's folder that vLLM loads, unless engine arguments replace them."""
        arguments = options.engine_arg
        other_weights = str(arguments.get("load_format", "auto")).lower() in OTHER_WEIGHTS
        replaced: dict[ModelPart, bool] = {
            "config": bool(arguments.get("hf_overrides") or arguments.get("hf_config_path")),
            "weights": other_weights or bool(arguments.get("model_weights")),
            "tokenizer": bool(arguments.get("tokenizer") or arguments.get("skip_tokenizer_init")),
        }
        return frozenset(part for part, is_replaced in replaced.items() if not is_replaced)

    def longest_sequence(self, options: VllmOptions) -> int | None:
        limit = options.engine_arg.get("max_model_len")
        return limit if type(limit) is int else None

    def search_values(self, options: VllmOptions) -> dict[str, tuple[Any, ...]]:
        machine, devices_a_copy = self._machine(), _asked_layout(options).parts
        usual = CPU_VALUES if machine.on_cpu else GPU_VALUES
        places = len(machine.cores) if machine.on_cpu else machine.devices
        copies = tuple(number for number in COPIES if number * devices_a_copy <= places)
        return {"data_parallel_size": copies, **usual} if copies else dict(usual)

    def start_beside(self) -> None:
        if computes_alone({"distributed_executor_backend": "uni"}, dict(os.environ)):
            from sut.vllm.core_process import start_server

            start_server()
            VllmKind._has_server = True

    def warm_import(self) -> None:
        try:
            importlib.import_module("vllm.v1.engine.async_llm")
        except Exception:  # a broken installation may raise any exception
            traceback.print_exc()

    def make(self, plan: "RunPlan") -> "Engine":
        from sut.vllm.vllm_engine import OneProcessVllmEngine, VllmEngine

        one_at_a_time = (
            plan.scenario == "SingleStream" and parallel_size(plan.engine_options, "data_parallel_size") == 1
        )
        # That class needs vLLM's core in its own process, which only the environment for CPUs allows.
        in_core = one_at_a_time and plan.environment.get(CORE_PROCESS) == "0"
        return (OneProcessVllmEngine if in_core else VllmEngine)(
            plan.model_path,
            dict(plan.engine_options),
            plan.sampling,
            stream_first_token=plan.reports_first_tokens,
            core_by_server=self._has_server
            and plan.replicas is None
            and computes_alone(plan.engine_options, plan.environment),
        )


def _refuse_contradictions(options: VllmOptions, run: RunFacts) -> None:
    for name in ("dtype", "tensor_parallel_size"):
        if name in options.engine_arg and getattr(options, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} and --engine-arg {name} are both set", "remove one of them")
    if "model" in options.engine_arg:
        raise InputError(
            f"--engine-arg model={options.engine_arg['model']}: the manifest would describe another model",
            "give the model with --model-path",
        )
    scheduling = options.engine_arg.get("scheduling_policy", "priority")
    if run.admission == "priority" and scheduling != "priority":
        raise InputError(
            f"--admission priority and --engine-arg scheduling_policy={scheduling} contradict each other",
            "remove the engine argument",
        )


def _dtype(run: RunFacts, machine: Machine) -> str:
    if not machine.on_cpu:
        return "bfloat16" if machine.bfloat16 else "float16"
    method = run.quantization.get("quant_method")
    plain = method is None and not run.precision.startswith(("fp", "int"))
    return "float32" if plain or method in IN_FLOAT32 else "bfloat16"


def _refuse_machine(options: VllmOptions, machine: Machine) -> None:
    """Refuse a machine on which vLLM would fail, and a CPU that was not requested on a machine with accelerators."""
    if machine.on_cpu and machine.unused and options.device != "cpu":
        raise SetupError(
            f"this vLLM is a CPU build and does not use {'; '.join(machine.unused)}",
            "install vLLM's build for it (docs/install.md, `make setup`), or use the CPU with --device cpu",
        )
    if machine.on_cpu and options.device == "cuda":
        raise SetupError(
            "--device cuda: this build of vLLM computes on the CPU",
            "remove --device; on a machine with an NVIDIA GPU, `make clean setup VLLM=gpu`",
        )
    if not machine.on_cpu and options.device == "cpu":
        raise SetupError(
            f"--device cpu: this build of vLLM computes on {machine.platform}", "`make clean setup VLLM=cpu`"
        )
    if not machine.on_cpu and not machine.devices:
        raise SetupError(
            "this build of vLLM is for accelerators, but vLLM finds no usable accelerator",
            f"see `{PROGRAM} doctor`; for a machine without accelerators, `make clean setup VLLM=cpu`",
        )
    if options.device == "cuda" and machine.platform not in ("cuda", "rocm"):
        raise SetupError(f"--device cuda: this build of vLLM computes on {machine.platform}", "remove --device")
    if machine.fault:
        problem, _, fix = machine.fault.partition(": ")
        raise SetupError(problem, fix, cause="machine/vLLM")


def _parallel_options(vllm_options: VllmOptions, machine: Machine, layout: Layout) -> dict[str, Any]:
    """Return the engine options for parallelism; requested values take precedence."""
    options: dict[str, Any] = {"tensor_parallel_size": layout.parts}
    if layout.copies > 1:
        options["data_parallel_size"] = layout.copies
    options |= {name: value for name, value in vllm_options.engine_arg.items() if name in _PARALLEL}
    if machine.on_cpu and computes_in_core(options, len(machine.cores)):
        options["distributed_executor_backend"] = "uni"
    return options


def _asked_layout(options: VllmOptions) -> Layout:
    """Return the value in the options; 1 if they have none."""
    parts = options.tensor_parallel_size or parallel_size(options.engine_arg, "tensor_parallel_size")
    return Layout(parallel_size(options.engine_arg, "data_parallel_size"), parts)


def _value_bytes(dtype: str) -> int:
    return 4 if dtype in ("float32", "float") else 1 if dtype.startswith("fp8") else 2


def _beside_others(cores: int, taken: int) -> str:
    threads = counted(threads_per_rank(cores, taken), "thread")
    return (
        f"other programs use {taken} of {counted(cores, 'core')}, so the engine computes with {threads}, and the trial "
        "offers fewer queries: end the programs, and repeat the trial"
    )


def _environment(options: dict[str, Any], machine: Machine, *, light: bool, taken: int = 0) -> dict[str, str]:
    """Return the environment variables that vLLM, OpenMP and the C library read when they are loaded."""
    environment = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    if machine.on_cpu:
        environment |= cpu_environment(options, machine.cores, machine.engines, light=light, taken=taken)
    else:
        # On CUDA, vLLM forks its engine core by default. A fork of the run's process would keep the locks of its
        # threads.
        environment["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    return environment


def _unofficial(options: dict[str, Any], official: OfficialModel) -> list[str]:
    reasons = []
    if options.get("enable_prefix_caching"):
        reasons.append("prefix caching across queries is forbidden (inference rules, caching)")
    reasons += option_reasons(options)
    if options.get("speculative_config") and not official.speculative_decoding:
        reasons.append(f"speculative decoding is not allowed for {official.name} (inference rules)")
    return reasons
