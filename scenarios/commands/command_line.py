"""The command line: find the command, run it, turn what went wrong into a message and an exit code."""

import importlib
import sys

import click

from runs.environment import HARNESS_VERSION
from runs.errors import ExitCode, HarnessError
from scenarios.commands.schema import normalise

# Each is made by `scenarios/commands/<name>.py`.
COMMANDS = [
    "audit",
    "campaign",
    "check",
    "doctor",
    "gate",
    "results",
    "run",
    "signoff",
    "status",
    "store",
    "submit",
    "tune",
    "verify",
]


class _Commands(click.Group):
    """Imports a command's module when the command is asked for: the start of a leg does not wait for the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return COMMANDS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        make = getattr(importlib.import_module(f"scenarios.commands.{cmd_name}"), f"{cmd_name}_click_command")
        found: click.Command = make()
        return found


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
        print("error: interrupted by SIGINT", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.FAILED
