"""The `init` command, which writes commented run, campaign and system files for this machine."""

import contextlib
import json
import os
import re
from pathlib import Path
from shlex import quote

import click

from runs.errors import ExitCode, InputError, SetupError
from runs.files.writing import write_atomic
from runs.harness import HARNESS_ROOT, PROGRAM
from runs.machine.accelerators import accelerators
from runs.machine.environment import host_facts
from runs.processes.interrupts import critical
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command
from scenarios.console import tell

ENDPOINTS = "endpoints"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"

EXAMPLES = (
    "write the files to ../mlperf: init",
    "write your model and dataset into the files: init ../mlperf --model-path DIR --dataset-path FILE",
    "show the plan of a run with these files: run --config ../mlperf/run.yaml --dry-run",
    "print the file of an MLPerf Endpoints curve: init --kind endpoints",
)

RUN = """# One run: {program} run --config {file} [--dry-run]
# Keys are the options of `{program} run --help`, with _ for -. Options on the command line override this file.

scenario: Server # Offline, Server, Interactive, SingleStream
# accuracy: true # accuracy run: issue every sample once and score the output
engine: vllm
model_path: {model}
dataset_path: {dataset}
user_conf: {user_conf} # rates and durations for LoadGen
# target_qps: 20 # overrides user.conf; `{program} tune` with this file finds the highest valid rate

# This machine: {machine}
# tensor_parallel_size: {parts} # accelerators for one replica; default: all accelerators
# engine_arg: # any engine argument of vLLM
#   max_num_seqs: 512
#   gpu_memory_utilization: 0.92
"""


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("folder", metavar="[DIR]", required=False, type=PATH)
@click.option(
    "--model-path", metavar="MODEL", help=f"Model folder or Hugging Face Hub ID in the files. Default: {MODEL}."
)
@click.option("--dataset-path", type=PATH, metavar="FILE", help="Dataset in the files. Default: DIR/cnn_eval.json.")
@click.option(
    "--kind",
    type=click.Choice(("inference", ENDPOINTS)),
    default="inference",
    help="inference: files for runs with LoadGen. endpoints: print the file of `curve`, and write no file.",
)
def init(folder: Path | None, model_path: str | None, dataset_path: Path | None, kind: str) -> ExitCode:
    """Write example files for a run, a campaign and a system, for this machine.

    The files are run.yaml, user.conf, campaign.yaml and system.yaml. Comments in the files explain each key. The
    default DIR is ../mlperf, seen from the checkout. DIR must be outside the checkout, because runs from a changed
    checkout cannot be submitted. The command overwrites no file.

    Exit codes: 0 done, 2 bad input, 3 a file exists already or cannot be written.
    """
    if kind == ENDPOINTS:
        if unused := [str(value) for value in (folder, model_path, dataset_path) if value is not None]:
            raise InputError(f"--kind endpoints: {unused[0]} has no effect", f"remove {unused[0]}")
        from scenarios.curve.new_curve import curve_template

        text = curve_template()
        command_output.put(text=text)
        tell(text.rstrip())
        return ExitCode.OK
    folder = (folder or default_folder()).absolute()
    if folder.resolve().is_relative_to(HARNESS_ROOT):
        raise InputError(
            f"{folder} lies in the checkout {HARNESS_ROOT}",
            f"give a directory outside the checkout, such as {default_folder()}",
        )
    if model_path == "":
        raise InputError("--model-path: empty value", "give a model; check for an unset shell variable")
    model = str(Path(model_path).absolute()) if model_path and os.access(model_path, os.F_OK) else model_path or MODEL
    dataset = str((dataset_path or folder / "cnn_eval.json").absolute())
    texts = {
        "run.yaml": _run_yaml(folder, model, dataset),
        "user.conf": (HARNESS_ROOT / "user.conf").read_text(),
        "campaign.yaml": _campaign_yaml(folder, model, dataset),
        "system.yaml": _system_yaml(),
    }
    if taken := [name for name in texts if (folder / name).exists()]:
        raise SetupError(f"{folder / taken[0]} already exists", "move this file away, or give another directory")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with critical():
            for name, text in texts.items():
                write_atomic(folder / name, text)
    except BaseException as error:
        with contextlib.suppress(OSError):
            for name in texts:
                (folder / name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise SetupError(f"{folder} cannot be written: {error.strerror}", "give another directory") from error
        raise
    command_output.put(directory=folder, files=list(texts))
    tell(f"written to {folder}: {', '.join(texts)}")
    tell(f"next: {PROGRAM} doctor --model-path {quote(model)} --dataset-path {quote(dataset)}")
    tell(f"      {PROGRAM} run --config {quote(str(folder / 'run.yaml'))} --dry-run")
    return ExitCode.OK


def default_folder(root: Path = HARNESS_ROOT) -> Path:
    """Return the default DIR: ../mlperf of the checkout, or ./mlperf for an installed package."""
    is_checkout = (root / "pyproject.toml").exists()
    return (root.parent if is_checkout else Path.cwd()) / "mlperf"


def _run_yaml(folder: Path, model: str, dataset: str) -> str:
    devices = accelerators()
    here = f"{len(devices)}x {devices[0]['name']}" if devices else f"no accelerator; {host_facts()['cpu']}"
    return RUN.format(
        program=PROGRAM,
        file=_scalar(folder / "run.yaml"),
        user_conf=_scalar(folder / "user.conf"),
        model=_scalar(model),
        dataset=_scalar(dataset),
        machine=here,
        parts=max(1, len(devices)),
    )


def _campaign_yaml(folder: Path, model: str, dataset: str) -> str:
    text = (HARNESS_ROOT / "configs" / "campaign-datacenter.yaml").read_text()
    text = text.replace("configs/campaign-datacenter.yaml", _scalar(folder / "campaign.yaml"))
    text = _with_line(text, "model_path", f"model_path: {_scalar(model)}")
    text = _with_line(text, "dataset_path", f"dataset_path: {_scalar(dataset)} # 13,368 rows, from MLCommons")
    text = _with_line(text, "# output_log_dir", f"output_log_dir: {_scalar(folder / 'campaign')}")
    text = _with_line(text, "# system", f"system: {_scalar(folder / 'system.yaml')} # for `submit` and `check`")
    tuned = ", ".join(_scalar(folder / f"tune-{name}") for name in ("Offline", "Server", "Interactive"))
    return _with_line(text, "# rates_from", f"# rates_from: [{tuned}] # results of `tune`, instead of target_qps below")


def _system_yaml() -> str:
    """Return the example system file with the values that were detected on this machine."""
    from compliance.submission.this_machine import detect

    text = (HARNESS_ROOT / "configs" / "system-example.yaml").read_text()
    text = text.replace("To use: copy this file, and\n# replace", "Written for this machine:\n# replace")
    for name, value in detect().items():
        text = _with_line(text, f"  # {name}", f"  {name}: {json.dumps(str(value), ensure_ascii=False)} # detected")
    if not accelerators():
        text = re.sub(r"(?m)^  (accelerator_\S+: REPLACE-ME|# -- required with accelerators).*\n", "", text)
    return text


def _scalar(value: object) -> str:
    """Return a text as a YAML scalar, quoted if necessary."""
    text = str(value)
    return text if re.fullmatch(r"[\w./@+-]+", text) else json.dumps(text, ensure_ascii=False)


def _with_line(text: str, key: str, line: str) -> str:
    """Return the text with the line of a key replaced."""
    return re.sub(rf"(?m)^{re.escape(key)}: .*$", lambda _: line, text)
