"""Running the legs of a sign-off anew, where its verdict asks for that: reference and candidate in turn.

The new legs are asked for exactly as the old ones were, by the record of each, through the same door as a user's. They
lie beside the old ones, which stay as they are. The sign-off looks at all of them afresh, the last ones, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path

from rich.console import Console

from compliance.finding import warn
from compliance.signoff.baseline import MOST_ROUNDS
from compliance.signoff.signoff_verdict import SignOff
from compliance.verify.find_results import find_results
from runs.errors import InputError
from runs.record.layout import RunDir
from runs.record.leg import PERFORMANCE
from runs.record.manifest import read_manifest
from scenarios.leg.config import RunConfig, make_config
from scenarios.leg.parent import run_leg
from scenarios.leg.plan import prepare

Sign = Callable[[Sequence[Path], Sequence[Path]], SignOff]


@dataclass(frozen=True)
class _Place:
    """A directory that is signed off; `config` is that of a performance leg, which can be run anew."""

    path: Path
    config: RunConfig | None = None


def remeasured(
    sign: Sign, ref: Sequence[Path], cand: Sequence[Path], most: int, console: Console, say: Callable[[str], None]
) -> tuple[SignOff, int]:
    """Sign off; while the verdict asks to measure again, run the performance legs anew and sign those off.

    Args:
        sign: gives the verdict on reference and candidate directories.
        ref, cand: directories as the user gave them.
        most: rounds at most, 0 to MOST_ROUNDS; 0 runs nothing.
        console: for the legs' progress.
        say: told what goes on.

    Returns:
        The last verdict, and how often the legs were run again before it.

    Raises:
        InputError: a leg cannot be run anew: its record does not say what was asked for.
        HarnessError: a leg did not run to its end; its run directory says why.
    """
    if not 0 <= most <= MOST_ROUNDS:
        raise InputError(
            f"--remeasure {most} is not 0 to {MOST_ROUNDS}", "what stays noisy then is not noisy by chance"
        )
    verdict = sign(ref, cand)
    if not most or verdict.action != "remeasure":
        return verdict, 0
    sides = [[place for path in side for place in _places(path)] for side in (ref, cand)]
    for number in range(1, most + 1):
        say(f"\n{verdict.headline}\nmeasuring again, {number} of at most {most}")
        moved = _run_in_turn(sides, console, say)
        sides = [[moved.get(place.path, place) for place in side] for side in sides]
        verdict = sign(*([place.path for place in side] for side in sides))
        if verdict.action != "remeasure":
            return verdict, number
    text = f"still too far apart after measuring again {most} times: comparisons with it inherit the noise"
    verdict.findings.append(warn("B-6/baseline_imperfect", text, rounds=most))
    return verdict, most


def _places(path: Path) -> list[_Place]:
    """The legs in a directory, each by its own; of those of performance what was asked for."""
    legs = [leg for result in find_results([path]) for leg in result.legs]
    return [_Place(leg.run.root, _asked(leg.run) if leg.mode == PERFORMANCE else None) for leg in legs] or [
        _Place(path)
    ]


def _asked(run: RunDir) -> RunConfig:
    manifest = read_manifest(run.manifest)
    try:
        # LoadGen's settings are those of the run's own user.conf: the file that was named may have changed since.
        config = make_config(dict(manifest.asked) | {"user_conf": run.user_conf})
        if config.audit_conf is not None:
            raise InputError("it is the leg of an audit", "")
    except InputError as error:
        text = f"--remeasure: {run.root} cannot be run as it was: {error.message}"
        raise InputError(text, "run the legs yourself and sign them off") from error
    return config


def _run_in_turn(sides: list[list[_Place]], console: Console, say: Callable[[str], None]) -> dict[Path, _Place]:
    """A new leg for every old one: the first of the reference, the first of the candidate, the second …"""
    moved: dict[Path, _Place] = {}
    for pair in zip_longest(*sides):
        for place in pair:
            if place is None or place.config is None or place.path in moved:
                continue
            root = _beside(place.path)
            config = make_config(place.config.model_dump(exclude_unset=True) | {"output_log_dir": root})
            say(f"\nmeasuring {place.path} again")
            run_leg(config, partial(prepare, config, say), console)
            moved[place.path] = _Place(root, config)
    return moved


def _beside(leg: Path) -> Path:
    """A name that is not taken: `<leg>-again-2` after `<leg>-again-1`."""
    name, _, last = leg.name.rpartition("-again-")
    base = name if name and last.isdigit() else leg.name
    number = 1
    while (found := leg.with_name(f"{base}-again-{number}")).exists():
        number += 1
    return found
