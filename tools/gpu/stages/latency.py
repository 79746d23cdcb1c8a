"""Stage 2: Server and Interactive at shares of the Offline rate; the next share follows from the verdict."""

from tools.gpu.harness import run, server_load
from tools.gpu.inputs import Inputs, large_model, with_arguments
from tools.gpu.stage import GpuStage
from tools.gpu.stages.offline import offline_rate

# Scenario → the first tried share, the next share after VALID, and the next share after INVALID.
SHARES = {"Server": (0.90, 0.95, 0.80), "Interactive": (0.75, 0.82, 0.60)}
FEW_TOKENS = 4096  # tokens per step: steps with prompts are shorter, so output tokens wait less


def measure(stage: GpuStage) -> None:
    """Try two rates in each scenario, and one rate with a smaller token budget."""
    rate = stage.step("rate", 1, lambda: offline_rate(stage))
    if rate is None:
        return
    inputs, seconds = large_model(stage, stage.options.precision), stage.options.seconds_of_a_run(60)
    stage.say(f"   Offline rate {rate:.2f} samples/s ({stage.options.precision})")
    for scenario in SHARES:
        best = highest_valid(stage, inputs, scenario, rate, seconds)
        stage.say(f"== {scenario}: highest VALID share of those tried: {best or 'none'}")
        stage.keep(f"best {scenario}", best)
    share = SHARES["Interactive"][1]
    fewer = with_arguments(inputs, max_num_batched_tokens=FEW_TOKENS)
    _try(stage, fewer, "Interactive", share, rate, seconds, f"Interactive-{share:.2f}-{FEW_TOKENS}")


def highest_valid(stage: GpuStage, inputs: Inputs, scenario: str, rate: float, seconds: float) -> float:
    """Return the higher VALID share of two tried shares; 0 if both are INVALID."""
    best, (share, higher, lower) = 0.0, SHARES[scenario]
    for _ in range(2):
        verdict = _try(stage, inputs, scenario, share, rate, seconds, f"{scenario}-{share:.2f}")
        if verdict is None:
            break
        best = max(best, share) if verdict == "VALID" else best
        share = higher if verdict == "VALID" else lower
    return best


def _try(
    stage: GpuStage, inputs: Inputs, scenario: str, share: float, rate: float, seconds: float, name: str
) -> str | None:
    """Return the verdict of a run at a share of the rate."""
    load = server_load(stage, inputs, scenario, share * rate, seconds)
    finished = stage.step(name, seconds + (10 if stage.options.dummy else 55), lambda: run(stage, name, load))
    return None if finished is None else finished.result.verdict
