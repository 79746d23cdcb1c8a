"""Front door: parse, dispatch, exit code."""

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from runs.environment import HARNESS_VERSION
from runs.errors import ExitCode, HarnessError
from scenarios.audit_command import audit_click_command
from scenarios.campaign_command import campaign_click_command
from scenarios.check_command import check_click_command
from scenarios.command_line import command, normalise
from scenarios.config import RunConfig, load_yaml, make_config, merged
from scenarios.gate_command import gate_click_command
from scenarios.signoff_command import signoff_click_command
from scenarios.store_command import store_click_command
from scenarios.submit_command import submit_click_command
from scenarios.tune_command import tune_click_command
from scenarios.verify_command import verify_click_command

RUN_HELP = """Run one LoadGen leg: performance, or accuracy with --accuracy.

Exit codes: 0 VALID or passed, 1 INVALID or failed, 2 bad input, 3 refused to start, 4 failed while running,
130 interrupted."""


def run(values: dict[str, Any]) -> int:
    """One leg."""
    from scenarios.leg import run_leg
    from scenarios.plan import prepare

    console = Console()
    config_file = values.pop("config", None)
    config = make_config(merged(load_yaml(config_file) if config_file else {}, values))

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    return run_leg(config, lambda: prepare(config, say), console).exit_code


def doctor(model_path: str | None, dataset_path: Path | None) -> int:
    """What is installed and what can run."""
    from scenarios.doctor import print_report

    return print_report(Console(), model_path, dataset_path)


@click.group(
    context_settings={"max_content_width": 100},
    help="MLPerf Inference with the official LoadGen and vLLM: Llama-3.1-8B on CNN-DailyMail.",
)
@click.version_option(HARNESS_VERSION, prog_name="mlperf-llama-vllm")
def cli() -> None: ...


cli.add_command(
    command(
        "run",
        RunConfig,
        run,
        RUN_HELP,
        [click.Option(["--config"], type=click.Path(path_type=Path), metavar="FILE", help="YAML with the same keys.")],
    )
)
cli.add_command(
    click.Command(
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
)
cli.add_command(audit_click_command())
cli.add_command(campaign_click_command())
cli.add_command(tune_click_command())
cli.add_command(submit_click_command())
cli.add_command(check_click_command())
cli.add_command(signoff_click_command())
cli.add_command(gate_click_command())
cli.add_command(store_click_command())
cli.add_command(verify_click_command())


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit code. A user's mistake never ends in a traceback."""
    try:
        plain = normalise(arguments, list(cli.commands), "run")
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
