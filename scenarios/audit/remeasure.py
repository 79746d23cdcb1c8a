"""Repeating the runs of a sign-off again, where its verdict asks for that: reference and candidate in turn.

The new runs have the options in the record of the old ones, and run as a user's runs do. They are written next to the
old ones, which stay as they are. The sign-off then judges the new runs.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path

from rich.console import Console

from compliance.judge.finding import warn
from compliance.signoff.signoff_verdict import MAX_ROUNDS, SignOff
from compliance.verify.find_results import find_results
from runs.errors import InputError
from runs.record.finished_run import PERFORMANCE
from runs.record.layout import RunDir
from runs.record.manifest import read_manifest
from scenarios.run.config import RunConfig, make_config
from scenarios.run.parent import execute_run

Sign = Callable[[Sequence[Path], Sequence[Path]], SignOff]
_Runs = dict[Path, RunConfig | None]  # directories that are signed off; of a performance run, how it can be run again


def remeasured(
    sign: Sign, ref: Sequence[Path], cand: Sequence[Path], most: int, console: Console, say: Callable[[str], None]
) -> tuple[SignOff, int]:
    """Sign off; while the verdict asks to measure again, start the performance runs anew and sign those off.

    Args:
        sign: gives the verdict on reference and candidate directories.
        ref, cand: directories as the user gave them.
        most: rounds at most, 0 to MAX_ROUNDS; 0 runs nothing.
        console: for the runs' progress.
        say: called with lines about the progress.

    Returns:
        The last verdict, and how often the runs were run again before it.

    Raises:
        InputError: a run cannot be run again: its record does not show how it was made.
        HarnessError: a run did not finish; its run directory has the reason.
    """
    if not 0 <= most <= MAX_ROUNDS:
        raise InputError(f"--remeasure {most} is not 0 to {MAX_ROUNDS}", "what stays noisy then is not noisy by chance")
    verdict = sign(ref, cand)
    if not most or verdict.action != "remeasure":
        return verdict, 0
    sides: list[_Runs] = [dict(run for path in side for run in _runs(path).items()) for side in (ref, cand)]
    for number in range(1, most + 1):
        say(f"\n{verdict.headline}\nmeasuring again, {number} of at most {most}")
        moved = _run_in_turn(sides, console, say)
        sides = [{moved.get(path, path): config for path, config in side.items()} for side in sides]
        verdict = sign(*map(list, sides))
        if verdict.action != "remeasure":
            return verdict, number
    text = f"still too far apart after measuring again {most} times: comparisons with it inherit the noise"
    verdict.findings.append(warn("B-6/baseline_imperfect", text, rounds=most))
    return verdict, most


def _runs(path: Path) -> _Runs:
    """The runs in a directory, each by its own."""
    runs = [run for result in find_results([path]) for run in result.runs]
    return {run.dir.root: _asked(run.dir) if run.mode == PERFORMANCE else None for run in runs} or {path: None}


def _asked(run: RunDir) -> RunConfig:
    manifest = read_manifest(run.manifest)
    try:
        # LoadGen's settings are those of the run's own user.conf: the file that was named may have changed since.
        config = make_config(dict(manifest.asked) | {"user_conf": run.user_conf})
        if config.audit_conf is not None:
            raise InputError("it is the run of an audit", "")
    except InputError as error:
        text = f"--remeasure: {run.root} cannot be run as it was: {error.message}"
        raise InputError(text, "start the runs yourself and sign them off") from error
    return config


def _run_in_turn(sides: list[_Runs], console: Console, say: Callable[[str], None]) -> dict[Path, Path]:
    """A new run for every old one: the first of the reference, the first of the candidate, the second …

    Returns:
        The new directory of each that was run.
    """
    moved: dict[Path, Path] = {}
    for pair in zip_longest(*(side.items() for side in sides)):
        for path, asked in filter(None, pair):
            if asked is None or path in moved:
                continue
            root = _beside(path)
            config = make_config(asked.model_dump(exclude_unset=True) | {"output_log_dir": root})
            say(f"\nmeasuring {path} again")
            execute_run(config, console)
            moved[path] = root
    return moved


def _beside(run: Path) -> Path:
    """A name that is not taken: `<run>-again-2` after `<run>-again-1`."""
    name, _, last = run.name.rpartition("-again-")
    base = name if name and last.isdigit() else run.name
    number = 1
    while (found := run.with_name(f"{base}-again-{number}")).exists():
        number += 1
    return found
