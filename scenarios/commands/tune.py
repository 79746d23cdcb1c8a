"""The `tune` command, which takes the options of a tuning and of its runs."""

from pathlib import Path
from typing import Any

import click

from runs.errors import ExitCode
from scenarios.command_line import command_output
from scenarios.command_line.command import Command, all_mistakes
from scenarios.command_line.schema_options import config_option, dry_run_option, given_values, options_of
from scenarios.launch.run_config import RunConfig
from scenarios.tune.tune_config import NOT_FOR_TUNES, TuneOptions, load_tune

EXAMPLES = (
    "find the highest valid rate: tune --scenario Server --vllm --model-path DIR --dataset-path FILE",
    "search the engine's options first: tune --scenario Server --search --vllm --model-path DIR",
    "try the command with the dummy engine, in a minute: tune --scenario Server --engine dummy --dummy-slots 4 "
    "--dummy-prefill-us 50",
)

_CHANGED = {
    "scenario": {"help": "LoadGen scenario.", "metavar": "Server|Interactive|Offline"},
    "output_log_dir": {
        "help": "Directory of the tuning. If it contains an unfinished tuning, the command continues it. Default: "
        "output/tune-<scenario>."
    },
    "user_conf": {"help": "LoadGen user.conf for the runs. The tuning replaces the target_qps of the scenario."},
}


@click.command(
    cls=Command,
    collects_mistakes=True,
    examples=EXAMPLES,
    shown=(
        "--scenario",
        "--vllm",
        "--model-path",
        "--dataset-path",
        "--search",
        "--search-budget-s",
        "--output-log-dir",
        "--dry-run",
    ),
    params=[
        config_option("YAML file with the options of `run` as keys, and the tuning options under the key `tune`."),
        *options_of(TuneOptions),
        dry_run_option(),
        click.Option(
            ["--restart-changed"],
            is_flag=True,
            help="If DIR contains a tuning with another configuration, move its runs to discarded/ and start again.",
        ),
        *options_of(RunConfig, NOT_FOR_TUNES, _CHANGED),
    ],
)
@click.pass_context
def tune(ctx: click.Context, /, config: Path | None, restart_changed: bool, dry_run: bool, **parsed: Any) -> ExitCode:
    """Find the highest VALID target_qps; in Offline, measure the target_qps.

    In Server and Interactive, the command finds the highest VALID target_qps. The first estimate comes from an Offline
    run or from --offline-qps. Probes at a few rates follow. A probe has the settings of the full run, and stops as soon
    as it can no longer be VALID. A full run then confirms the best rate. In Offline, the command measures the rate and
    confirms it with a full run.

    The command writes the rate to DIR/user.conf, the measurements to DIR/tune.json and DIR/rates.svg, and the options
    of the confirmed run to DIR/best.yaml. To repeat that run: `run --config DIR/best.yaml`.

    With --search, short runs first try the engine's scheduling options, within --search-budget-s and --search-trials.
    The probes then use the best options.

    After an interruption, the same command continues the tuning from DIR/journal.jsonl. If the configuration, model,
    dataset or machine of an earlier step differs, the command names each difference and refuses to continue.

    Exit codes: 0 a rate was confirmed, 1 no rate was confirmed, 2 bad input or a changed configuration, 3 refused to
    start, 4 a run failed, 130 interrupted.
    """
    with all_mistakes(ctx):
        tune_values = given_values({name: parsed.pop(name) for name in TuneOptions.model_fields})
        planned = load_tune(config, tune_values, given_values(parsed))
    from scenarios.status.shown_runs import say_page
    from scenarios.terminal import Terminal
    from scenarios.tune.run_tune import run_tune

    console = Terminal()
    code = run_tune(planned, console, restart_changed=restart_changed, dry_run=dry_run)
    command_output.put(directory=planned.place.root)
    if not dry_run:
        command_output.put_file("tune", planned.place.record)
        say_page(planned.place.root, console)
    return code
