"""The plan of vLLM, tested without vLLM."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runs.errors import InputError
from scenarios.launch.plan import PreparedRun, prepare
from scenarios.launch.run_config import make_config
from sut.engines import make_engine
from sut.vllm.cpu import computes_in_core, core_binding, cpu_environment
from sut.vllm.machine import Machine
from sut.vllm.vllm_engine import OneProcessVllmEngine, VllmEngine
from sut.vllm.vllm_kind import VllmKind

ON_CPU = Machine("cpu", 0, [0, 1])


@pytest.fixture
def for_vllm(
    small_model: Path, make_dataset: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., PreparedRun]:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    path = make_dataset([1] * 10, [2] * 20)
    common = {"scenario": "Offline", "engine": "vllm", "model_path": str(small_model), "dataset_path": path}

    def prepared(machine: Machine = ON_CPU, cores_taken: int = 0, **values: object) -> PreparedRun:
        config = make_config({**common, **values})
        return prepare(config, lambda text: None, VllmKind(lambda: machine), cores_taken=lambda: cores_taken)

    return prepared


def test_the_cpu_plan_has_float32_and_one_rank(for_vllm: Callable[..., PreparedRun]) -> None:
    options = for_vllm().plan.engine_options
    assert options["dtype"] == "float32"
    assert options["tensor_parallel_size"] == 1
    assert options["enable_prefix_caching"] is False
    assert options["max_model_len"] == 20 + 128
    assert for_vllm(dtype="bfloat16").plan.engine_options["dtype"] == "bfloat16"
    assert for_vllm().plan.environment["MALLOC_MMAP_MAX_"] == "0"
    assert for_vllm().plan.environment["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"


def test_a_single_cpu_rank_computes_in_the_scheduler_process(for_vllm: Callable[..., PreparedRun]) -> None:
    machine = Machine("cpu", 0, [2, 3, 6])
    alone = for_vllm(machine).plan
    assert alone.engine_options["distributed_executor_backend"] == "uni"
    assert alone.environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert alone.environment["OMP_NUM_THREADS"] == "3"
    assert alone.environment["OMP_PLACES"] == "{2,3,6}"
    copies = for_vllm(machine, engine_arg={"data_parallel_size": 2}).plan
    assert copies.engine_options["distributed_executor_backend"] == "uni"
    assert copies.environment["OMP_NUM_THREADS"] == "1"
    assert "OMP_PLACES" not in copies.environment  # all ranks have the same variables
    for worker in ({"distributed_executor_backend": "mp"}, {"tensor_parallel_size": 2}):
        plan = for_vllm(machine, engine_arg=worker).plan
        assert plan.engine_options.get("distributed_executor_backend", "mp") == "mp"
        assert not any(name.startswith("OMP") or "MULTIPROCESSING" in name for name in plan.environment)


@pytest.mark.parametrize(("cores", "taken", "threads"), [(2, 1, 1), (2, 2, 1), (1, 1, 1), (16, 3, 13)])
def test_a_trial_uses_one_thread_for_each_free_core(
    for_vllm: Callable[..., PreparedRun], cores: int, taken: int, threads: int
) -> None:
    machine = Machine("cpu", 0, list(range(cores)))
    busy, idle = (for_vllm(machine, number, scenario="Server") for number in (taken, 0))
    assert busy.is_trial
    assert busy.plan.environment["OMP_NUM_THREADS"] == str(threads)
    assert busy.plan.environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"  # other cores may be free in the next moment
    assert [f"other programs use {taken} of " in hint for hint in busy.hints] == [True]
    assert idle.plan.environment["OMP_NUM_THREADS"] == str(cores)
    assert idle.hints == []


def test_a_run_with_a_rate_uses_all_cores(for_vllm: Callable[..., PreparedRun]) -> None:
    plans = [for_vllm(cores_taken=number, scenario="Server", target_qps=1.0).plan for number in (0, 1)]
    assert plans[0] == plans[1]


def test_multiple_workers_share_the_free_cores() -> None:
    environment = cpu_environment({"tensor_parallel_size": 2}, list(range(8)), taken=2)
    assert (environment["OMP_NUM_THREADS"], environment["VLLM_CPU_OMP_THREADS_BIND"]) == ("3", "nobind")


def test_only_single_stream_on_a_cpu_runs_vllm_in_the_run_process(for_vllm: Callable[..., PreparedRun]) -> None:
    def engine_class(machine: Machine = ON_CPU, **values: object) -> type:
        return type(make_engine(for_vllm(machine, **values).plan))

    assert engine_class(scenario="SingleStream") is OneProcessVllmEngine
    for scenario in ("Offline", "Server", "Interactive"):
        assert engine_class(scenario=scenario) is VllmEngine
    for worker in ({"distributed_executor_backend": "mp"}, {"tensor_parallel_size": 2}, {"data_parallel_size": 2}):
        assert engine_class(scenario="SingleStream", engine_arg=worker) is VllmEngine
    assert engine_class(Machine("cuda", 1, [0, 1]), scenario="SingleStream") is VllmEngine


def test_environment_variables_of_the_user_take_precedence(
    for_vllm: Callable[..., PreparedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert any(
        note == "environment variable OMP_NUM_THREADS=1 overrides the harness default 2" for note in for_vllm().notes
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert not any("OMP_NUM_THREADS" in note for note in for_vllm().notes)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    assert "distributed_executor_backend" not in for_vllm().plan.engine_options


def test_data_parallel_ranks_with_many_cores_have_worker_processes() -> None:
    assert computes_in_core({}, 64)
    assert computes_in_core({"data_parallel_size": 4}, 16)
    assert not computes_in_core({"data_parallel_size": 2}, 16)
    assert not computes_in_core({"pipeline_parallel_size": 2}, 2)


@pytest.mark.parametrize(("gpus", "size_of_two"), [(1, 1), (3, 1), (16, 8)])
def test_the_gpu_plan_has_bfloat16_and_no_cpu_variables(
    gpus: int, size_of_two: int, for_vllm: Callable[..., PreparedRun]
) -> None:
    machine = Machine("cuda", gpus, [0, 1], device_bytes=80 << 30, visible_variable="CUDA_VISIBLE_DEVICES")
    run = for_vllm(machine)
    options = run.plan.engine_options
    assert options["dtype"] == "bfloat16"
    assert options["tensor_parallel_size"] == 1
    assert "data_parallel_size" not in options
    assert not any(name.startswith("VLLM_CPU") for name in run.plan.environment)
    assert run.plan.warmup_prompts > for_vllm().plan.warmup_prompts  # it compiles
    if gpus == 1:
        assert run.plan.replicas is None
        assert run.notes[0].startswith("LoadGen settings")
    else:
        devices = [place.variables["CUDA_VISIBLE_DEVICES"] for place in run.plan.replicas.places]
        assert devices == [str(device) for device in range(gpus)]
        assert run.notes[0].startswith(f"{gpus} devices: {gpus} copies of the model")
    if gpus > 1:
        copies = for_vllm(machine, engine_arg={"data_parallel_size": 2}).plan.engine_options
        assert copies["tensor_parallel_size"] == size_of_two  # each rank has its share
    alone = for_vllm(machine, tensor_parallel_size=1, engine_arg={"data_parallel_size": 1}).plan.engine_options
    assert (alone["data_parallel_size"], alone["tensor_parallel_size"]) == (1, 1)
    stream = for_vllm(machine, scenario="SingleStream").plan
    assert stream.replicas is None
    assert stream.engine_options["tensor_parallel_size"] == min(8, 1 << (gpus.bit_length() - 1))


def test_options_given_twice_are_refused(for_vllm: Callable[..., PreparedRun]) -> None:
    with pytest.raises(InputError, match="--dtype and --engine-arg dtype"):
        for_vllm(dtype="half", engine_arg={"dtype": "half"})
    with pytest.raises(InputError, match="--model-path"):
        for_vllm(engine_arg={"model": "other"})
    with pytest.raises(InputError, match="tensor_parallel_size=many"):
        for_vllm(engine_arg={"tensor_parallel_size": "many"})


def test_priority_admission_sets_the_scheduling_policy(for_vllm: Callable[..., PreparedRun]) -> None:
    assert for_vllm(scenario="Server", admission="priority").plan.engine_options["scheduling_policy"] == "priority"
    assert "scheduling_policy" not in for_vllm(scenario="Server", admission="deadline").plan.engine_options
    with pytest.raises(InputError, match="scheduling_policy=fcfs contradict"):
        for_vllm(scenario="Server", admission="priority", engine_arg={"scheduling_policy": "fcfs"})


def test_forbidden_options_are_accepted_and_make_the_run_ineligible(for_vllm: Callable[..., PreparedRun]) -> None:
    run = for_vllm(engine_arg={"enable_prefix_caching": True, "speculative_config": {"method": "ngram"}})
    assert run.plan.engine_options["enable_prefix_caching"] is True
    assert any("prefix caching" in reason for reason in run.unofficial_reasons)
    assert any("speculative" in reason for reason in run.unofficial_reasons)


def test_cores_are_shared_among_ranks() -> None:
    assert core_binding([0, 1, 2, 3], 1) == "0,1,2,3"
    assert core_binding([0, 1, 4, 5, 6], 2) == "0,1|4,5"
    assert core_binding([0, 1], 3) == "auto"
