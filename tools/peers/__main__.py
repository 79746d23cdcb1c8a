"""`python -m tools.peers [PART…]`: run the measurements, print tables, write one JSON file."""

import dataclasses
import importlib
import sys
import time
from pathlib import Path

import click
from rich.console import Console

from runs.errors import Ending, ExitCode
from runs.files.writing import write_json
from runs.harness import harness_facts
from runs.machine.environment import host_facts, software_versions
from runs.processes.listening import listening

from .report import PeerPart, load_average, print_part
from .sizes import SMALLEST, Sizes

# Part → module, function and what it measures.
PARTS = {
    "a": ("Offline run ÷ LLM.generate", "llm_generate.offline"),
    "b": ("the harness's path with a null engine ÷ a bare null SUT", "null_path.run"),
    "c": ("highest valid Server and Interactive rate ÷ Offline rate", "rates.run"),
    "d": ("SingleStream p90 ÷ the engine's own latency", "llm_generate.single_stream"),
    "e": ("accuracy scoring ÷ the reference procedure", "scoring.run"),
    "i": ("an Offline query of 307,464 samples", "real_size.run"),
    "l": ("a server over HTTP", "over_http.run"),
    "m": ("highest valid Server rate over HTTP ÷ in the run's process", "rates.over_http"),
    "t": ("clients beside a scripted server", "truth.run"),
}
WIDTH = 120  # width of the tables in a file


@click.command(
    epilog="Parts: " + "; ".join(f"{name} = {title}" for name, (title, _) in PARTS.items()) + ". Exit codes: "
    "0 measured (met or missed), 2 bad input, 3 cannot start, 4 a measurement failed, 130 interrupted."
)
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)), metavar="[PART]...")
@click.option(
    "--work-dir",
    type=click.Path(path_type=Path),
    default=Path("output/peers"),
    show_default=True,
    metavar="DIR",
    help="Directory for logs and models.",
)
@click.option(
    "--json",
    "output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Default: peers.json in a new folder of --work-dir.",
)
@click.option("--repeats", type=click.IntRange(1), metavar="N", help=f"Runs of each side. Default: {Sizes().repeats}.")
@click.option("--smallest", is_flag=True, help="Use tiny sizes, to check the program; the figures are meaningless.")
def peers(parts: tuple[str, ...], work_dir: Path, output: Path | None, repeats: int | None, smallest: bool) -> int:
    """Measure the harness against LoadGen, vLLM and the reference procedures: medians and ratios of each PART (default:
    all).
    """
    sizes = SMALLEST if smallest else Sizes()
    if repeats is not None:
        sizes = dataclasses.replace(sizes, repeats=repeats)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    work = work_dir / time.strftime("%Y%m%d-%H%M%S")
    output = output or work / "peers.json"
    record = {
        "command": " ".join(sys.argv),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "harness": harness_facts(),
        "host": host_facts(),
        "software": software_versions(),
        "sizes": sizes,
    }
    done: list[PeerPart] = []
    name = ""
    try:
        work.mkdir(parents=True)
        with listening():  # ends the LLM process and the servers with this program
            for name in parts or PARTS:
                done.append(_run(name, work / name, sizes))
                print_part(console, done[-1])
                write_json(output, {**record, "parts": [part.as_json() for part in done]})
    except Ending as error:
        measured = f"; parts {', '.join(part.name for part in done)} are in {output}" if done else ""
        print(f"error: part {name}: {error}{measured}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {error.filename} cannot be written: {error.strerror}", file=sys.stderr)
        return ExitCode.REFUSED
    console.print(f"wrote {output}", highlight=False, soft_wrap=True)
    return ExitCode.OK


def _run(name: str, work: Path, sizes: Sizes) -> PeerPart:
    module, function = PARTS[name][1].split(".")
    run = getattr(importlib.import_module(f".{module}", __package__), function)  # imports only this part
    before, started = load_average(), time.monotonic()
    part: PeerPart = run(work, sizes)
    part.seconds = time.monotonic() - started
    part.load_average = (before, load_average())
    return part


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return the exit code."""
    try:
        return int(peers.main(arguments, prog_name="python -m tools.peers", standalone_mode=False))
    except click.ClickException as error:
        print(f"error: {error.format_message()}", file=sys.stderr)
        return ExitCode.BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
