"""One stage of the measurements: `sh tools/gpu/measure.sh STAGE`, which sets up the environment for it."""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from runs.harness import HARNESS_ROOT
from scripts.program import exit_code_of
from tools.gpu.stage import GpuStage, Options, Precision
from tools.gpu.stages import audits, event_loop, latency, offline, smoke

STAGES: dict[str, Callable[[GpuStage], None]] = {
    "0": smoke.measure,
    "1": offline.measure,
    "1b": offline.repeat,
    "2": latency.measure,
    "3": audits.measure,
    "4": event_loop.measure,
}


def run_stage(name: str, options: Options, work: Path, out: Path) -> None:
    """Run a stage and leave its text, its numbers and an archive of its runs in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    stage = GpuStage(name, options, work, out)
    stage.load.start()
    stage.say(f"stage {name} at {time.strftime('%T')}, at most {options.seconds:.0f} s")
    try:
        STAGES[name](stage)
    finally:
        stage.load.stop(stage.folder / "gpu.json")
        stage.say(f"stage {name} took {options.seconds - stage.left_s:.0f} s; files in {out}")
        stage.pack()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--seconds", type=float, default=530, help="seconds after which no step may end; default: 530")
    parser.add_argument("--precision", choices=get_args(Precision), default="fp8", help="default: fp8")
    parser.add_argument("--rate", type=float, help="Offline samples/s, if stage 1 did not run on this machine")
    parser.add_argument(
        "--work", type=Path, default=HARNESS_ROOT / "output" / "gpu", help="output directory; default: output/gpu"
    )
    parser.add_argument("--small", action="store_true", help="a rehearsal: tiny model, few samples")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return the exit code."""
    arguments_given = vars(_parser().parse_args(arguments))
    name, work, dummy = arguments_given.pop("stage"), arguments_given.pop("work"), os.environ.get("REHEARSE") == "dummy"
    if dummy:  # the dummy engine computes no large model
        arguments_given["small"] = True
    options = Options(**arguments_given, dummy=dummy)
    out = Path(os.environ.get("OUT", work / "out"))
    return exit_code_of(lambda: run_stage(name, options, work, out))


if __name__ == "__main__":
    sys.exit(main())
