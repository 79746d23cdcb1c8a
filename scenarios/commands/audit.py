"""The `audit` command, which takes the options of an audit and of its runs."""

from pathlib import Path
from typing import Any

import click

from compliance.audits.discovery import AUDITS
from scenarios.audit.audit_config import NOT_FOR_AUDITS, all_options, load_audit
from scenarios.command_line import command_output
from scenarios.command_line.command import Command, all_mistakes
from scenarios.command_line.schema_options import config_option, dry_run_option, given_values, options_of
from scenarios.launch.run_config import RunConfig

HELP = (
    "Start an audit's runs and check them, or check two runs (--ref, --run).\n\n\b\n"
    + "\n".join(f"{name:<20}{test.summary}" for name, test in AUDITS.items())
    + "\n\nThe command writes the runs and the verdict to DIR/audit/NAME/. It starts a new process for each run, and a "
    "new engine unless the audit compares rates. The YAML file of --config contains the options of `run` as keys, and "
    "the options of the audit under the key `audit`.\n\n"
    "Exit codes: 0 PASS, 1 FAIL, 2 bad input, 3 refused to start or no verdict, 4 a run failed, 130 interrupted."
)

EXAMPLES = (
    "the audit that a submission requires: audit --test TEST06 --scenario Server --vllm --model-path DIR "
    "--dataset-path FILE",
    "an audit of the dummy engine, in a minute: audit --test output_caching --scenario Offline --engine dummy",
    "check two existing runs: audit --test output_length --ref ACCURACY_DIR --run PERFORMANCE_DIR",
)

_CHANGED = {
    "scenario": {"help": "LoadGen scenario. Not every audit supports every scenario."},
    "output_log_dir": {
        "help": "Directory of the audit; the files are written to DIR/audit/NAME. Default: "
        "output/<time>-<scenario>-audit."
    },
}


@click.command(
    cls=Command,
    collects_mistakes=True,
    help=HELP,
    examples=EXAMPLES,
    shown=("--test", "--scenario", "--vllm", "--model-path", "--dataset-path", "--ref", "--run"),
    params=[
        *options_of(all_options()),
        config_option(),
        dry_run_option(),
        *options_of(RunConfig, NOT_FOR_AUDITS, _CHANGED),
    ],
)
@click.pass_context
def audit(ctx: click.Context, /, config: Path | None, dry_run: bool, **parsed: Any) -> int:
    """Execute or check an audit; return the exit code."""
    with all_mistakes(ctx):
        audit_values = given_values({name: parsed.pop(name) for name in all_options().model_fields})
        options, runs = load_audit(config, audit_values, given_values(parsed))
    from scenarios.audit.run_audit import run_audit
    from scenarios.terminal import Terminal

    def put(outcome: Path) -> None:
        command_output.put(directory=outcome.parent)
        command_output.put_file("audit", outcome)

    return run_audit(options, runs, Terminal(), dry_run=dry_run, done=put)
