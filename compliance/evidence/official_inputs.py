"""The data set and the model of a leg against the official ones, by their hashes and by the headers of the weights."""

from collections.abc import Iterator

from compliance.finding import Finding, applied
from runs.record.leg import FinishedLeg
from runs.record.official_inputs import data_set_reasons, model_reasons


def official_inputs(leg: FinishedLeg) -> Iterator[Finding]:
    """What a leg of ours ran; nothing of other legs, whose logs do not tell it, nor of the model of a server."""
    manifest, official = leg.manifest, leg.benchmark.model
    if manifest is None:
        return
    plan = manifest.resolved
    reasons = data_set_reasons(leg.benchmark, plan.dataset_sha256)
    known = "the official one" if leg.benchmark.data_sha256 else "no hash of it is published: the same in all legs"
    yield applied("record-data-set", "data set", not reasons, "; ".join(reasons) or known, "", leg.run.manifest)
    if not (plan.engine_record.runs_model and plan.engine_record.computes_here):
        return
    weights = manifest.weights
    if weights is None:
        reasons, known = ["nothing tells what they are"], ""
    else:
        reasons = model_reasons(official, weights.shape, weights, manifest.model.get("sha256") or {})
        known = f"{official.name} as published"
        if weights.quantized or not official.weights_sha256:
            known = f"{official.name} in {weights.precision}, of which no hash is published: the same in all legs"
    yield applied("record-weights", "weights", not reasons, "; ".join(reasons) or known, "", leg.run.manifest)
