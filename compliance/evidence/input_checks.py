"""The dataset and the model of a run against the official ones, by their hashes and by the headers of the weights."""

from collections.abc import Iterator
from pathlib import Path

from compliance.evidence.run_evidence import RunEvidence
from compliance.judge.check import Absent, check, decides
from compliance.judge.finding import Finding, compared
from compliance.judge.rule import OURS
from qsl.weights import read_weights
from runs.files import sha256_of
from runs.reading import MIB
from runs.record.official_inputs import data_set_reasons, model_reasons, option_reasons
from runs.record.servers import unofficial_servers

SMALL_BYTES = 64 * MIB  # larger files are compared by their headers: gigabytes take longer than a judge may


@decides(
    "result",
    ("record-model", "error", OURS, "the model's folder, where it is there, holds the model in the manifest",
     "bring the folder back as it was when the run was made, or move it away; or rerun"),
    needs=("log", "manifest"),
)  # fmt: skip
def model_in_manifest(run: RunEvidence) -> Iterator[Finding]:
    """Does the folder in the manifest, where it is on this machine, hold the model?"""
    manifest = run.manifest
    if manifest is None or manifest.model.weights is None:
        return
    folder = Path(str(manifest.model.folder))
    recorded = {name: digest for name, digest in manifest.model.sha256.items() if not name.startswith(".")}
    if not folder.is_dir():
        raise Absent(f"the model's folder {folder} is not there: its files were not compared with the manifest")
    wrong = [name for name, digest in recorded.items() if _differs(folder / name, digest)]
    wrong += sorted({path.name for path in folder.glob("*.safetensors")} - recorded.keys())
    if read_weights(folder) != manifest.model.weights:
        wrong.append("the headers of the weights")
    found = f"{folder}: {', '.join(wrong[:4])}" if wrong else "as in the manifest"
    yield compared("record-model", "the model's files", not wrong, found, "as in the manifest", run.dir.manifest)


def _differs(path: Path, digest: str) -> bool:
    return not path.is_file() or (path.stat().st_size <= SMALL_BYTES and sha256_of(path) != digest)


@decides(
    "official",
    ("record-data-set", "error", "runs/benchmarks names the source of its hash", "the dataset is the official one",
     "fetch it from MLCommons, and rerun with that file"),
    ("record-weights", "error", "[rules] model; runs/benchmarks names the source of its hashes",
     "the model is the official one: whole, and in its own precision unchanged",
     "run the benchmark's model: as published, or quantized by `main.py quantize`"),
    ("record-servers", "error", "[rules] model and caching; what a server computes with is its operator's word",
     "the servers' computation is declared, and the rules allow it",
     "declare it with --api-declaration, and turn off what is not allowed"),
    needs=("log", "manifest"),
)  # fmt: skip
def official_inputs(run: RunEvidence) -> Iterator[Finding]:
    """What a run of ours used. Logs of other runs do not show it, nor does a server show its model."""
    manifest, official = run.manifest, run.benchmark.model
    if manifest is None:
        return
    plan = manifest.plan
    reasons = data_set_reasons(run.benchmark, plan.dataset_sha256)
    known = "the official one" if run.benchmark.data_sha256 else "no hash of it is published: the same in all runs"
    yield compared("record-data-set", "dataset", not reasons, "; ".join(reasons) or known, "", run.dir.manifest)
    if manifest.observed.clients and manifest.status == "finished":  # else nothing of it is official
        reasons = unofficial_servers(manifest, official)
        yield compared("record-servers", "servers", not reasons, "; ".join(reasons) or "declared", "", run.dir.manifest)
    if plan.engine_record.is_server:
        return
    weights = manifest.model.weights
    if not plan.engine_record.runs_model:
        reasons, known = [f"the engine {plan.engine} runs no model"], ""
    elif weights is None:
        reasons, known = ["nothing tells what they are"], ""
    else:
        reasons = model_reasons(official, weights.shape, weights, manifest.model.sha256)
        reasons += option_reasons(plan.engine_options)
        known = f"{official.name} as published"
        if weights.quantized or not official.weights_sha256:
            known = f"{official.name} in {weights.precision}, of which no hash is published: the same in all runs"
    yield compared("record-weights", "weights", not reasons, "; ".join(reasons) or known, "", run.dir.manifest)


OF_OURS = tuple(map(check, (official_inputs, model_in_manifest)))
