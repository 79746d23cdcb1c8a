"""Post-training quantization of a model. It writes weights, recipe and calibration.md into a directory.

The rules of the closed division require calibration.md.

llm-compressor and vLLM need different versions of the same packages. Therefore a process in a separate environment
(`make setup-quantize`) does the work (worker.py). The folder is complete or does not appear.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson

from qsl.dataset import Dataset, load_dataset
from qsl.embedded.articles import bundled_dataset
from qsl.embedded.default_model import ensure_default_model
from qsl.model_files import CALIBRATION, ModelFacts, file_hashes
from qsl.weights import read_weights
from runs.benchmarks import BENCHMARKS
from runs.errors import ExecutionError, InputError, SetupError
from runs.files.temporary import temporary_folder
from runs.files.writing import write_atomic
from runs.processes.child import run_program
from runs.record.observed import Weights
from scenarios.launch.machine_checks import ALL_PARTS, check_model
from scenarios.quantize.scheme import Scheme

WORKER = Path(__file__).with_name("worker.py")
SETUP_FIX = "run `make setup-quantize`, or give an interpreter with requirements/quantize.txt installed"

_RECIPE = """default_stage:
  default_modifiers:
    {modifier}:
      targets: [Linear]
      scheme: {scheme}
      ignore: [lm_head]
"""
# FP8: weights and activations per tensor, activation scales from the calibration. INT8: weights per channel, rounded
# by GPTQ with the calibration data; activations per token, at run time. [llm-compressor 0.14, preset schemes]
RECIPES: dict[Scheme, str] = {
    "fp8": _RECIPE.format(modifier="QuantizationModifier", scheme="FP8"),
    "int8": _RECIPE.format(modifier="GPTQModifier", scheme="W8A8"),
}
_WHAT = {
    "fp8": "Weights and input activations of all linear layers but the head are held in FP8 (E4M3), one scale a "
    "tensor: of a weight by its largest magnitude, of an activation by the largest over the calibration prompts.",
    "int8": "Weights of all linear layers but the head are held in INT8, one scale an output channel, rounded by GPTQ "
    "with the second moments of the layer's inputs over the calibration prompts. Activations are quantized to INT8 as "
    "they come, one scale a token.",
}
# Files to copy into the directory of the weights: tokenizer and generation configuration.
_BESIDE = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.jinja", "generation_config.json")  # fmt: skip  # noqa: E501


@dataclass(frozen=True)
class Quantized:
    """The result of a quantization."""

    folder: Path
    precision: str
    prompts: int
    bytes_before: int
    bytes_after: int


def quantize_model(
    scheme: Scheme,
    output: Path,
    model_path: str | None,
    calibration: Path | None,
    samples: int | None,
    python: Path,
    say: Callable[[str], None],
) -> Quantized:
    """Quantize a model.

    Args:
        calibration: Dataset of prompts; None = the bundled articles, for the embedded model only.
        samples: Maximum number of prompts to use.
        python: Interpreter of the environment with llm-compressor.

    Raises:
        InputError: If the model or the calibration data cannot be used.
        SetupError: If the output exists, or the environment is missing.
        ExecutionError: If the quantization failed.
    """
    python, output = python.absolute(), output.absolute()
    if output.exists():
        raise SetupError(f"--output {output}: already exists", "give another folder")
    versions = _versions(python)
    model = check_model(model_path or str(ensure_default_model(say)), ALL_PARTS)
    if read_weights(model.folder).quantized:
        raise InputError(f"--model-path {model.folder}: already quantized", "give the unquantized model")
    if calibration is None and model_path is not None:
        raise InputError(
            "--calibration: missing",
            "fetch cnn_dailymail_calibration.json from MLCommons, or write it with scripts/prepare_dataset.py --ids",
        )
    path = calibration or bundled_dataset(str(model.folder))
    data = load_dataset(path, vocab_size=model.vocab_size, max_prompt_tokens=model.max_positions)
    # Remove duplicates in order, because the official list names two articles twice.
    prompts = [list(ids) for ids in dict.fromkeys(map(tuple, data.prompts))][:samples]
    say(f"quantizing {model.name} to {scheme} with {len(prompts):,} prompts of {data.path.name}")
    output.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(f"{output.name}.", output.parent) as scratch:
        made = scratch / "model"
        job: dict[str, object] = {
            "model": str(model.folder),
            "output": str(made),
            "recipe": RECIPES[scheme],
            "prompts": prompts,
        }
        _work(python, job, scratch)
        for pattern in _BESIDE:
            for beside in model.folder.glob(pattern):
                shutil.copy(beside, made / beside.name)
        weights = read_weights(made)
        if not weights.quantized:
            raise ExecutionError(f"llm-compressor kept the weights in {weights.precision}", "report this message")
        write_atomic(made / "recipe.yaml", RECIPES[scheme])
        write_atomic(made / CALIBRATION, _calibration_text(model, scheme, versions, data, len(prompts), weights, made))
        made.rename(output)
    return Quantized(output, weights.precision, len(prompts), _weight_bytes(model.folder), _weight_bytes(output))


def _calibration_text(
    model: ModelFacts, scheme: Scheme, versions: dict[str, str], data: Dataset, used: int, weights: Weights, made: Path
) -> str:
    """Return the text of calibration.md for `used` prompts and the new `weights`."""
    official = data.sha256 in {
        benchmark.calibration_sha256 for benchmark in BENCHMARKS.values() if benchmark.calibration_sha256
    }
    whose = "the file that MLCommons distributes" if official else "not the file of MLCommons, as far as known"
    files = [
        f"| {when}: {name} | {digest} |"
        for when, folder in (("before", model.folder), ("after", made))
        for name, digest in file_hashes(folder).items()
        if name.endswith(".safetensors")
    ]
    return "\n".join(
        (
            f"# Calibration of {model.name}, {scheme.upper()}",
            "",
            _WHAT[scheme],
            "The KV cache and everything else are as in the model. No weight was retrained, left out or added.",
            "",
            f"- calibration data: {data.path.name}, SHA-256 {data.sha256} ({whose}): {len(data):,} prompts, "
            f"{len(set(map(tuple, data.prompts))):,} of them different; the first {used:,} different ones were used, "
            f"whole (the longest has {data.longest_prompt:,} tokens)",
            f"- made with {', '.join(f'{name} {version}' for name, version in versions.items())}",
            f"- result: {weights.precision}, {weights.parameters:,} weights in {weights.tensors} tensors",
            "",
            "The recipe:",
            "",
            f"```yaml\n{RECIPES[scheme].rstrip()}\n```",
            "",
            "| file | SHA-256 |",
            "|---|---|",
            *files,
            "",
        )
    )


def _weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _versions(python: Path) -> dict[str, str]:
    """Return the versions of the packages that quantize.

    Raises:
        SetupError: If a package is missing.
    """
    names = ("llmcompressor", "compressed-tensors", "transformers", "torch")
    code = f"import importlib.metadata as of, json; print(json.dumps({{n: of.version(n) for n in {names!r}}}))"
    try:
        done = run_program([python, "-c", code], env=_environment(), timeout_s=60)
        done.check_returncode()
        versions = orjson.loads(done.stdout)
        return {name: str(versions[name]) for name in names}
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        raise SetupError(f"{python}: package llm-compressor is missing", SETUP_FIX) from error


def _environment() -> dict[str, str]:
    variables = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")} | variables


def _work(python: Path, job: dict[str, object], scratch: Path) -> None:
    """Run the worker to its end with a log; report the end of the log if it fails."""
    path, log = scratch / "job.json", scratch / "worker.log"
    path.write_bytes(orjson.dumps(job))
    with log.open("wb") as stream:
        code = run_program([python, WORKER, path], output=stream, env=_environment(), cwd=scratch).returncode
    if code != 0 or not list((scratch / "model").glob("*.safetensors")):
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-3:]
        raise ExecutionError(
            f"the quantization exited with code {code}: {' | '.join(last)}",
            "if memory ran out, lower --samples or use a machine with an accelerator",
        )
