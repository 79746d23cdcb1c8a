"""In which MLPerf division a technique may be submitted for a Llama benchmark. Says nothing of the rest of the rules.

Source: mlcommons/inference_policies, inference_rules.adoc, the sections on model and on what optimisations are allowed:
closed-division models are mathematically equivalent to the reference, and quantisation is allowed while the accuracy
target is met; pruning and sparsifying are not. Speculative decoding is in the closed division only for benchmarks that
name a draft model, which those of runs/benchmarks do not.
"""

from typing import Any, Literal

from compliance.mechanisms.technique_registry import BASELINE

Division = Literal["closed", "open"]
DIVISIONS: tuple[Division, ...] = ("closed", "open")

_CLOSED_IF_ACCURATE = frozenset({"kv_quantization", "weight_quantization"})
_REASONS = {
    "kv_compression": "compressing the KV cache otherwise than by quantising it changes the model",
    "compressed_attention": "attention that leaves positions out changes the model",
    "speculative_decoding": "the benchmark names no draft model: speculative decoding is for the open division",
}


def eligibility(
    mechanism: str, accuracy_passed: bool | None, lossy_in_force: set[str], *, recorded: bool = True
) -> dict[str, dict[str, Any]]:
    """Where a result may be submitted, as far as its technique decides.

    Args:
        accuracy_passed: whether its own accuracy leg meets the targets when derived again; None = not known.
        lossy_in_force: techniques that the engine's record shows; they count as much as the declared one.
        recorded: whether there is a whole record of what the engine ran with.

    Returns:
        For "closed" and "open": `eligible` (None: not known, for want of a record), and `reason`.
    """
    closed = [reason for name in sorted({mechanism, *lossy_in_force}) if (reason := _refused(name, accuracy_passed))]
    allowed: bool | None
    allowed, reason = True, "the technique is allowed"
    if not recorded:
        allowed, reason = None, "nothing tells what the engine ran with"
    return {
        "closed": {"eligible": False if closed else allowed, "reason": "; ".join(closed) or reason},
        "open": {"eligible": True, "reason": "any technique, if it is described"},
    }


def _refused(mechanism: str, accuracy_passed: bool | None) -> str | None:
    if mechanism == BASELINE:
        return None
    if mechanism in _CLOSED_IF_ACCURATE:
        known = "misses its targets" if accuracy_passed is False else "was not derived again"
        return None if accuracy_passed else f"{mechanism} is allowed while the accuracy holds, and that {known}"
    return _REASONS.get(mechanism, f"{mechanism} is no technique that the closed division is known to allow")


def in_words(eligible: bool | None) -> str:
    """The one word of a report."""
    return {True: "eligible", False: "no", None: "not known"}[eligible]
