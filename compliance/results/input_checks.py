"""Comparison of a run's dataset and model with the official files, by hashes and by the headers of the weights."""

from collections.abc import Iterator
from pathlib import Path

from compliance.judge.rule import OURS, check_of, decides
from compliance.judge.verdict import Finding, NotApplied, compared
from compliance.results.run_evidence import RunEvidence
from qsl.weights import read_weights
from runs.files.reading import MIB
from runs.files.writing import sha256_of
from runs.record.engines.servers import unofficial_servers
from runs.record.official_inputs import dataset_reasons, model_reasons, option_reasons

SMALL_BYTES = 64 * MIB  # of larger files only the headers are compared, because it takes long to hash them


@decides(
    "result",
    ("record-model", "error", OURS, "model files, compared with the hashes in the manifest",
     "restore the model folder to the state in manifest.json, move the folder away, or rerun"),
    needs=("log", "manifest"),
)  # fmt: skip
def model_in_manifest(run: RunEvidence) -> Iterator[Finding | NotApplied]:
    """Compare the model folder with the manifest, if the folder exists on this machine."""
    manifest = run.manifest
    if manifest is None or manifest.model.weights is None:
        return
    folder = Path(str(manifest.model.folder))
    recorded = {name: digest for name, digest in manifest.model.sha256.items() if not name.startswith(".")}
    if not folder.is_dir():
        why = f"model folder {folder} does not exist, so its files were not compared with the manifest"
        yield NotApplied(why, ("record-model",), lacks_input=True)
        return
    wrong = [name for name, digest in recorded.items() if _differs(folder / name, digest)]
    wrong += sorted({path.name for path in folder.glob("*.safetensors")} - recorded.keys())
    if read_weights(folder) != manifest.model.weights:
        wrong.append("the headers of the weights")
    value = f"{', '.join(wrong[:4])} in {folder} differ" if wrong else "as in the manifest"
    yield compared("record-model", not wrong, value, "as in the manifest", run.dir.manifest, text="model files")


def _differs(path: Path, digest: str) -> bool:
    return not path.is_file() or (path.stat().st_size <= SMALL_BYTES and sha256_of(path) != digest)


@decides(
    "official",
    ("record-data-set", "error", "runs/benchmarks names the source of its hash", "dataset of the run",
     "fetch the dataset of the benchmark from MLCommons, and rerun with --dataset-path FILE"),
    ("record-weights", "error", "[rules] model; runs/benchmarks names the source of its hashes",
     "weights of the model",
     "run the benchmark's model as published, or quantize it with `main.py quantize`"),
    ("record-servers", "error", "[rules] model and caching; only the operator of a server knows how it computes",
     "declared computation of the servers",
     "declare the computation with --api-declaration FILE, and turn off options that the rules forbid"),
    needs=("log", "manifest"),
)  # fmt: skip
def official_inputs(run: RunEvidence) -> Iterator[Finding]:
    """Compare the dataset, servers and weights of a run with the rules. Only runs of this harness record them."""
    manifest, official = run.manifest, run.benchmark.model
    if manifest is None:
        return
    plan = manifest.plan
    value, wanted = f"SHA-256 {plan.dataset_sha256}", run.benchmark.data_sha256
    required = f"SHA-256 {wanted} (official dataset)" if wanted else "any dataset, because no official hash exists"
    is_official = not dataset_reasons(run.benchmark, plan.dataset_sha256)
    yield compared("record-data-set", is_official, value, required, run.dir.manifest, text="dataset")
    if manifest.observed.clients and manifest.status == "finished":  # other runs are not eligible for submission
        reasons = unofficial_servers(manifest, official)
        value, required = "; ".join(reasons) or "declared", "declared, without options that the rules forbid"
        yield compared("record-servers", not reasons, value, required, run.dir.manifest, text="servers")
    if plan.engine_record.is_server:
        return
    weights = manifest.model.weights
    if not plan.engine_record.runs_model:
        reasons, digest = [f"the engine {plan.engine} runs no model"], ""
    elif weights is None:
        reasons, digest = ["the weights are unknown"], ""
    else:
        reasons = model_reasons(official, weights.shape, weights, manifest.model.sha256)
        reasons += option_reasons(plan.engine_options)
        digest = f"{official.name} as published"
        if weights.quantized or not official.weights_sha256:
            digest = f"{official.name} in {weights.precision} (no official hash exists)"
    value, required = "; ".join(reasons) or digest, f"{official.name}, as published or quantized"
    yield compared("record-weights", not reasons, value, required, run.dir.manifest, text="weights")


OF_OURS = tuple(map(check_of, (official_inputs, model_in_manifest)))
