"""The `audit` command: its options are those of an audit and those of the legs it runs."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from compliance.audits.registry import AUDITS
from scenarios.audit.config import NOT_FOR_AUDITS, AuditOptions, split_values
from scenarios.commands.schema import given_values, options_of
from scenarios.leg.config import RunConfig

HELP = (
    "Run an audit's legs through LoadGen and judge them, or judge two existing runs (--ref, --run).\n\n\b\n"
    + "\n".join(f"{test.name:<20}{test.summary}" for test in AUDITS.values())
    + "\n\nLegs and outcome go to DIR/audit/NAME/. Every leg is a process of its own, with its own engine. A YAML file "
    "(--config) has the keys of `run`, and the audit's options under `audit`.\n\n"
    "Exit codes: 0 PASS, 1 FAIL, 2 bad input, 3 refused to start, 4 failed while running (no verdict), 130 interrupted."
)


def audit_click_command() -> click.Command:
    """The click command; its callback returns the exit code."""
    own = options_of(AuditOptions)
    legs = [option for option in options_of(RunConfig) if option.name not in NOT_FOR_AUDITS]
    for option in legs:
        option.help = {
            "scenario": "Offline, Server, SingleStream or Interactive, as the audit allows.",
            "output_log_dir": "The audit goes to DIR/audit/NAME. Default: output/<time>-<scenario>-audit.",
        }.get(str(option.name), option.help)
    config = click.Option(["--config"], type=click.Path(path_type=Path), metavar="FILE", help="YAML with these keys.")
    return click.Command("audit", params=[*own, config, *legs], callback=_audit, help=HELP)


def _audit(**parsed: Any) -> int:
    from scenarios.audit.run import run_audit

    values = {name: value for name in AuditOptions.model_fields if (value := parsed.pop(name)) is not None}
    if (config := parsed.pop("config")) is not None:
        values["config"] = config
    options, legs = split_values({**values, **given_values(RunConfig, parsed)})
    return run_audit(options, legs, Console())
