"""Search for runs in the given directories, and their grouping into results."""

from collections.abc import Sequence
from pathlib import Path

from compliance.results.result import Result
from runs.benchmark import Scenario
from runs.benchmarks import DIRECTORIES
from runs.errors import HarnessError, InputError, SetupError
from runs.harness import PROGRAM
from runs.loadgen.detail_log import OF_ROUNDS
from runs.record.finished_run import ACCURACY, PERFORMANCE, FinishedRun, require_finished
from runs.record.layout import LOADGEN_LOGS, CampaignDir, RunDir
from runs.rounds import ROUNDS
from runs.what_is import what_is

_NEEDED = "a run directory, or a directory with LoadGen's logs or with performance/run_1 and accuracy"
# Directories of the runs of one result in a submission, and their modes.
_PARTS = {"performance/run_*": PERFORMANCE, "performance": PERFORMANCE, "accuracy": ACCURACY}


def find_results(
    paths: list[Path],
    scenario: Scenario | None = None,
    only: str | None = None,
    read: Sequence[FinishedRun] = (),
) -> list[Result]:
    """Group the runs in `paths` into results.

    A path is a run directory, a directory with `performance/run_1` and `accuracy`, or a campaign directory. A
    performance run and an accuracy run of one scenario and benchmark are one result.

    Args:
        paths: Paths from the command line.
        scenario: Claimed scenario. Default: from the manifest, otherwise from the limits in the log.
        only: PERFORMANCE or ACCURACY: omit runs of the other mode.
        read: Runs that were read before. Their files are not read again.

    Raises:
        InputError: If a path has no logs, or no run is left to verify.
    """
    results: list[Result] = []
    seen: set[Path] = set()
    read_runs = {run.dir.root: run for run in read}
    for path in (part for named_path in paths for part in campaign_results(named_path) or [named_path]):
        claimed = {part: mode for part, mode in _run_directories(path).items() if part.resolve() not in seen}
        directories = list(claimed)
        seen |= {part.resolve() for part in directories}
        try:
            runs = [
                FinishedRun.of(read_runs[folder]) if folder in read_runs else FinishedRun(RunDir(folder), scenario)
                for folder in directories
            ]
            for run in runs:
                run.directory_mode = claimed[run.dir.root]
                _require_supported(run)
        except HarnessError as error:  # a damaged run prevents only the verdict on its own result
            results.append(Result(path, directories, error=error))
            continue
        for run in runs:
            if scenario is not None and run.scenario != scenario:
                raise InputError(
                    f"--scenario {scenario}: the scenario in {run.dir.root} is {run.detail.scenario}",
                    f"run without --scenario, or give a run of scenario {scenario}",
                )
        _group(results, [run for run in runs if only is None or run.claimed_mode == only], path)
    if not results:
        wanted = {None: "", PERFORMANCE: "performance ", ACCURACY: "accuracy "}[only]
        raise InputError(f"no {wanted}run in {', '.join(map(str, paths))}", f"give the directory of a {wanted}run")
    return results


def campaign_results(path: Path) -> list[Path]:
    """Return the result directories of a campaign; for any other path, an empty list."""
    return [result.root for name, _, result in CampaignDir(path).results() if name in DIRECTORIES]


def _require_supported(run: FinishedRun) -> None:
    """Check that a run can be verified, and that its LoadGen version and benchmark are supported.

    Raises:
        HarnessError: If `require_finished` raises it.
        SetupError: If no supported round uses this LoadGen, or the path in a tree names an unsupported benchmark.
    """
    places = run.dir.root.absolute().parts
    # A path in a tree contains results/SYSTEM/BENCHMARK.
    named = [name for above, name in zip(places, places[2:], strict=False) if above == "results"]
    foreign = {name for in_round in ROUNDS.values() for name in in_round.benchmarks} - set(DIRECTORIES)
    if not run.dir.manifest.is_file() and (foreign_name := next((name for name in named if name in foreign), None)):
        raise SetupError(
            f"{run.dir.root} is a run of {foreign_name}, which verify does not support",
            f"check it with {PROGRAM} check REPOSITORY --round ROUND",
        )
    require_finished(run)
    if unknown := run.detail.unknown_version(OF_ROUNDS):
        raise SetupError(f"{run.dir.detail}: {unknown}", "verify it with the tools of its own round")


def _run_directories(path: Path) -> dict[Path, str | None]:
    """Return the run directories in a path, each with the mode that it claims."""
    if not path.is_dir():
        raise what_is(path).refused(_NEEDED)
    if _holds_run(path):
        return {path: None}
    modes: dict[Path, str | None] = {
        part: mode
        for pattern, mode in _PARTS.items()
        for part in sorted(path.glob(pattern))
        if part.is_dir() and _holds_run(part)
    }
    if not modes:
        raise what_is(path).refused(_NEEDED)
    return modes


def _holds_run(path: Path) -> bool:
    return any((path / name).exists() for name in (*LOADGEN_LOGS, RunDir(path).manifest.name))


def _group(results: list[Result], runs: list[FinishedRun], path: Path) -> None:
    """Add the runs of a path to the results.

    The first runs of both modes form a result. A single run joins a run of another path.
    """
    first: Result | None = None
    for run in runs:
        if first is not None and first.run(run.claimed_mode) is None:
            joined = first
        elif len(runs) == 1 and (fitting := next((result for result in results if _fits(result, run)), None)):
            joined = fitting
        else:
            home = path if first is None else run.dir.root
            results.append(joined := Result(home, []))
            first = first or joined
        joined.runs.append(run)
        joined.directories.append(run.dir.root)


def _fits(result: Result, run: FinishedRun) -> bool:
    return (
        len(result.runs) == 1
        and result.place == (run.benchmark.submission_name, run.scenario)
        and result.run(run.claimed_mode) is None
    )
