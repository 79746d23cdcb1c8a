"""Which runs lie in the directories that were named, and which of them belong to one result."""

from dataclasses import dataclass, field
from pathlib import Path

from runs.benchmark import Scenario
from runs.benchmarks import DIRECTORIES
from runs.errors import HarnessError, InputError, SetupError
from runs.loadgen.detail_log import OF_ROUNDS
from runs.record.finished_run import ACCURACY, PERFORMANCE, FinishedRun, finished_run
from runs.record.layout import LOADGEN_LOGS, CampaignDir, RunDir
from runs.rounds import ROUNDS
from runs.what_is import what_is

_NEEDED = "a run directory, or a directory with LoadGen's logs or with performance/run_1 and accuracy"
# Where the runs of one result lie in a submission.
_PARTS = {"performance/run_*": PERFORMANCE, "performance": PERFORMANCE, "accuracy": ACCURACY}


@dataclass
class ResultRuns:
    """The runs of one result: one of performance, one of accuracy, or either."""

    home: Path  # where its verdict is written by default
    directories: list[Path]
    runs: list[FinishedRun] = field(default_factory=list)
    error: HarnessError | None = None  # why a run cannot be judged

    def run(self, mode: str) -> FinishedRun | None:
        return next((run for run in self.runs if _mode_of(run) == mode), None)


def find_results(paths: list[Path], scenario: Scenario | None = None, only: str | None = None) -> list[ResultRuns]:
    """Group the runs in `paths` into results.

    A path is a run's directory, one with `performance/run_1` and `accuracy` in it, or a campaign's. A performance and
    an accuracy run of the same scenario and benchmark are one result.

    Args:
        paths: as given by the user.
        scenario: what the runs claim to be; None: from the manifest, else from the limits in the log.
        only: leave out runs of the other mode (PERFORMANCE or ACCURACY).

    Raises:
        InputError: a path holds no logs, or nothing is left to verify.
    """
    results: list[ResultRuns] = []
    seen: set[Path] = set()
    for path in (part for one in paths for part in campaign_results(one) or [one]):
        claimed = {part: mode for part, mode in _run_directories(path).items() if part.resolve() not in seen}
        directories = list(claimed)
        seen |= {part.resolve() for part in directories}
        try:
            runs = [_known_run(RunDir(directory), scenario, mode) for directory, mode in claimed.items()]
        except HarnessError as error:  # with one damaged run there is no verdict on its result
            results.append(ResultRuns(path, directories, error=error))
            continue
        for run in runs:
            if scenario is not None and run.scenario != scenario:
                raise InputError(
                    f"--scenario {scenario}: LoadGen ran {run.detail.scenario} in {run.dir.root}",
                    "leave --scenario out, or name the run that you mean",
                )
        _add(results, [run for run in runs if only is None or _mode_of(run) == only], path)
    if not results:
        wanted = {None: "", PERFORMANCE: "performance ", ACCURACY: "accuracy "}[only]
        raise InputError(f"no {wanted}run in {', '.join(map(str, paths))}", "name the directory of such a run")
    return results


def campaign_results(path: Path) -> list[Path]:
    """The results' directories of a campaign; of any other path, none."""
    return [result.root for name, _, result in CampaignDir(path).results() if name in DIRECTORIES]


def _mode_of(run: FinishedRun) -> str:
    """The mode that a run is judged as: that of its directory, else that of its log."""
    return run.claimed_mode or run.mode


def _known_run(run_dir: RunDir, scenario: Scenario | None, claimed_mode: str | None) -> FinishedRun:
    """A run that can be judged.

    Raises:
        SetupError: it is of a LoadGen that no known round asks for, or of a benchmark whose rules are not known, which
            the place in a tree shows and no log.
    """
    places = run_dir.root.absolute().parts
    named = [name for above, name in zip(places, places[2:], strict=False) if above == "results"]  # below the system
    others = {name for one in ROUNDS.values() for name in one.benchmarks} - set(DIRECTORIES)
    if not run_dir.manifest.is_file() and (other := next((name for name in named if name in others), None)):
        raise SetupError(
            f"{run_dir.root} is of {other}, a benchmark whose rules are not known here",
            "main.py check REPOSITORY --round ROUND holds it to the rules of any benchmark",
        )
    run = finished_run(run_dir, scenario)
    run.claimed_mode = claimed_mode
    if unknown := run.detail.unknown_version(OF_ROUNDS):
        raise SetupError(f"{run_dir.detail}: {unknown}", "judge it with the tools of the round that it was made for")
    return run


def _run_directories(path: Path) -> dict[Path, str | None]:
    """The runs' directories in a path, with the mode that each claims."""
    if not path.is_dir():
        raise what_is(path).refused(_NEEDED)
    if _holds_run(path):
        return {path: None}
    found: dict[Path, str | None] = {
        part: mode
        for pattern, mode in _PARTS.items()
        for part in sorted(path.glob(pattern))
        if part.is_dir() and _holds_run(part)
    }
    if not found:
        raise what_is(path).refused(_NEEDED)
    return found


def _holds_run(path: Path) -> bool:
    return any((path / name).exists() for name in (*LOADGEN_LOGS, RunDir(path).manifest.name))


def _add(results: list[ResultRuns], runs: list[FinishedRun], path: Path) -> None:
    """The first run of each mode in one path is one result; a lone run joins its counterpart from another path."""
    first: ResultRuns | None = None
    for run in runs:
        if first is not None and first.run(_mode_of(run)) is None:
            joined = first
        elif len(runs) == 1 and (fitting := next((one for one in results if _fits(one, run)), None)):
            joined = fitting
        else:
            home = path if first is None else run.dir.root
            results.append(joined := ResultRuns(home, []))
            first = first or joined
        joined.runs.append(run)
        joined.directories.append(run.dir.root)


def _fits(result: ResultRuns, run: FinishedRun) -> bool:
    identity = (run.scenario, run.benchmark.submission_name)
    return len(result.runs) == 1 and all(
        (other.scenario, other.benchmark.submission_name) == identity and _mode_of(other) != _mode_of(run)
        for other in result.runs
    )
