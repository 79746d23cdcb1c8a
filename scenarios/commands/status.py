"""The `status` command, which shows the state of runs in progress and finished runs."""

import contextlib
import math
from pathlib import Path

import click

from runs.errors import ExitCode, InputError
from runs.files.writing import write_atomic
from runs.processes.interrupts import pause
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, writing

EXAMPLES = (
    "show the runs in progress on this machine, and the runs in ./output: status",
    "write a page about the runs on a shared disk, until no run is in progress: status /shared/runs --watch --output "
    "status.md",
    "write JSON for a program: status RUN_DIR --json",
)

ON_A_TERMINAL_S, ELSEWHERE_S = 2.0, 60.0


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("folders", metavar="[DIR]...", type=PATH, nargs=-1)
@click.option("--watch", is_flag=True, help="Repeat until no run is in progress.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=86_400),
    metavar="SECONDS",
    help=f"Seconds between two updates. Default: {ON_A_TERMINAL_S:g} on a terminal, {ELSEWHERE_S:g} elsewhere.",
)
@click.option("--output", type=PATH, metavar="FILE.md", help="Write each update to this Markdown file.")
def status(folders: tuple[Path, ...], watch: bool, interval: float | None, output: Path | None) -> ExitCode:
    """Show the state of runs, campaigns, tunings, benches, curves and audits.

    For a run in progress, the command shows progress and rates. For other runs, it shows when and why the run ended.
    DIR is any directory that contains runs. Default: runs in progress on this machine, and ./output. With --watch and
    --json, the command prints one line with a JSON object per update.

    Exit codes (the most severe state of the runs): 0 in progress, VALID or PASS, 1 INVALID or FAIL, 2 bad input, 3
    refused to start, 4 a run failed, was killed or shows no signs of life, 130 interrupted.
    """
    if interval is not None and math.isnan(interval):
        raise InputError(f"--interval {interval} is not a time", "give seconds, such as 2")
    from scenarios.live.terminal_block import TerminalBlock, is_live
    from scenarios.status.run_blocks import RunBlocks
    from scenarios.status.snapshot import as_json, lines, snapshot_markdown, take_snapshot
    from scenarios.terminal import Terminal

    console = Terminal()
    terminal = is_live(console) and not command_output.prints_json()  # The objects would break the block.
    pause_s = interval or (ON_A_TERMINAL_S if terminal else ELSEWHERE_S)
    blocks = RunBlocks(console)
    updated = TerminalBlock(console) if watch and terminal else None
    with updated or contextlib.nullcontext():
        while True:
            snapshot = take_snapshot(folders)
            if output is not None:
                with writing("--output", output):
                    write_atomic(output, snapshot_markdown(snapshot))
            is_last = not (watch and snapshot.alive)
            command_output.put(**as_json(snapshot))
            shown = blocks.lines(snapshot) if terminal else lines(snapshot)
            if updated is not None:
                updated.show([] if is_last else shown)  # A low terminal shows the end: the runs in progress.
            for line in shown if updated is None or is_last else ():
                console.print(line, highlight=False, soft_wrap=True)
            if is_last:
                return snapshot.exit_code
            command_output.print_update(snapshot.exit_code)
            pause(pause_s)
