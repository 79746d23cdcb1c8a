"""Front door: parse, dispatch, exit code."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from runs.environment import HARNESS_VERSION
from runs.errors import ExitCode, HarnessError
from scenarios.commands.schema import command, normalise
from scenarios.leg.config import RunConfig, load_yaml, make_config, merged

RUN_HELP = """Run one LoadGen leg: performance, or accuracy with --accuracy.

Exit codes: 0 VALID or passed, 1 INVALID or failed, 2 bad input, 3 refused to start, 4 failed while running,
130 interrupted."""


def run(values: dict[str, Any]) -> int:
    """One leg."""
    from scenarios.leg.parent import run_leg

    console = Console()
    config_file = values.pop("config", None)
    config = make_config(merged(load_yaml(config_file) if config_file else {}, values))

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    def prepared() -> Any:
        from scenarios.leg.plan import prepare  # the leg's process is under way by now, and imports much more

        return prepare(config, say)

    return run_leg(config, prepared, console).exit_code


def run_click_command() -> click.Command:
    config = click.Option(
        ["--config"], type=click.Path(path_type=Path), metavar="FILE", help="YAML with the same keys."
    )
    return command("run", RunConfig, run, RUN_HELP, [config])


def doctor(model_path: str | None, dataset_path: Path | None) -> int:
    """What is installed and what can run."""
    from scenarios.commands.doctor import print_report

    return print_report(Console(), model_path, dataset_path)


def doctor_click_command() -> click.Command:
    return click.Command(
        "doctor",
        callback=doctor,
        help="Tell what is installed, which engine, model and data set are usable, and what could be official.",
        params=[
            click.Option(["--model-path"], metavar="MODEL", help="Also look at this model folder or hub id."),
            click.Option(
                ["--dataset-path"], type=click.Path(path_type=Path), metavar="FILE", help="And this data set."
            ),
        ],
    )


HERE: dict[str, Callable[[], click.Command]] = {"run": run_click_command, "doctor": doctor_click_command}
# Made by `scenarios/commands/<name>.py`.
ELSEWHERE = ("audit", "campaign", "check", "gate", "signoff", "store", "submit", "tune", "verify")
COMMANDS = sorted((*HERE, *ELSEWHERE))


class _Commands(click.Group):
    """Imports a command's module when the command is asked for: the start of a leg does not wait for the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return COMMANDS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in HERE:
            return HERE[cmd_name]()
        if cmd_name in ELSEWHERE:
            make = getattr(importlib.import_module(f"scenarios.commands.{cmd_name}"), f"{cmd_name}_click_command")
            found: click.Command = make()
            return found
        return None


@click.group(
    cls=_Commands,
    context_settings={"max_content_width": 100},
    help="MLPerf Inference with the official LoadGen and vLLM: Llama-3.1-8B on CNN-DailyMail.",
)
@click.version_option(HARNESS_VERSION, prog_name="mlperf-llama-vllm")
def cli() -> None: ...


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit code. A user's mistake never ends in a traceback."""
    try:
        plain = normalise(arguments, COMMANDS, "run")
        return int(cli.main(plain, standalone_mode=False, prog_name="main.py") or ExitCode.OK)
    except click.ClickException as error:
        error.show()
        return ExitCode.BAD_INPUT
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
