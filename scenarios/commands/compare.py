"""The `compare` command, which compares benches and single runs."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runs.errors import ExitCode, InputError
from runs.files.writing import write_atomic, write_json
from runs.harness import PROGRAM
from runs.wording import counted, printable
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, writing
from scenarios.console import tell

if TYPE_CHECKING:
    from runs.bench.bench_comparison import Comparison
    from runs.bench.bench_record import BenchRecord
    from runs.bench.recomputed import RecomputedBench

EXAMPLES = (
    "compare two benches, given by their labels: compare bf16 fp8",
    "fail a CI job if a change is slower: compare output/bench-main output/bench-change --fail-if-slower 3%",
    "compare two runs: compare output/slots4 output/slots16",
)
OUTPUT = Path("output")
PAGE = "compare.html"


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("benches", metavar="A B...", nargs=-1)
@click.option(
    "--fail-if-slower",
    metavar="PERCENT%",
    help="Exit with code 1 if a rate or a latency of a bench is worse than that of A by more than this.",
)
@click.option(
    "--output-dir", "-o", type=PATH, metavar="DIR",
    help="Directory of compare.html and compare.json. Default: output/compare-A-B.",
)  # fmt: skip
def compare(benches: tuple[str, ...], fail_if_slower: str | None, output_dir: Path | None) -> ExitCode:
    """Compare benches or runs with the first bench or run, A.

    A and B are directories of benches or runs, or labels of benches or runs in ./output. The conditions must be equal:
    for example data, lengths, limits, scenario and sampling. The command lists all other differences as changes. It
    compares runs in pairs with equal load: `bench --like A` measures the loads of A.

    One line for each quantity states its change and whether the change exceeds the noise: best rate, Offline tokens/s,
    TTFT and TPOT at equal loads. Noise is the difference between repeated runs of one bench. --fail-if-slower ignores a
    slowdown within the noise. The command writes compare.html and compare.json.

    The command recomputes all numbers from the run directories. A bench without these directories is compared as "not
    verified".

    Exit codes: 0 compared, 1 slower than --fail-if-slower allows, 2 bad input, 3 not comparable, or bench.json
    contradicts the run directories.
    """
    from runs.bench.bench_comparison import compare_benches as compare_records
    from runs.bench.find_bench import file_name

    limit = None if fail_if_slower is None else _share(fail_if_slower)
    if len(benches) < 2:
        raise InputError(f"compare {' '.join(benches)}: two benches are required", f"run `{PROGRAM} compare A B`")
    folders = [_folder(name) for name in benches]
    checked = [_checked(folder) for folder in folders]
    records = [bench.record for bench in checked]
    if len({record.label for record in records}) < len(records):
        records = [
            bench_record.model_copy(update={"label": name}) for bench_record, name in zip(records, benches, strict=True)
        ]
    contradictions = [f"{bench.record.label}: {text}" for bench in checked for text in bench.contradictions]
    unverified = [bench.unverified for bench in checked if bench.unverified]
    comparison = compare_records(records)
    slower = (
        []
        if limit is None
        else [
            (compared_bench, what)
            for compared_bench in comparison.against
            for what in compared_bench.slower_than(limit)
        ]
    )
    content = {
        "schema_version": 3, "labels": comparison.labels, "comparable": comparison.is_comparable,
        "unequal": comparison.unequal,
        "against": [asdict(compared_bench) for compared_bench in comparison.against],
        "fail_if_slower": limit, "slower": bool(slower),
        "contradictions": contradictions, "unverified": unverified,
    }  # fmt: skip
    names = (file_name(label)[-60:].strip("-.") for label in comparison.labels)
    folder = output_dir or OUTPUT / f"compare-{'-'.join(names)}"
    _write(folder, comparison, records, content)
    for text in unverified:
        tell(text)
    _tell(comparison, contradictions)
    for record in records:
        if record.status != "complete":
            tell(f"{record.label}: the bench is {record.status}, with {counted(len(record.runs), 'run')}")
    for against, what in slower:
        tell(f"{against.label} is slower than --fail-if-slower {fail_if_slower}: {what.change_text}")
    tell(f"page: {folder / PAGE}")
    if contradictions or not comparison.is_comparable:
        return ExitCode.REFUSED
    return ExitCode.NEGATIVE if slower else ExitCode.OK


def _share(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", text.strip())
    if match is None or not float(match[1]) < 100:
        raise InputError(
            f"--fail-if-slower {text}: not a percentage from 0% to below 100%", "write --fail-if-slower 3%"
        )
    return float(match[1]) / 100


def _folder(name: str) -> Path:
    """Return the directory of a bench or run by its path or label."""
    from runs.bench.find_bench import bench_directory
    from runs.record.layout import RunDir

    if (bench := bench_directory(name)) is not None:
        return bench
    if RunDir(Path(name)).manifest.is_file():
        return Path(name)
    labelled = _labelled(name)
    if len(labelled) == 1:
        return labelled[0]
    if labelled:
        raise InputError(f"{name}: label of {len(labelled)} runs", f"give a directory, such as {labelled[0]}")
    if Path(name).is_dir():
        raise InputError(f"{name}: neither bench.json nor manifest.json in this directory",
                         "give the directory of a bench or of a run")  # fmt: skip
    raise InputError(
        f"{name}: no such directory, and no bench or run in {OUTPUT} has this label",
        f"give a directory or a label; for run IDs of a result store: {PROGRAM} store compare RUN_ID RUN_ID",
    )


def _labelled(name: str) -> list[Path]:
    """Return the directories of the runs in OUTPUT with a label."""
    from runs.record.layout import RunDir

    manifests = sorted(OUTPUT.glob(f"*/{RunDir(Path()).manifest.name}"))
    return [path.parent for path in manifests if _label(path) == name]


def _label(manifest: Path) -> str | None:
    """Return the label of a run; None if it has none, or the manifest is damaged."""
    from runs.errors import HarnessError
    from runs.record.manifest import read_manifest

    try:
        return read_manifest(manifest).asked.get("label")
    except HarnessError:
        return None


def _checked(folder: Path) -> "RecomputedBench":
    """Return a bench or a run, compared with its files."""
    from runs.bench.bench_record import read_bench_record
    from runs.bench.recomputed import check_single_run, recompute_bench
    from runs.bench.single_run import bench_of_run
    from runs.record.layout import BENCH_FILE, RunDir

    if (folder / BENCH_FILE).is_file():
        return recompute_bench(folder, read_bench_record(folder / BENCH_FILE))
    return check_single_run(folder, bench_of_run(folder, _label(RunDir(folder).manifest)))


def _write(folder: Path, comparison: "Comparison", records: "Sequence[BenchRecord]", content: dict[str, Any]) -> None:
    from compliance.report.compare_page import compare_page

    page, record = folder / PAGE, folder / "compare.json"
    with writing("--output-dir", page):
        write_atomic(page, compare_page(comparison, records, [*content["unverified"], *content["contradictions"]]))
        write_json(record, content)
    command_output.put(**content, page=page)


def _tell(comparison: "Comparison", contradictions: Sequence[str]) -> None:
    for against in comparison.against:
        for text in (f"{against.label} against {against.base}", *(f"  {line}" for line in against.lines)):
            tell(text)
        tell(f"  changed: {against.change_text}")
        if len(against.pairs) == 1 and against.best is not None and not against.best.is_different:
            tell(
                f"  only one run of each bench has an equal load; to compare more runs: bench ... --like {against.base}"
            )
    if not comparison.is_comparable:
        tell("not comparable: these conditions differ")
        for name, values in comparison.unequal_texts().items():
            shown = (f"{label} {value}" for label, value in zip(comparison.labels, values, strict=True))
            tell(printable(f"  {name}: {', '.join(shown)}"))
        first = comparison.labels[0]
        tell(f"  fix: repeat the other benches with `bench ... --like {first}`, which uses the conditions of {first}")
    for text in contradictions:
        tell(f"contradiction: {text}")
