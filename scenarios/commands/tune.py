"""The `tune` command: its options are those of a tune and those of the legs it runs."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from runs.errors import ExitCode
from scenarios.command_line import answer
from scenarios.command_line.help import Command
from scenarios.command_line.paths import PATH
from scenarios.command_line.schema import dry_run_option, given_values, options_of
from scenarios.leg.config import RunConfig
from scenarios.tune.config import NOT_FOR_TUNES, TuneOptions

EXAMPLES = (
    "the highest valid rate: tune --scenario Server --vllm --model-path DIR --dataset-path FILE",
    "with a search of the engine's options first: tune --scenario Server --search --vllm --model-path DIR",
    "see how it goes, in a minute: tune --scenario Server --engine dummy --dummy-slots 4 --dummy-prefill-us 50",
)

_CHANGED = {
    "scenario": {"help": "What the rate is looked for.", "metavar": "Server|Interactive|Offline"},
    "output_log_dir": {
        "help": "The tune's directory, new or of an earlier one. Default: output/tune-<scenario>.",
    },
    "user_conf": {
        "help": "LoadGen user.conf of the real run; its target_qps for the scenario is what is looked for.",
    },
}


@click.command(
    cls=Command,
    examples=EXAMPLES,
    params=[
        click.Option(
            ["--config"], type=PATH, metavar="FILE", help="YAML with the keys of run, and these under `tune`."
        ),
        *options_of(TuneOptions),
        dry_run_option(),
        click.Option(
            ["--restart-changed"], is_flag=True, help="Set the steps of another configuration aside, and begin anew."
        ),
        *options_of(RunConfig, NOT_FOR_TUNES, _CHANGED),
    ],
)
def tune(config: Path | None, restart_changed: bool, dry_run: bool, **parsed: Any) -> ExitCode:
    """Find the highest target_qps that is VALID in Server or Interactive; for Offline, the one of a full run.

    An Offline leg gives a first estimate (or --offline-qps). Probes at a few rates follow, each a leg of its own with
    the settings of the real run; one that can no longer be VALID is stopped at once. The best rate is confirmed by
    another full leg. The rate goes to DIR/user.conf, the figures to DIR/tune.json and DIR/rates.svg, and the options of
    a leg to DIR/best.yaml: `main.py run --config DIR/best.yaml`.

    With --search, short legs come first that try the engine's scheduling options, within --search-budget-s and
    --search-trials; the rate is then found and confirmed with the best ones.

    The same command goes on after an interruption, from DIR/journal.jsonl. Steps that were made with another
    configuration, model, data set or machine stop it, naming each key.

    Exit codes: 0 a rate was confirmed, 1 none was, 2 bad input or a changed configuration, 3 refused to start, 4 a leg
    failed while running, 130 interrupted.
    """
    from scenarios.status.shown_legs import say_page
    from scenarios.tune.config import load_tune
    from scenarios.tune.run import run_tune

    own = given_values(TuneOptions, {name: parsed.pop(name) for name in TuneOptions.model_fields})
    asked = load_tune(config, own, given_values(RunConfig, parsed))
    console = Console()
    code = run_tune(asked, console, restart_changed=restart_changed, dry_run=dry_run)
    answer.put(directory=asked.place.root)
    if not dry_run:
        answer.put_file("tune", asked.place.record)
        say_page(asked.place.root, console)
    return code
