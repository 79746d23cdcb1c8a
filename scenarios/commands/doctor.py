"""`main.py doctor`: what is installed, what can run here, and what of it could be official."""

from typing import TYPE_CHECKING, Any

import click

from runs.errors import ExitCode
from scenarios.command_line import answer
from scenarios.command_line.command import PATH, Command
from scenarios.console import say

if TYPE_CHECKING:
    from rich.console import Console

    from scenarios.leg.machine_checks import ToExamine

EXAMPLES = (
    "what this machine has: doctor",
    "whether a model and a data set could be official: doctor --model-path MODEL --dataset-path cnn_eval.json",
    "a server: doctor --api-server http://localhost:8000",
)


def print_report(console: "Console", asked: "ToExamine") -> ExitCode:
    """Print the findings; anything missing makes the exit code REFUSED."""
    from scenarios.leg.machine_checks import examine

    marks = {"pass": "ok     ", "note": "note   ", "error": "MISSING"}
    findings = list(examine(asked))
    answer.put(findings=[finding.as_json() for finding in findings])
    for finding in findings:
        say(console, f"{marks[finding.severity]}  {finding.slug:<12} {finding.text}")
    return ExitCode.REFUSED if any(finding.severity == "error" for finding in findings) else ExitCode.OK


@click.command(cls=Command, examples=EXAMPLES)
@click.option("--model-path", metavar="MODEL", help="Also check this model folder or hub id.")
@click.option("--dataset-path", type=PATH, metavar="FILE", help="Also check this data set.")
@click.option("--api-server", metavar="URL", help="Also ask this server, and measure the client.")
@click.option("--api-key-env", metavar="VAR", help="Environment variable with the server's API key.")
@click.option("--api-ca", type=PATH, metavar="FILE", help="Certificate authority of the server (PEM).")
@click.option(
    "--cluster",
    is_flag=False,
    flag_value="auto",
    metavar="[ADDRESS]",
    help="Also check the nodes of this Ray cluster. Default: the cluster of this machine.",
)
def doctor(**asked: Any) -> ExitCode:
    """Report what is installed, which engine, model and data set are usable, and what could be official."""
    from scenarios.leg.machine_checks import ToExamine
    from scenarios.terminal import Terminal

    return print_report(Terminal(), ToExamine(**asked, told=answer.put))
