"""The `curve` command, which measures all points of an MLPerf Endpoints submission."""

from functools import partial
from pathlib import Path
from shlex import quote

import click
from click.core import ParameterSource

from runs.errors import ExitCode, InputError
from runs.harness import PROGRAM
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, GroupedOption, all_mistakes
from scenarios.console import tell, wide_console

PLAIN_WIDTH = 160  # width of a table in characters if the output is not a terminal

EXAMPLES = (
    "write curve.yaml for a server: curve http://localhost:8000 --model MODEL --client inference-endpoint",
    "show the points, and start nothing: curve --config curve.yaml --dry-run",
    "measure the points, and build the submission: curve --config curve.yaml",
    "rehearse with short points: curve --config curve.yaml --rehearsal",
)

_option = partial(click.option, cls=GroupedOption)


@click.command(
    cls=Command,
    collects_mistakes=True,
    examples=EXAMPLES,
    shown=("--config", "--output-log-dir", "--until", "--rehearsal", "--dry-run"),
)
@click.argument("url", metavar="[URL]", required=False)
@_option("--config", type=PATH, metavar="FILE", help="YAML file that describes the curve.")
@_option("--output-log-dir", type=PATH, metavar="DIR", help="Directory of the curve. Default: output/<name of FILE>.")
@_option("--probe", is_flag=True, help="Measure rates first, also if FILE gives all concurrencies.")
@_option(
    "--until",
    type=click.Choice(("plan", "points", "tree")),
    default="tree",
    help="Last step: plan, points or tree. Default: tree.",
)
@_option(
    "--rehearsal", is_flag=True, help="Measure short points, and accept another model. The tree cannot be uploaded."
)
@click.option("--model", metavar="NAME", help="With URL: name of the model that the server lists.")
@click.option("--dataset-path", type=PATH, metavar="FILE", help="With URL: the performance and accuracy dataset.")
@click.option("--client", metavar="PATH", help="With URL: the program inference-endpoint.")
@click.option("--dry-run", is_flag=True, help="Check and show the plan; start and write nothing.")
@click.option(
    "--restart-changed", is_flag=True, help="Move points whose settings have changed to discarded/, and repeat them."
)
@click.pass_context
def curve(
    ctx: click.Context,
    /,
    url: str | None,
    config: Path | None,
    output_log_dir: Path | None,
    probe: bool,
    until: str,
    rehearsal: bool,
    restart_changed: bool,
    dry_run: bool,
    model: str | None,
    dataset_path: Path | None,
    client: str | None,
) -> ExitCode:
    """Measure all points of an MLPerf Endpoints submission of a running server.

    With URL, the command only writes FILE for this server (default: curve.yaml), and lists what is missing in it.

    Without URL, it finds the highest useful concurrency with probes, plans the points, runs the client of MLCommons
    for each point, and checks each run. It then builds the submission in DIR/tree and checks it, also with
    endpoints-submission-cli if that program is installed.

    After an interruption, the same command continues. It keeps the points whose checks passed, and moves all other runs
    to discarded/. A failed point is repeated once.

    Exit codes: 0 everything accepts the tree, 1 a point or the tree fails a check, 2 bad input or changed settings, 3
    refused to start, 4 the server or the client failed, 130 interrupted.
    """
    values = {"model": model, "path": dataset_path, "client": client}
    loaded = None
    with all_mistakes(ctx):
        if url is None and any((model, dataset_path, client)):
            text = "--model, --dataset-path and --client require the URL of a server"
            raise InputError(text, "write these values into the file of --config")
        if url is None and ctx.get_parameter_source("config") is ParameterSource.DEFAULT:
            raise InputError("give --config FILE or the URL of a server", "write, for example, --config curve.yaml")
        if url is None and config is not None:  # A wrong path is a mistake of the command line already.
            from scenarios.curve.curve_config import load_curve

            loaded = load_curve(config, output_log_dir, is_rehearsal=rehearsal)
    if url is not None:
        return _write(config or Path("curve.yaml"), url, values, is_rehearsal=rehearsal)
    from scenarios.curve.run_curve import run_curve

    assert loaded is not None
    console = wide_console(PLAIN_WIDTH)
    code = run_curve(loaded, console, probe=probe, until=until, restart_changed=restart_changed, dry_run=dry_run)
    command_output.put(directory=loaded.root)
    return code


def _write(path: Path, url: str, values: dict[str, Path | str | None], *, is_rehearsal: bool) -> ExitCode:
    """Write a new file, and list what is missing in it."""
    from scenarios.curve.new_curve import write_new_curve

    missing = write_new_curve(path, url, values, is_rehearsal=is_rehearsal)
    command_output.put(directory=path.absolute().parent)
    tell(f"written: {path}")
    for text in missing:
        tell(f"  {text}")
    tell(f"next: {PROGRAM} curve --config {quote(str(path))} --dry-run")
    return ExitCode.OK
