"""The `run` command, which starts one LoadGen run. It imports little, so that the run's process starts early."""

from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from runs.errors import ExitCode, InputError
from runs.harness import PROGRAM
from runs.record.layout import RunDir
from scenarios.command_line import command_output
from scenarios.command_line.command import Command, all_mistakes
from scenarios.command_line.schema_options import config_option, dry_run_option, given_values, options_of
from scenarios.console import say
from scenarios.launch.run_config import RunConfig, load_yaml, make_config, merged

if TYPE_CHECKING:
    from rich.console import Console


# Keys that only the file of another command has, with that command.
_COMMAND_OF_KEY = {"audit": "audit", "scenarios": "campaign"}

EXAMPLES = (
    "start a first run with the embedded model, on any machine: run --scenario Server --vllm",
    "show the plan of a run, and start nothing: run --scenario Offline --vllm --target-qps 50 --dry-run",
    "score the output of your own model: run --scenario Offline --vllm --model-path DIR --dataset-path FILE --accuracy",
)


def show_plan(config: RunConfig, console: "Console") -> int:
    """Show the plan of a run (`--dry-run`); return NEGATIVE if the run will certainly be INVALID.

    Raises:
        SetupError: If the run directory exists already.
    """
    from runs.record.new_run import refuse_second_run
    from scenarios.launch.forecast import forecast
    from scenarios.launch.plan import prepare
    from scenarios.launch.summary import announce

    run = prepare(config, partial(say, console))
    refuse_second_run(run.run_dir)
    announce(run, console)
    say(console, "dry run: nothing was started or written")
    expected = forecast(run)
    command_output.put(
        run_directory=run.run_dir.root,
        notes=run.notes,
        unofficial_reasons=run.unofficial_reasons,
        replicas=run.plan.replicas and run.plan.replicas.model_dump(mode="json"),
        plan=expected,
    )
    return ExitCode.NEGATIVE if expected is not None and expected.invalid_because else ExitCode.OK


@click.command(
    cls=Command,
    collects_mistakes=True,
    examples=EXAMPLES,
    shown=(
        "--scenario",
        "--vllm",
        "--model-path",
        "--dataset-path",
        "--accuracy",
        "--target-qps",
        "--output-log-dir",
        "--dry-run",
    ),
    params=[config_option(), dry_run_option(), *options_of(RunConfig)],
)
@click.pass_context
def run(ctx: click.Context, /, config: Path | None, dry_run: bool, **parsed: Any) -> int:
    """Start one LoadGen run: performance, or accuracy with --accuracy.

    Exit codes: 0 VALID, or the accuracy targets are met; 1 INVALID, or a target is missed; 2 bad input; 3 refused to
    start; 4 the run failed; 130 interrupted.
    """
    with all_mistakes(ctx):
        config_values = make_config(merged(_options_in(config) if config else {}, given_values(parsed)))
    from scenarios.terminal import Terminal

    console = Terminal()
    if dry_run:
        return show_plan(config_values, console)
    from scenarios.launch.parent import execute_run

    run_dirs: list[RunDir] = []
    try:
        return execute_run(config_values, console, prepared=lambda run: run_dirs.append(run.run_dir)).exit_code
    finally:
        for run_dir in run_dirs:
            command_output.put(run_directory=run_dir.root)
            command_output.put_file("result", run_dir.result)


def _options_in(file: Path) -> dict[str, Any]:
    """Return the options in a YAML file; refuse the file of another command."""
    options = load_yaml(file)
    if key := next((key for key in _COMMAND_OF_KEY if key in options), None):
        command = _COMMAND_OF_KEY[key]
        raise InputError(
            f"--config {file}: the key {key} belongs to a file of `{command}`",
            f"{PROGRAM} {command} --config {quote(str(file))}",
        )
    return options
