"""The `run` command: one LoadGen leg. Imports little: the leg's process is to be under way soon."""

from functools import partial
from typing import Any

import click
from rich.console import Console

from runs.errors import ExitCode
from scenarios.commands import answer
from scenarios.commands.paths import PATH
from scenarios.commands.schema import command, dry_run_option
from scenarios.console import say
from scenarios.leg.config import RunConfig, load_yaml, make_config, merged

HELP = """Run one LoadGen leg: performance, or accuracy with --accuracy.

Exit codes: 0 VALID or passed, 1 INVALID or failed, 2 bad input, 3 refused to start, 4 failed while running,
130 interrupted."""


EXAMPLES = (
    "the embedded model, a first VALID result on any machine: run --scenario Server --vllm",
    "what a leg would be, without starting it: run --scenario Offline --vllm --target-qps 50 --dry-run",
    "the scores of a model of yours: run --scenario Offline --vllm --model-path DIR --dataset-path FILE --accuracy",
)


def run_click_command() -> click.Command:
    """The click command; its callback returns the exit code."""
    config = click.Option(["--config"], type=PATH, metavar="FILE", help="YAML with the same keys.")
    return command("run", RunConfig, _run, HELP, [config, dry_run_option()], EXAMPLES)


def show_plan(leg: Any, console: Console) -> int:
    """What `--dry-run` shows of one leg; NEGATIVE when it would be INVALID for sure."""
    from scenarios.leg.forecast import forecast
    from scenarios.leg.record import announce

    announce(leg, console)
    answer.put(run_directory=leg.run_dir.root, notes=leg.notes, unofficial_reasons=leg.unofficial_reasons)
    answer.put(replicas=leg.plan.replicas and leg.plan.replicas.model_dump(mode="json"))
    say(console, "dry run: nothing was started or written")
    expected = forecast(leg)
    answer.put(plan=expected)
    return ExitCode.NEGATIVE if expected is not None and expected.invalid_because else ExitCode.OK


def _run(values: dict[str, Any]) -> int:
    dry_run = values.pop("dry_run", False)
    console = Console()
    config_file = values.pop("config", None)
    config = make_config(merged(load_yaml(config_file) if config_file else {}, values))

    def prepared() -> Any:
        from scenarios.leg.plan import prepare  # the leg's process is under way by now, and imports much more

        return prepare(config, partial(say, console), alone=True)

    if dry_run:
        return show_plan(prepared(), console)
    from scenarios.leg.parent import run_leg

    leg: list[Any] = []

    def prepared_once() -> Any:
        leg.append(prepared())
        return leg[-1]

    try:
        return run_leg(config, prepared_once, console).exit_code
    finally:
        if leg:
            answer.put(run_directory=leg[0].run_dir.root)
            answer.put_file("result", leg[0].run_dir.result)
