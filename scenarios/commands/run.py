"""The `run` command: one LoadGen leg. Imports little: the leg's process is to be under way soon."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runs.errors import ExitCode
from runs.record.layout import RunDir
from scenarios.command_line import answer
from scenarios.command_line.command import PATH, Command
from scenarios.command_line.schema_options import dry_run_option, given_values, options_of
from scenarios.console import say
from scenarios.leg.config import RunConfig, load_yaml, make_config, merged

if TYPE_CHECKING:
    from rich.console import Console


EXAMPLES = (
    "the embedded model, a first VALID result on any machine: run --scenario Server --vllm",
    "the plan of a leg, without starting it: run --scenario Offline --vllm --target-qps 50 --dry-run",
    "the scores of your own model: run --scenario Offline --vllm --model-path DIR --dataset-path FILE --accuracy",
)


def show_plan(config: RunConfig, console: "Console") -> int:
    """What `--dry-run` shows of a leg; NEGATIVE when it would be INVALID for sure.

    Raises:
        SetupError: its directory is taken.
    """
    from runs.record.new_run import refuse_taken
    from scenarios.leg.forecast import forecast
    from scenarios.leg.plan import prepare
    from scenarios.leg.summary import announce

    leg = prepare(config, partial(say, console))
    refuse_taken(leg.run_dir)
    announce(leg, console)
    say(console, "dry run: nothing was started or written")
    expected = forecast(leg)
    answer.put(
        run_directory=leg.run_dir.root,
        notes=leg.notes,
        unofficial_reasons=leg.unofficial_reasons,
        replicas=leg.plan.replicas and leg.plan.replicas.model_dump(mode="json"),
        plan=expected,
    )
    return ExitCode.NEGATIVE if expected is not None and expected.invalid_because else ExitCode.OK


@click.command(
    cls=Command,
    examples=EXAMPLES,
    params=[
        click.Option(["--config"], type=PATH, metavar="FILE", help="YAML file with the same keys."),
        dry_run_option(),
        *options_of(RunConfig),
    ],
)
def run(config: Path | None, dry_run: bool, **parsed: Any) -> int:
    """Run one LoadGen leg: performance, or accuracy with --accuracy.

    Exit codes: 0 VALID or passed, 1 INVALID or failed, 2 bad input, 3 refused to start, 4 failed while running,
    130 interrupted.
    """
    asked = make_config(merged(load_yaml(config) if config else {}, given_values(RunConfig, parsed)))
    from scenarios.terminal import Terminal

    console = Terminal()
    if dry_run:
        return show_plan(asked, console)
    from scenarios.leg.parent import run_leg

    run_dirs: list[RunDir] = []
    try:
        return run_leg(asked, console, prepared=lambda leg: run_dirs.append(leg.run_dir)).exit_code
    finally:
        for run_dir in run_dirs:
            answer.put(run_directory=run_dir.root)
            answer.put_file("result", run_dir.result)
