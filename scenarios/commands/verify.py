"""The `verify` command, which verifies results from their logs."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runs.benchmark import SCENARIOS, Scenario
from runs.errors import ExitCode, InputError
from runs.files.writing import write_atomic
from runs.record.layout import RunDir
from runs.rounds import ROUNDS
from runs.wording import moment, printable
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, write_record, writing
from scenarios.command_line.options import round_option, score_options, score_sources, seed_sets_option
from scenarios.console import tell

if TYPE_CHECKING:
    from compliance.judge.verdict import Verdict

EXAMPLES = (
    "verify a performance run and an accuracy run: verify PERFORMANCE_DIR ACCURACY_DIR",
    "verify another submitter's result under the official rules: verify RESULT --official --output verdict",
    "write a document that lists every claim with its check: verify RESULT --document verification.md",
)


@click.command(
    cls=Command,
    examples=EXAMPLES,
    shown=("--scenario", "--official", "--round", "--dataset-path", "--output", "--document", "--json"),
)
@click.argument("run_dirs", metavar="RUN_DIR...", type=PATH, nargs=-1, required=True)
@click.option("--accuracy-only", is_flag=True, help="Ignore performance runs.")
@click.option("--performance-only", is_flag=True, help="Ignore accuracy runs.")
@click.option(
    "--scenario",
    type=click.Choice(SCENARIOS),
    help="Scenario of the runs. Default: the scenario in manifest.json or in the log; a Server run with the limits of "
    "Interactive counts as Interactive.",
)
@click.option(
    "--official",
    is_flag=True,
    help="Apply the official rules to all runs. Default: not to runs that manifest.json marks as not eligible for "
    "submission.",
)
@round_option("Round whose rules and seeds apply. Default: the round whose seeds the logs have.", default=None)
@seed_sets_option()
@score_options(". Default: the dataset in manifest.json; if that file is missing, the scores in accuracy.txt count.")
@click.option(
    "--output",
    type=PATH,
    metavar="DIR",
    help="Directory for the verdict. Multiple verdicts are written to numbered subdirectories. Default: the first "
    "RUN_DIR of each result.",
)
@click.option(
    "--document", type=PATH, metavar="FILE", help="Also write a verification document to FILE, in Markdown (.md)."
)
@click.option("--json", type=PATH, metavar="[FILE]", help="Also write all verdicts to FILE, as JSON.")
def verify(
    run_dirs: tuple[Path, ...],
    accuracy_only: bool,
    performance_only: bool,
    scenario: Scenario | None,
    official: bool,
    round: str | None,
    seed_sets: Path | None,
    dataset_path: Path | None,
    model_path: str | None,
    output: Path | None,
    document: Path | None,
    json: Path | None,
) -> ExitCode:
    """Verify results from their logs, and write verify_performance.txt.

    For runs of this harness, the command writes verify_performance.txt and verify_performance.json into the run
    directory. With --output, it writes them into that directory. For logs of other programs, it writes them only with
    --output.

    RUN_DIR is a run directory of this harness, a directory with LoadGen logs, a directory that contains
    performance/run_1 and accuracy, the directory of a campaign, or an MLPerf Endpoints run folder. A performance run
    and an accuracy run of one scenario are verified together, as one result. The most severe verdict decides the exit
    code.

    The official rules apply to every run, except a run that manifest.json marks as not eligible for submission. Each
    violation by such a run is printed as `not eligible for submission: ...`.

    Exit codes: 0 PASS, 1 FAIL, 2 bad input or damaged logs, 3 no verdict (benchmark not supported, accuracy log
    missing, or --output not writable), 4 the logs contradict each other, or a run did not finish.
    """
    if accuracy_only and performance_only:
        raise InputError("--accuracy-only and --performance-only exclude each other", "give only one of these options")
    for name, path in (("--dataset-path", dataset_path), ("--model-path", model_path)):
        if path is not None and performance_only:
            raise InputError(f"{name}: no effect with --performance-only", f"remove {name}")
    if document is not None and document.suffix != ".md":
        raise InputError(f"--document {document}: not a Markdown file name", "give a name that ends in .md")
    from compliance.judge.record import record
    from compliance.mlperf_endpoints import judge_of
    from compliance.results.find_results import find_results
    from compliance.results.policy import verify_result
    from compliance.results.scoring import with_scorer
    from compliance.results.text import logs_judged, result_text
    from runs.mlperf_endpoints.layout import is_run_folder
    from runs.record.finished_run import ACCURACY, PERFORMANCE
    from scenarios.terminal import Terminal

    in_round = None if round is None else ROUNDS[round]
    sources = score_sources(dataset_path, model_path)
    console = Terminal()
    only = ACCURACY if accuracy_only else PERFORMANCE if performance_only else None
    run_folders = [path for path in run_dirs if is_run_folder(path)]
    without_effect = {"--document": document, "--accuracy-only": accuracy_only, "--scenario": scenario}
    if run_folders and (named := ", ".join(option for option, value in without_effect.items() if value)):
        raise InputError(
            f"{named}: not supported for {run_folders[0]}, an MLPerf Endpoints run folder", f"remove {named}"
        )
    if seed_sets is not None and not run_folders:
        raise InputError("--seed-sets: only for run folders of MLPerf Endpoints", "remove --seed-sets")
    runs = [path for path in run_dirs if path not in run_folders]
    results = find_results(runs, scenario, only) if runs else []
    homes = [(one.home, all(RunDir(path).manifest.is_file() for path in one.directories)) for one in results]
    folders = iter(_folders(homes + [(path, False) for path in run_folders], output))
    verdicts, judged = [], []
    with with_scorer(sources) as (scored_with, _):
        for result in results:
            with console.status("verifying"):
                verdict = verify_result(result, official=official, sources=scored_with, in_round=in_round)
            verdicts.append(verdict)
            _tell(verdict, result_text(verdict), logs_judged(verdict), next(folders))
    for path in run_folders:
        judge = judge_of("verdict")
        with console.status("verifying"):
            folder_verdict = judge.judge_folder(
                path, official=official, model_path=model_path, dataset_path=dataset_path, seed_file=seed_sets
            )
        judged.append(folder_verdict)
        _tell(
            folder_verdict, judge.client_run_text(folder_verdict), {"sha256": judge.folder_hashes(path)}, next(folders)
        )
    everything: list[Verdict[Any]] = [*verdicts, *judged]
    worst = max((one.exit_code() for one in everything), default=ExitCode.OK)
    content = {"schema_version": 1, "exit_code": int(worst), "results": [record(one) for one in everything]}
    command_output.put(**content)
    write_record("--json", json, content)
    if document is not None:
        from compliance.report.document import document_markdown

        with writing("--document", document):
            write_atomic(document, document_markdown(verdicts, moment(time.time_ns())))
        tell(f"written to {document}")
    return worst


def _folders(homes: list[tuple[Path, bool]], output: Path | None) -> list[Path | None]:
    """Return the directory for each verdict; None for logs of other programs if no `output` is given."""
    if output is None:
        return [home if ours else None for home, ours in homes]
    if len(homes) == 1:
        return [output]
    return [output / f"{number:03d}-{home.resolve().name}" for number, (home, _) in enumerate(homes, start=1)]


def _tell(verdict: "Verdict[Any]", text: str, judged: dict[str, Any], folder: Path | None) -> None:
    """Print a verdict, and write it with the hashes of the verified files."""
    from compliance.judge.record import record
    from compliance.results.details import RECORD_NAME, TEXT_NAME
    from compliance.results.text import write_judged

    tell(text.rstrip())
    if verdict.error is not None:
        print(f"error: {printable(str(verdict.error), lines=True)}", file=sys.stderr)
    elif verdict.contradictions:
        print(f"error: {printable(verdict.reasons[0])}", file=sys.stderr)
    if folder is None:
        tell("verdict not saved, because the logs are not from this harness; use --output DIR to save it")
        return
    write_judged(record(verdict) | judged, text, folder)
    tell(f"written to {folder}: {RECORD_NAME}, {TEXT_NAME}")
