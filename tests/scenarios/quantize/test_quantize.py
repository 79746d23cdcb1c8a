"""`main.py quantize`: refused inputs, the call of the quantizing environment, and the written files."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qsl.weights import read_weights
from scenarios.quantize.scheme import ENVIRONMENT
from tests.conftest import StartMain, run_here
from tests.support.documents.json_shapes import differences
from tests.support.engines.small_tokenizer import make_tiny_llama
from tests.support.processes.patience import until

# Replaces the interpreter of the other environment: it knows the versions of packages, and "quantizes" by writing INT8.
INTERPRETER = """#!{python}
import json, pathlib, sys
if sys.argv[1] == "-c":
    print(json.dumps(dict.fromkeys(["llmcompressor", "compressed-tensors", "transformers", "torch"], "1.0")))
    sys.exit()
job = json.loads(pathlib.Path(sys.argv[2]).read_text())
pathlib.Path({reported!r}).write_text(json.dumps(job))
if {fails}:
    print("CUDA out of memory")
    sys.exit(1)
import torch
from safetensors.torch import load_file, save_file
out = pathlib.Path(job["output"])
out.mkdir()
for path in pathlib.Path(job["model"]).glob("*.safetensors"):
    save_file({{name: one.to(torch.int8) for name, one in load_file(path).items()}}, out / path.name)
config = json.loads((pathlib.Path(job["model"]) / "config.json").read_text())
group = {{"weights": {{"num_bits": 8, "type": "int"}}, "input_activations": {{"num_bits": 8, "type": "int"}}}}
config["quantization_config"] = {{"quant_method": "compressed-tensors", "config_groups": {{"group_0": group}}}}
(out / "config.json").write_text(json.dumps(config))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model"), ["some words to learn from"])


def interpreter(folder: Path, *, fails: bool = False) -> Path:
    path = folder / "python"
    path.write_text(INTERPRETER.format(python=sys.executable, reported=str(folder / "job.json"), fails=fails))
    path.chmod(0o755)
    return path


def test_quantize_writes_the_model_and_its_documents(
    model: Path, make_dataset: Callable[..., Path], tmp_path: Path
) -> None:
    data = make_dataset([1, 2, 3], [1, 2, 3], [4, 5])
    out = tmp_path / "quantized"
    done = run_here(
        "quantize", "--scheme", "int8", "--model-path", model, "--calibration", data, "--output", out,
        "--python", interpreter(tmp_path), "--json",
    )  # fmt: skip
    assert done.code == 0, done.stderr
    assert differences(json.loads(done.stdout)["answer"], "quantize") == []
    job = json.loads((tmp_path / "job.json").read_text())
    assert job["prompts"] == [[1, 2, 3], [4, 5]]  # the repeated row is used once
    assert "W8A8" in job["recipe"]
    assert (out / "recipe.yaml").read_text() == job["recipe"]
    assert read_weights(out).precision == "int8_w8a8"
    assert (out / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()
    text = (out / "calibration.md").read_text()
    assert "3 prompts, 2 of them different; the first 2 different ones were used" in text
    assert "not the file of MLCommons" in text
    assert "--mechanism weight_quantization/int8_w8a8" in done.stderr
    again = run_here("quantize", "--scheme", "int8", "--model-path", out, "--calibration", data,
                     "--output", tmp_path / "twice", "--python", interpreter(tmp_path))  # fmt: skip
    assert (again.code, "already quantized" in again.stderr) == (2, True)
    assert not (tmp_path / "twice").exists()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--scheme", "int8"), 2, "--output"),
        (("--scheme", "fp5", "--output", "x"), 2, "fp5"),
        (("--scheme", "fp8", "--output", "x", "--python", "/nowhere/python"), 3, "make setup-quantize"),
        (("--scheme", "fp8", "--output", "x", "--python", sys.executable), 3, "package llm-compressor is missing"),
        (("--scheme", "fp8", "--output", ".", "--python", "{fake}"), 3, "already exists"),
        (("--scheme", "fp8", "--output", "x", "--python", "{fake}", "--model-path", "{model}"), 2, "--calibration"),
    ],
)
def test_invalid_arguments_are_refused(
    model: Path, tmp_path: Path, options: tuple[str, ...], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = interpreter(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = run_here("quantize", *(option.format(fake=fake, model=model) for option in options))
    assert done.code == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failed_quantization_leaves_no_files(model: Path, make_dataset: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    done = run_here(
        "quantize", "--scheme", "fp8", "--model-path", model, "--calibration", make_dataset([1]), "--output",
        folder / "out", "--python", interpreter(tmp_path, fails=True),
    )  # fmt: skip
    assert (done.code, "CUDA out of memory" in done.stderr) == (4, True)
    assert list(folder.iterdir()) == []


def test_an_interrupted_quantization_leaves_no_process_and_no_files(
    start_main: StartMain, model: Path, make_dataset: Callable[..., Path], tmp_path: Path
) -> None:
    python, folder = tmp_path / "python", tmp_path / "here"
    sleeps = f"import os, time\npathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\ntime.sleep(60)\n"
    text = interpreter(tmp_path).read_text().replace("import torch\n", sleeps)
    python.write_text(text)
    folder.mkdir()
    started = start_main("quantize", "--scheme", "fp8", "--model-path", model, "--calibration", make_dataset([1]),
                         "--output", folder / "out", "--python", python)  # fmt: skip
    until((tmp_path / "pid").exists, "its process", process=started.process)
    started.process.terminate()
    assert started.wait().code == 130
    assert list(folder.iterdir()) == []
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


@pytest.mark.long
@pytest.mark.vllm
@pytest.mark.skipif(not ENVIRONMENT.exists(), reason="make setup-quantize was not run")
def test_the_embedded_model_is_quantized_to_int8(start_main: StartMain, tmp_path: Path) -> None:
    out, run = tmp_path / "int8", tmp_path / "run"
    quantized = start_main("quantize", "--scheme", "int8", "--output", out).wait()
    assert quantized.code == 0, quantized.stderr
    start_main(
        "--scenario", "Offline", "--vllm", "--accuracy", "--dtype", "bfloat16", "--model-path", out,
        "--output-log-dir", run, "--mechanism", "weight_quantization/int8_w8a8",
    ).wait()  # fmt: skip
    record = json.loads((run / "manifest.json").read_text())
    assert record["status"] == "finished"
    assert record["observed"]["model"]["weights"]["precision"] == "int8_w8a8"
    assert json.loads((run / "accuracy.json").read_text())["scores"]["rouge1"] > 15
