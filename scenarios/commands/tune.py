"""The `tune` command, which takes the options of a tuning and of its runs."""

from pathlib import Path
from typing import Any

import click

from runs.errors import ExitCode
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command
from scenarios.command_line.schema_options import dry_run_option, given_values, options_of
from scenarios.run.config import RunConfig
from scenarios.tune.config import NOT_FOR_TUNES, TuneOptions, load_tune

EXAMPLES = (
    "the highest valid rate: tune --scenario Server --vllm --model-path DIR --dataset-path FILE",
    "with a search of the engine's options first: tune --scenario Server --search --vllm --model-path DIR",
    "a trial in a minute: tune --scenario Server --engine dummy --dummy-slots 4 --dummy-prefill-us 50",
)

_CHANGED = {
    "scenario": {"help": "Scenario to tune.", "metavar": "Server|Interactive|Offline"},
    "output_log_dir": {
        "help": "Directory of the tuning; an existing tuning continues. Default: output/tune-<scenario>.",
    },
    "user_conf": {
        "help": "LoadGen user.conf of the full run; the tuning replaces target_qps of the scenario.",
    },
}


@click.command(
    cls=Command,
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
        click.Option(
            ["--config"], type=PATH, metavar="FILE", help="YAML file with the keys of `run` and, under `tune`, these."
        ),
        *options_of(TuneOptions),
        dry_run_option(),
        click.Option(
            ["--restart-changed"], is_flag=True, help="Move steps of another configuration aside and start again."
        ),
        *options_of(RunConfig, NOT_FOR_TUNES, _CHANGED),
    ],
)
def tune(config: Path | None, restart_changed: bool, dry_run: bool, **parsed: Any) -> ExitCode:
    """Find the highest VALID target_qps, or the target_qps of a full Offline run.

    The scenario of the highest target_qps is Server or Interactive. An Offline run (or --offline-qps) gives a first
    estimate. Probes at a few rates follow: runs with the settings of the full run, each stopped as soon as it can no
    longer be VALID. A full run confirms the best rate. The command writes the rate to DIR/user.conf, the measurements
    to DIR/tune.json and DIR/rates.svg, and the options of the confirmed run to DIR/best.yaml. To repeat that run:
    `main.py run --config DIR/best.yaml`.

    With --search, short runs first try the engine's scheduling options, within --search-budget-s and --search-trials.
    The probes then use the best options.

    After an interruption the same command continues from DIR/journal.jsonl. It refuses to continue if an earlier step
    has another configuration, model, dataset or machine, and names each difference.

    Exit codes: 0 a rate was confirmed, 1 no rate was confirmed, 2 bad input or a changed configuration, 3 refused to
    start, 4 a run failed, 130 interrupted.
    """
    own = given_values(TuneOptions, {name: parsed.pop(name) for name in TuneOptions.model_fields})
    asked = load_tune(config, own, given_values(RunConfig, parsed))
    from scenarios.status.shown_runs import say_page
    from scenarios.terminal import Terminal
    from scenarios.tune.run import run_tune

    console = Terminal()
    code = run_tune(asked, console, restart_changed=restart_changed, dry_run=dry_run)
    command_output.put(directory=asked.place.root)
    if not dry_run:
        command_output.put_file("tune", asked.place.record)
        say_page(asked.place.root, console)
    return code
