"""The measurements on a GPU machine within a time: `sh tools/gpu/measure.sh`, which sets up the environment for it.

The stages run in their order, each within its share of the time. A second command continues with the stages that the
first one did not start, or did not finish before its end.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from runs.errors import InputError
from runs.harness import HARNESS_ROOT
from scripts.program import exit_code_of
from tools.gpu.results import COMPLETE, CUT, STOPPED
from tools.gpu.stage import GpuStage, Options, Session, Stage
from tools.gpu.stages import STAGES

SECONDS = 780.0  # the shares of all stages except D


def run_stages(options: Options, stages: Sequence[Stage], work: Path, out: Path) -> None:
    """Run stages, and leave the results in `out`.

    Raises:
        SetupError: If the machine cannot run the stages.
        Interrupted: If a signal ends the measurements. The files are complete.
    """
    session = Session(options, work, out)
    session.load.start()
    try:
        session.say(f"measurements at {time.strftime('%T')}, at most {options.seconds:.0f} s")
        for stage in stages:
            _run_stage(session, stage)
    finally:
        session.load.stop(work / "gpu.json")
        session.say(f"{options.seconds - session.left_s:.0f} s; results in {out}")


def _run_stage(session: Session, stage: Stage) -> None:
    """Run a stage within its share, unless it has ended or too little time is left."""
    seconds = session.left_s if session.options.dummy else min(stage.share_s, session.left_s)
    if not session.options.dummy and seconds < stage.least_s:
        session.say(f"-- {stage.name}: not started: {session.left_s:.0f} s left, {stage.least_s:.0f} s needed")
        return
    session.say(f"{stage.name}: {stage.title}; at most {seconds:.0f} s")
    running, started_s, state = GpuStage(stage, session, seconds), time.monotonic(), CUT
    try:
        stage.measure(running)
        state = COMPLETE if running.is_complete else STOPPED if seconds == stage.share_s else CUT
    finally:
        running.close(state)
        running.pack()
        session.say(f"   {stage.name} took {time.monotonic() - started_s:.0f} s; GPU {session.load.since(started_s)}")


def _chosen(names: str | None, work: Path) -> list[Stage]:
    """Return the stages to run.

    Args:
        names: names of stages, separated by commas; None = the stages that have not ended.

    Raises:
        InputError: If a name is unknown.
    """
    if names is not None:
        by_name = {stage.name: stage for stage in STAGES}
        wanted = names.upper().split(",")
        if unknown := [name for name in wanted if name not in by_name]:
            raise InputError(f"--stages {names}: unknown stage {unknown[0]}", f"choose from {','.join(by_name)}")
        return [by_name[name] for name in wanted]
    return [stage for stage in STAGES if stage.name not in ended_stages(work)]


def ended_stages(work: Path) -> set[str]:
    """Return the names of the stages that an earlier command completed, or stopped at the end of their share."""
    results = Session.results_in(work)
    return {name for name, record in results.stages.items() if record.state in (COMPLETE, STOPPED)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"time of the command in s; default: {SECONDS:.0f}"
    )
    names = ",".join(stage.name for stage in STAGES)
    parser.add_argument("--stages", metavar=names, help="stages to run; default: all that have not ended")
    parser.add_argument("--rate", type=float, help="Offline samples/s, if stage T did not measure it")
    parser.add_argument(
        "--work", type=Path, default=HARNESS_ROOT / "output" / "gpu", help="working directory; default: output/gpu"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return the exit code."""
    parsed = _parser().parse_args(arguments)
    installed_s = time.time() - float(os.environ.get("STARTED_S", time.time()))
    options = Options(parsed.seconds - installed_s, parsed.rate, dummy=os.environ.get("REHEARSE") == "dummy")
    out = Path(os.environ.get("OUT", parsed.work / "out"))
    return exit_code_of(lambda: run_stages(options, _chosen(parsed.stages, parsed.work), parsed.work, out))


if __name__ == "__main__":
    sys.exit(main())
