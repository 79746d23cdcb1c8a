"""The repetition of performance runs if the verdict of a sign-off requires it, reference and candidate alternately.

The new runs have the options in the manifests of the old runs. They are written beside the old runs, which stay
unchanged. The sign-off then checks the new runs.
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
_Runs = dict[Path, RunConfig | None]  # run directory → configuration of its repetition; None for accuracy runs


def remeasured(
    sign: Sign, ref: Sequence[Path], cand: Sequence[Path], most: int, console: Console, say: Callable[[str], None]
) -> tuple[SignOff, int]:
    """Sign off; while the verdict requires repetitions, repeat the performance runs and sign off the new runs.

    Args:
        sign: Returns the verdict on reference and candidate directories.
        ref, cand: Directories that the user gave.
        most: Maximum of repetitions, 0 to MAX_ROUNDS.
        console: Console for the progress of the runs.
        say: Called with lines about the progress.

    Returns:
        The last verdict, and the number of repetitions before it.

    Raises:
        InputError: If a run cannot be repeated, because its manifest lacks the options.
        HarnessError: If a run did not finish; its run directory states the reason.
    """
    if not 0 <= most <= MAX_ROUNDS:
        raise InputError(f"--remeasure {most}: must be 0 to {MAX_ROUNDS}", f"give a number from 0 to {MAX_ROUNDS}")
    verdict = sign(ref, cand)
    if not most or verdict.action != "remeasure":
        return verdict, 0
    sides: list[_Runs] = [dict(run for path in side for run in _runs(path).items()) for side in (ref, cand)]
    for number in range(1, most + 1):
        say(f"\n{verdict.headline}\nrepetition {number} of at most {most}")
        moved = _run_in_turn(sides, console, say)
        sides = [{moved.get(path, path): config for path, config in side.items()} for side in sides]
        verdict = sign(*map(list, sides))
        if verdict.action != "remeasure":
            return verdict, number
    text = f"still too far apart after {most} repetitions; comparisons with these runs inherit the noise"
    verdict.findings.append(warn("B-6/baseline_imperfect", text, rounds=most))
    return verdict, most


def _runs(path: Path) -> _Runs:
    """Return the runs in a directory with the configurations of their repetitions."""
    runs = [run for result in find_results([path]) for run in result.runs]
    return {run.dir.root: _asked(run.dir) if run.mode == PERFORMANCE else None for run in runs} or {path: None}


def _asked(run: RunDir) -> RunConfig:
    manifest = read_manifest(run.manifest)
    try:
        # Use the user.conf in the run directory, because the original file may have changed.
        config = make_config(dict(manifest.asked) | {"user_conf": run.user_conf})
        if config.audit_conf is not None:
            raise InputError("run of an audit", "")
    except InputError as error:
        text = f"--remeasure: {run.root} cannot be repeated: {error.message}"
        raise InputError(text, "repeat the runs with `main.py run`, then sign them off") from error
    return config


def _run_in_turn(sides: list[_Runs], console: Console, say: Callable[[str], None]) -> dict[Path, Path]:
    """Repeat every run: the first of the reference, the first of the candidate, the second of the reference …

    Returns:
        Old directory → new directory.
    """
    moved: dict[Path, Path] = {}
    for pair in zip_longest(*(side.items() for side in sides)):
        for path, asked in filter(None, pair):
            if asked is None or path in moved:
                continue
            root = _beside(path)
            config = make_config(asked.model_dump(exclude_unset=True) | {"output_log_dir": root})
            say(f"\nrepeating {path}")
            execute_run(config, console)
            moved[path] = root
    return moved


def _beside(run: Path) -> Path:
    """Return the next free name of a repetition: `<run>-again-2` after `<run>-again-1`."""
    name, _, last = run.name.rpartition("-again-")
    base = name if name and last.isdigit() else run.name
    number = 1
    while (found := run.with_name(f"{base}-again-{number}")).exists():
        number += 1
    return found
