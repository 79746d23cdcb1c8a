"""Which engine a plan means."""

import importlib
import traceback
from pathlib import Path

from qsl.byte_tokenizer import BOS_ID, EOS_ID, ByteTokenizer
from qsl.dataset import load_dataset
from runs.errors import SetupError
from runs.record.manifest import LegPlan
from scenarios.leg.engine_environment import CORE_PROCESS, parallel_size
from sut.dummy.cheats import CheatContext, OvercountingSut, make_cheats
from sut.dummy.engine import Cheat, DummyEngine, Fault
from sut.engine import Engine, SamplingPolicy
from sut.loadgen_sut import LoadgenSut
from sut.vllm.engine import VllmEngine
from sut.vllm.one_process import OneProcessVllmEngine


def import_engine(engine: str) -> None:
    """Import what an engine needs ahead of its start, which takes vLLM many seconds.

    What fails here fails again when the engine starts, and is told there.
    """
    if engine == "vllm":
        try:
            importlib.import_module("vllm.v1.engine.async_llm")
        except Exception:  # a broken installation raises anything
            traceback.print_exc()


def make_engine(plan: LegPlan) -> Engine:
    """An engine for a plan, not yet started.

    Raises:
        SetupError: the plan names an engine that does not exist.
    """
    sampling = SamplingPolicy(**plan.sampling)
    options = dict(plan.engine_options)
    if plan.engine == "dummy":
        options["faults"] = tuple(Fault.parse(text) for text in options["faults"])
        options["cheats"] = _cheats(plan, sampling)
        return DummyEngine(sampling, **options)
    if plan.engine == "vllm":
        return _vllm_class(plan)(
            plan.model_path, options, sampling, stream_first_token=plan.loadgen_scenario != "Offline"
        )
    raise SetupError(f"there is no engine {plan.engine!r}", "use vllm or dummy")


def _vllm_class(plan: LegPlan) -> type[VllmEngine]:
    one_at_a_time = plan.scenario == "SingleStream" and parallel_size(plan.engine_options, "data_parallel_size") == 1
    if one_at_a_time and plan.environment.get(CORE_PROCESS) == "0":
        return OneProcessVllmEngine
    return VllmEngine


def sut_class(plan: LegPlan) -> type[LoadgenSut]:
    """The system under test; another one only where the dummy is asked to miscount."""
    return OvercountingSut if "overcount" in plan.engine_options.get("cheats", ()) else LoadgenSut


def _cheats(plan: LegPlan, sampling: SamplingPolicy) -> tuple[Cheat, ...]:
    kinds = plan.engine_options["cheats"]
    references: list[list[int]] = []
    if "reference" in kinds:
        targets = load_dataset(Path(plan.dataset_path), count=plan.sample_count).targets
        references = [ids[1:] for ids in ByteTokenizer().encode_batch(targets)]  # without BOS
    performance = plan.mode == "performance"
    return make_cheats(kinds, CheatContext(performance, BOS_ID, EOS_ID, ord(" "), sampling.max_tokens, references))
