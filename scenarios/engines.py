"""Which engine a plan means."""

from runs.errors import SetupError
from runs.manifest import LegPlan
from sut.dummy_engine import DummyEngine, Fault
from sut.engine import Engine, SamplingPolicy


def make_engine(plan: LegPlan) -> Engine:
    """An engine for a plan, not yet started.

    Raises:
        SetupError: the plan names an engine that does not exist.
    """
    sampling = SamplingPolicy(**plan.sampling)
    options = dict(plan.engine_options)
    if plan.engine == "dummy":
        faults = tuple(Fault.parse(text) for text in options.pop("faults"))
        return DummyEngine(sampling, faults=faults, **options)
    if plan.engine == "vllm":
        from sut.vllm_engine import VllmEngine  # importing vLLM takes seconds: only where it is used

        return VllmEngine(plan.model_path, options, sampling, stream_first_token=plan.loadgen_scenario != "Offline")
    raise SetupError(f"there is no engine {plan.engine!r}", "use vllm or dummy")
