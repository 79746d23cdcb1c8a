"""Which legs lie in the directories that were named, and which of them belong to one result."""

from dataclasses import dataclass, field
from pathlib import Path

from runs.benchmark import Scenario
from runs.benchmarks import DIRECTORIES
from runs.errors import HarnessError, InputError, SetupError
from runs.loadgen.detail_log import OF_ROUNDS
from runs.record.layout import LOADGEN_LOGS, CampaignDir, RunDir
from runs.record.leg import ACCURACY, PERFORMANCE, FinishedLeg, finished_leg
from runs.rounds import ROUNDS
from runs.what_is import what_is

_NEEDED = "a run directory, or a directory with LoadGen's logs or with performance/run_1 and accuracy"
# Where the runs of one result lie in a submission.
_PARTS = {"performance/run_*": PERFORMANCE, "performance": PERFORMANCE, "accuracy": ACCURACY}


@dataclass
class ResultLegs:
    """The legs of one result: one of performance, one of accuracy, or either."""

    home: Path  # where its verdict is written by default
    directories: list[Path]
    legs: list[FinishedLeg] = field(default_factory=list)
    error: HarnessError | None = None  # why a leg cannot be judged

    def leg(self, mode: str) -> FinishedLeg | None:
        return next((leg for leg in self.legs if _mode_of(leg) == mode), None)


def find_results(paths: list[Path], scenario: Scenario | None = None, only: str | None = None) -> list[ResultLegs]:
    """Group the legs in `paths` into results.

    A path is a leg's directory, one with `performance/run_1` and `accuracy` in it, or a campaign's. A performance and
    an accuracy leg of the same scenario and benchmark are one result.

    Args:
        paths: as given by the user.
        scenario: what the legs claim to be; None: from the manifest, else from the limits in the log.
        only: leave out legs of the other mode (PERFORMANCE or ACCURACY).

    Raises:
        InputError: a path holds no logs, or nothing is left to verify.
    """
    results: list[ResultLegs] = []
    seen: set[Path] = set()
    for path in (part for one in paths for part in campaign_results(one) or [one]):
        claimed = {part: mode for part, mode in _leg_directories(path).items() if part.resolve() not in seen}
        directories = list(claimed)
        seen |= {part.resolve() for part in directories}
        try:
            legs = [_known_leg(RunDir(directory), scenario, mode) for directory, mode in claimed.items()]
        except HarnessError as error:  # with one damaged leg there is no verdict on its result
            results.append(ResultLegs(path, directories, error=error))
            continue
        for leg in legs:
            if scenario is not None and leg.scenario != scenario:
                raise InputError(
                    f"--scenario {scenario}: LoadGen ran {leg.detail.scenario} in {leg.run.root}",
                    "leave --scenario out, or name the leg that you mean",
                )
        _add(results, [leg for leg in legs if only is None or _mode_of(leg) == only], path)
    if not results:
        wanted = {None: "", PERFORMANCE: "performance ", ACCURACY: "accuracy "}[only]
        raise InputError(f"no {wanted}leg in {', '.join(map(str, paths))}", "name the directory of such a leg")
    return results


def campaign_results(path: Path) -> list[Path]:
    """The results' directories of a campaign; of any other path, none."""
    return [result.root for name, _, result in CampaignDir(path).results() if name in DIRECTORIES]


def _mode_of(leg: FinishedLeg) -> str:
    """The mode that a run is judged as: that of its directory, else that of its log."""
    return leg.claimed_mode or leg.mode


def _known_leg(run: RunDir, scenario: Scenario | None, claimed_mode: str | None) -> FinishedLeg:
    """A leg that can be judged.

    Raises:
        SetupError: it is of a LoadGen that no known round asks for, or of a benchmark whose rules are not known, which
            the place in a tree shows and no log.
    """
    places = run.root.absolute().parts
    named = [name for above, name in zip(places, places[2:], strict=False) if above == "results"]  # below the system
    others = {name for one in ROUNDS.values() for name in one.benchmarks} - set(DIRECTORIES)
    if not run.manifest.is_file() and (other := next((name for name in named if name in others), None)):
        raise SetupError(
            f"{run.root} is of {other}, a benchmark whose rules are not known here",
            "main.py check REPOSITORY --round ROUND holds it to the rules of any benchmark",
        )
    leg = finished_leg(run, scenario)
    leg.claimed_mode = claimed_mode
    if unknown := leg.detail.unknown_version(OF_ROUNDS):
        raise SetupError(f"{run.detail}: {unknown}", "judge it with the tools of the round that it was made for")
    return leg


def _leg_directories(path: Path) -> dict[Path, str | None]:
    """The runs' directories in a path, with the mode that each claims."""
    if not path.is_dir():
        raise what_is(path).refused(_NEEDED)
    if _holds_leg(path):
        return {path: None}
    found: dict[Path, str | None] = {
        part: mode
        for pattern, mode in _PARTS.items()
        for part in sorted(path.glob(pattern))
        if part.is_dir() and _holds_leg(part)
    }
    if not found:
        raise what_is(path).refused(_NEEDED)
    return found


def _holds_leg(path: Path) -> bool:
    return any((path / name).exists() for name in (*LOADGEN_LOGS, RunDir(path).manifest.name))


def _add(results: list[ResultLegs], legs: list[FinishedLeg], path: Path) -> None:
    """The first leg of each mode in one path is one result; a lone leg joins its counterpart from another path."""
    first: ResultLegs | None = None
    for leg in legs:
        if first is not None and first.leg(_mode_of(leg)) is None:
            joined = first
        elif len(legs) == 1 and (fitting := next((one for one in results if _fits(one, leg)), None)):
            joined = fitting
        else:
            home = path if first is None else leg.run.root
            results.append(joined := ResultLegs(home, []))
            first = first or joined
        joined.legs.append(leg)
        joined.directories.append(leg.run.root)


def _fits(result: ResultLegs, leg: FinishedLeg) -> bool:
    identity = (leg.scenario, leg.benchmark.submission_name)
    return len(result.legs) == 1 and all(
        (other.scenario, other.benchmark.submission_name) == identity and _mode_of(other) != _mode_of(leg)
        for other in result.legs
    )
