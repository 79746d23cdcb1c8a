"""The report page: its runs and tunings, and its file."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from runs.bench.bench_record import read_bench_record
from runs.errors import HarnessError, InputError, SetupError
from runs.files.writing import write_atomic
from runs.harness import PROGRAM
from runs.record.layout import BENCH_FILE, RunDir
from runs.record.tune_dir import TuneDir
from runs.wording import moment
from scenarios.console import say
from scenarios.status.find import NEEDED, FoundDir, directory_kind, find_in, without_runs
from scenarios.status.run_kinds import kind_of_run, run_status
from scenarios.status.run_status import RunStatus
from scenarios.tune.journal import read_tune

PAGE_NAME = RunDir(Path()).page.name


def write_page(folders: Sequence[Path], output: Path | None = None) -> Path:
    """Write a page about directories to `output`, or to report.html in the first directory; return its path.

    If `output` ends in .svg, write one picture of one finished run.

    Raises:
        InputError: If a directory is missing or has no finished run, or a picture would show multiple runs.
        SetupError: If the page cannot be written, or bench.json contradicts the run directories of the bench.
    """
    from compliance.report.page import render_page
    from compliance.report.report_page import make_page
    from compliance.report.run_section import overview_of

    places = find_in(folders)
    kind = directory_kind(first := folders[0].resolve())
    if kind == "bench" and len(folders) == 1:
        return _written(output or first / PAGE_NAME, _bench_content(first))
    if kind in ("bench", "curve") and output is None:
        raise InputError(f"{folders[0]} has the page of a {kind}", "give --output FILE for the page of all runs")
    tunes, damaged = _tunings(places)
    runs, points = _runs(places)
    damaged += [f"{run.root}: {run.text}" for run in runs if run.state == "unattested"]
    statuses = [run for run in runs if run.state == "finished"]
    without = without_runs(folders, places)
    if not statuses and not tunes and not damaged and not points:
        shown = f"{', '.join(map(str, folders))}: no finished run found"
        raise without[0].refused(NEEDED) if without else InputError(shown, "give a directory with finished runs")
    if output is not None and output.suffix == ".svg":
        if len(statuses) != 1:
            problem = f"--output {output}: a picture shows one finished run of this harness, found: {len(statuses)}"
            raise InputError(problem, "give the directory of one run, or an --output that ends in .html")
        return _written(output, overview_of(statuses[0].root))
    title = f"Report on {first.name}" + (f" and {len(folders) - 1} more" if len(folders) > 1 else "")
    named_runs = [
        (status.what if status.root == first else _name(status.root, first), status.root) for status in statuses
    ]
    named_points = [(_name(folder, first), folder) for folder in sorted(points)]
    page = make_page(title, moment(time.time_ns()), named_runs, tunes, named_points)
    page.unread += damaged + [f"{place.path} {place.text}" for place in without]
    if not page.runs and not tunes and page.unread and not page.points:
        raise InputError(page.unread[0], f"check the files of the run with `{PROGRAM} verify`")
    return _written(output or first / PAGE_NAME, render_page(page))


def _bench_content(folder: Path) -> str:
    """Return the page of a bench with the numbers of its run directories.

    Raises:
        SetupError: If bench.json contradicts the run directories.
    """
    from compliance.report.bench_page import bench_page
    from compliance.report.page import render_page
    from runs.bench.recomputed import recompute_bench

    bench = recompute_bench(folder, read_bench_record(folder / BENCH_FILE))
    if bench.contradictions:
        raise SetupError("\n".join(map(str, bench.contradictions)), f"repeat the bench with `{PROGRAM} bench`")
    page = bench_page(folder, bench.record)
    page.notes += [bench.unverified] if bench.unverified else []
    return render_page(page, "bench_page.html")


def _written(path: Path, content: str | bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    except OSError as error:
        raise SetupError(f"report {path} cannot be written: {error.strerror}", "give --output FILE") from error
    return path


def _runs(places: Sequence[FoundDir]) -> tuple[list[RunStatus], list[Path]]:
    """Return the complete runs by start time, and the directories of the runs that are points of a curve.

    Of a tuning, return only the runs that confirm a rate; of an audit, return no points.
    """
    tunes, audits = ([place.root for place in places if place.kind == kind] for kind in ("tune", "audit"))
    directories = [place.root for place in places if place.kind == "leg"]
    kinds = {root: kind for root in directories if (kind := kind_of_run(root)) is not None}
    points = [root for root, kind in kinds.items() if kind.is_point and root.parent not in audits]
    runs = [run_status(root) for root, kind in kinds.items() if not kind.is_point]
    complete = [
        run
        for run in runs
        if run.state in ("finished", "unattested")
        and (run.root.parent not in tunes or run.root.name.startswith("confirm-"))
    ]
    return sorted(complete, key=lambda run: run.started_ns or 0), points


def _tunings(places: Sequence[FoundDir]) -> tuple[list[tuple[Path, dict[str, Any]]], list[str]]:
    """Return the directories of finished tunings with their records, and a sentence for each damaged record."""
    tunes, damaged = [], []
    for place in places:
        record = TuneDir(place.root).record
        if place.kind == "tune" and record.is_file():
            try:
                tunes.append((place.root, read_tune(record)))
            except HarnessError as error:
                damaged.append(error.message)
    return tunes, damaged


def _name(folder: Path, first: Path) -> str:
    """Return the path relative to the first directory, or the name of a directory outside of it."""
    return str(folder.relative_to(first)) if folder.is_relative_to(first) and folder != first else folder.name


def say_page(folder: Path, console: Console) -> None:
    """Write the page of a finished campaign or tuning, and print its path or the reason of a failure."""
    try:
        text = f"report: {write_page([folder])}"
    except HarnessError as error:
        text = f"no report: {error.message}"
    say(console, text)
