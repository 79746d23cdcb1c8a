"""`python -m scripts.bench [PART…]`: run the measurements, print tables, write one JSON file."""

import argparse
import dataclasses
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from runs.environment import harness_facts, host_facts, software_versions
from runs.errors import ExitCode, HarnessError
from runs.files import write_json
from scenarios.leg.supervisor import signals_raise

from .report import BenchPart, load_average, print_part
from .sizes import SMALLEST, Sizes

# What each part measures, and where.
PARTS = {
    "a": ("Offline leg ÷ LLM.generate", "llm_generate.offline"),
    "b": ("our path with a null engine ÷ a bare null SUT", "null_path.run"),
    "c": ("highest valid Server and Interactive rate ÷ Offline rate", "rates.run"),
    "d": ("SingleStream p90 ÷ the engine's own latency", "llm_generate.single_stream"),
    "e": ("accuracy scoring ÷ the reference procedure", "scoring.run"),
    "i": ("an Offline query of 307,464 samples", "real_size.run"),
    "l": ("a server over HTTP", "over_http.run"),
    "m": ("highest valid Server rate over HTTP ÷ in the leg's process", "rates.over_http"),
}

WIDTH = 120  # of the tables in a file


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    options = _parser().parse_args(arguments)
    names: list[str] = options.parts or list(PARTS)
    sizes = SMALLEST if options.smallest else Sizes()
    if options.repeats is not None:
        sizes = dataclasses.replace(sizes, repeats=options.repeats)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    work: Path = options.work_dir / time.strftime("%Y%m%d-%H%M%S")
    output: Path = options.json or work / "bench.json"
    record = {
        "command": " ".join(sys.argv),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "harness": harness_facts(),
        "host": host_facts(),
        "software": software_versions(),
        "sizes": sizes,
    }
    parts: list[BenchPart] = []
    try:
        work.mkdir(parents=True)
        # An engine that is kept alive beside the legs must not outlive the bench, whatever ends it.
        with signals_raise():
            for name in names:
                part = _run(name, work / name, sizes)
                parts.append(part)
                print_part(console, part)
                write_json(output, {**record, "parts": [done.as_json() for done in parts]})
    except HarnessError as error:
        measured = f"; parts {', '.join(part.name for part in parts)} stand in {output}" if parts else ""
        print(f"error: part {name}: {error}{measured}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {error.filename} cannot be written: {error.strerror}", file=sys.stderr)
        return ExitCode.REFUSED
    console.print(f"wrote {output}", highlight=False, soft_wrap=True)
    return ExitCode.OK


def _run(name: str, work: Path, sizes: Sizes) -> BenchPart:
    # A part imports what it measures, and only a part that was asked for.
    module, function = PARTS[name][1].split(".")
    run: Callable[[Path, Sizes], BenchPart] = getattr(importlib.import_module(f".{module}", __package__), function)
    before, started = load_average(), time.monotonic()
    part = run(work, sizes)
    part.seconds = time.monotonic() - started
    part.load_average = (before, load_average())
    return part


def _part_name(text: str) -> str:
    if text not in PARTS:
        raise argparse.ArgumentTypeError(f"{text!r} is no part; choose from {', '.join(PARTS)}")
    return text


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench",
        description="Measure the harness against what it builds on, side by side in one run: medians and ratios.",
        epilog="Parts: " + "; ".join(f"{name} = {title}" for name, (title, _) in PARTS.items()) + ". Exit codes: "
        "0 measured (met or missed), 2 bad input, 3 cannot start, 4 a measurement failed, 130 interrupted.",
    )
    parser.add_argument("parts", nargs="*", type=_part_name, metavar="PART", help="default: all")
    parser.add_argument(
        "--work-dir", type=Path, default=Path("output/bench"), metavar="DIR", help="for logs and models (output/bench)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="default: bench.json in a new folder of --work-dir")
    parser.add_argument("--repeats", type=_positive, metavar="N", help=f"runs of each side ({Sizes().repeats})")
    parser.add_argument(
        "--smallest", action="store_true", help="tiny sizes: shows that it runs; the figures mean nothing"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
