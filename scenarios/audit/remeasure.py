"""Repeat performance runs, reference and candidate alternately, while the verdict of a sign-off requires it.

The new runs have the options in the manifests of the old runs. They are made in `repeat-1/` of the result. When all of
them have ended, each takes the place of its old run, which moves unchanged to `discarded/`. The sign-off then checks
the given directories again, and so does the next sign-off.
"""

import contextlib
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path

from rich.console import Console

from compliance.judge.verdict import stated
from compliance.results.find_results import find_results
from compliance.signoff.signoff_verdict import MAX_ROUNDS, SignOff, asks_remeasure, headline
from runs.errors import InputError
from runs.harness import PROGRAM
from runs.record.finished_run import PERFORMANCE
from runs.record.layout import ResultDir, RunDir
from runs.record.manifest import read_manifest
from runs.wording import counted
from scenarios.discarded import set_aside
from scenarios.launch.parent import execute_run
from scenarios.launch.run_config import RunConfig, make_config

Sign = Callable[[Sequence[Path], Sequence[Path]], SignOff]
_Runs = dict[Path, RunConfig]  # performance run → configuration of its repetition


def remeasured(
    sign: Sign, ref: Sequence[Path], cand: Sequence[Path], most: int, console: Console, say: Callable[[str], None]
) -> tuple[SignOff, int]:
    """Sign off; while the verdict requires repetitions, repeat the performance runs and sign off the new runs.

    Args:
        sign: Returns the verdict on reference and candidate directories.
        ref, cand: Directories that the user gave.
        most: Maximum number of repetitions, 0 to MAX_ROUNDS.
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
    if not most or not asks_remeasure(verdict):
        return verdict, 0
    sides = [_performance_runs(side) for side in (ref, cand)]
    for number in range(1, most + 1):
        say(f"\n{headline(verdict)}\nrepetition {number} of at most {most}")
        _exchange(_run_in_turn(sides, console, say), say)
        verdict = sign(ref, cand)
        if not asks_remeasure(verdict):
            return verdict, number
    text = f"still noisy or contended after {counted(most, 'repetition')}"
    text += "; comparisons with these runs inherit the noise"
    verdict.findings.append(stated("B-6/baseline_imperfect", text, rounds=most))
    return verdict, most


def _performance_runs(side: Sequence[Path]) -> _Runs:
    """Return the performance runs of a side with the configurations of their repetitions."""
    if not side:
        return {}
    runs = [run for result in find_results(list(side)) for run in result.runs if run.mode == PERFORMANCE]
    return {run.dir.root.resolve(): _asked(run.dir) for run in runs}


def _asked(run: RunDir) -> RunConfig:
    manifest = read_manifest(run.manifest)
    try:
        # Use the user.conf in the run directory, because the original file may have changed.
        config = make_config(dict(manifest.asked) | {"user_conf": run.user_conf})
        if config.audit_conf is not None:
            raise InputError("run of an audit", "")
    except InputError as error:
        text = f"--remeasure: {run.root} cannot be repeated: {error.message}"
        raise InputError(text, f"repeat the runs with `{PROGRAM} run`, then sign them off") from error
    return config


def _run_in_turn(sides: list[_Runs], console: Console, say: Callable[[str], None]) -> dict[Path, Path]:
    """Repeat every run: the first of the reference, the first of the candidate, the second of the reference …

    Returns:
        Old directory → new directory.
    """
    repetitions: dict[Path, Path] = {}
    for pair in zip_longest(*(side.items() for side in sides)):
        for path, planned in filter(None, pair):
            if path in repetitions:
                continue
            root = _free(path)
            config = make_config(planned.model_dump(exclude_unset=True) | {"output_log_dir": root})
            say(f"\nrepeating {path}")
            execute_run(config, console)
            repetitions[path] = root
    return repetitions


def _exchange(repetitions: dict[Path, Path], say: Callable[[str], None]) -> None:
    """Move each old run to the discarded runs of its result, and put the new run in its place."""
    for old, new in repetitions.items():
        aside = set_aside([old], ResultDir(_result(old)).discarded)
        new.rename(old)
        say(f"{old} is the new run; the old run is now in {aside}")
    for folder in {new.parent for new in repetitions.values()}:
        with contextlib.suppress(OSError):  # an earlier run in it failed
            folder.rmdir()


def _result(run: Path) -> Path:
    """Return the directory of the result that a performance run is part of."""
    return run.parent.parent if run.parent.name == "performance" else run.parent


def _free(run: Path) -> Path:
    """Return the first free directory for the repetition of a run; a run that failed keeps its directory."""
    number = 1
    while (place := _result(run) / f"repeat-{number}" / run.name).exists():
        number += 1
    return place
