"""The `doctor` command, which reports what is installed, usable and eligible for submission."""

from typing import TYPE_CHECKING, Any

import click

from runs.errors import ExitCode
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command
from scenarios.console import say

if TYPE_CHECKING:
    from rich.console import Console

    from scenarios.launch.machine_checks import DoctorRequest

EXAMPLES = (
    "check this machine: doctor",
    "check a model and a dataset too: doctor --model-path MODEL --dataset-path cnn_eval.json",
    "check a server too: doctor --api-server http://localhost:8000",
)


def print_findings(console: "Console", request: "DoctorRequest") -> ExitCode:
    """Print the findings; return REFUSED if anything is missing."""
    from compliance.judge.record import finding_record
    from scenarios.launch.machine_checks import examine_machine

    marks = {"pass": "ok     ", "note": "note   ", "error": "MISSING"}
    findings = list(examine_machine(request))
    command_output.put(findings=[finding_record(finding) for finding in findings])
    for finding in findings:
        say(console, f"{marks[finding.severity]}  {finding.slug:<12} {finding.text}")
    return ExitCode.REFUSED if any(finding.severity == "error" for finding in findings) else ExitCode.OK


@click.command(cls=Command, examples=EXAMPLES)
@click.option("--model-path", metavar="MODEL", help="Also check this model folder or Hugging Face Hub ID.")
@click.option("--dataset-path", type=PATH, metavar="FILE", help="Also check this dataset.")
@click.option("--api-server", metavar="URL", help="Also check this server; separate multiple servers with commas.")
@click.option("--api-model-name", metavar="NAME", help="Name of the model on the server. Default: its only model.")
@click.option("--api-key-env", metavar="VAR", help="Environment variable with the server's API key.")
@click.option("--header", "-H", "--headers", multiple=True, metavar="NAME=VALUE", help="HTTP header for the server.")
@click.option("--insecure", is_flag=True, help="Accept any certificate of an https server, for tests.")
@click.option("--api-ca", type=PATH, metavar="FILE", help="Certificate authority of the server (PEM).")
@click.option(
    "--cluster",
    is_flag=False,
    flag_value="auto",
    metavar="[ADDRESS]",
    help="Also check the nodes of this Ray cluster. Default: the cluster of this machine.",
)
def doctor(**options: Any) -> ExitCode:
    """Report what is installed, usable, and eligible for submission.

    Exit codes: 0 nothing is missing, 2 bad input, 3 something is missing.
    """
    from scenarios.launch.machine_checks import DoctorRequest
    from scenarios.terminal import Terminal

    return print_findings(Terminal(), DoctorRequest(**options, put_facts=command_output.put))
