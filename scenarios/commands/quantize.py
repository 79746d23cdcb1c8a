"""The `quantize` command, which quantizes a model with calibration data."""

from shlex import quote
from typing import Any, get_args

import click

from runs.errors import ExitCode
from runs.harness import PROGRAM
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command
from scenarios.console import tell
from scenarios.quantize.scheme import ENVIRONMENT, Scheme

EXAMPLES = (
    "quantize the embedded model: quantize --scheme fp8 --output ../mlperf/fp8",
    "quantize your model with the official calibration data: quantize --scheme int8 --output DIR --model-path MODEL "
    "--calibration FILE",
    "try the command with few prompts: quantize --scheme fp8 --output DIR --samples 16",
)


@click.command(cls=Command, examples=EXAMPLES)
@click.option(
    "--scheme",
    type=click.Choice(get_args(Scheme)),
    required=True,
    help="Data type of the quantized weights and activations.",
)
@click.option("--output", type=PATH, metavar="DIR", required=True, help="Directory to create for the quantized model.")
@click.option("--model-path", metavar="MODEL", help="Model folder or Hugging Face Hub ID. Default: the embedded model.")
@click.option(
    "--calibration",
    type=PATH,
    metavar="FILE",
    help="Calibration prompts in the MLCommons format, such as cnn_dailymail_calibration.json. Default: the bundled "
    "articles.",
)
@click.option("--samples", type=click.IntRange(1), metavar="N", help="Use only the first N prompts.")
@click.option(
    "--python",
    type=PATH,
    metavar="FILE",
    default=ENVIRONMENT / "bin" / "python",
    show_default=".venv-quantize/bin/python",
    help="Python interpreter of an environment with llm-compressor.",
)
def quantize(**options: Any) -> ExitCode:
    """Quantize a model with the benchmark's calibration data.

    The command writes the weights, recipe.yaml and calibration.md. It uses llm-compressor, which `make setup-quantize`
    installs into a separate environment. In runs with the new weights, declare the technique: --mechanism
    weight_quantization/VARIANT.

    Exit codes: 0 done, 2 bad input, 3 the environment is missing or DIR exists, 4 the command failed.
    """
    from scenarios.quantize.run_quantize import quantize_model as make_quantized
    from scenarios.terminal import Terminal

    with Terminal().status("quantizing"):
        made = make_quantized(**options, say=tell)
    command_output.put(directory=made.folder, precision=made.precision, prompts=made.prompts)
    gib = made.bytes_before / 2**30, made.bytes_after / 2**30
    tell(f"written to {made.folder}: {made.precision}, {gib[0]:.2f} GiB before, {gib[1]:.2f} GiB now")
    option = f"--mechanism weight_quantization/{made.precision}"
    tell(f"next: {PROGRAM} run --scenario Offline --vllm --accuracy --model-path {quote(str(made.folder))} {option}")
    return ExitCode.OK
