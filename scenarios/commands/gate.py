"""The `gate` command, which checks the declared technique of a result."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compliance.techniques.technique_registry import GATE_DIVISIONS, REGISTRY_DIR, load_registries
from runs.errors import ExitCode, InputError
from runs.files.writing import write_atomic
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, writing
from scenarios.command_line.declaration_options import declaration_options, take_declaration
from scenarios.command_line.options import score_options

if TYPE_CHECKING:
    from compliance.techniques.quality_gate import GateVerdict

EXAMPLES = (
    "check the technique that the manifest of a result declares: gate RESULT",
    "check that a result is eligible in the closed division: gate RESULT --strict --division closed",
    "check the rows of a store: gate rows.json --format markdown",
)


def _judge(targets: tuple[Path, ...], options: dict[str, Any]) -> "GateVerdict":
    from compliance.results.scoring import ScoreSources
    from compliance.techniques.quality_gate import judge_rows
    from compliance.techniques.row import rows_of_runs
    from compliance.techniques.row_file import read_rows

    declaration = take_declaration(options)
    sources = ScoreSources(options["dataset_path"], options["model_path"])
    registries = load_registries(options["registry"])
    directories = [path for path in targets if path.is_dir()]
    rows = rows_of_runs(directories, declaration, registries, sources) if directories else []
    for path in targets:
        if not path.is_dir():
            rows += read_rows(path, registries, sources)
    for pair in options["expect"]:
        if pair.count("/") != 1:
            raise InputError(f"--expect {pair}: not of the form MECHANISM/VARIANT", "write --expect baseline/none")
    return judge_rows(
        rows, registries, strict=options["strict"], division=options["division"], expected=options["expect"]
    )


@click.command(
    cls=Command,
    examples=EXAMPLES,
    shown=(
        "--strict",
        "--division",
        "--expect",
        "--format",
        "--out",
        "--declaration",
        "--quality-results",
        "--mechanism",
    ),
)
@click.argument("targets", metavar="TARGET...", type=PATH, nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Close the gate also on warnings: facts that no file proves.")
@click.option(
    "--division", type=click.Choice(GATE_DIVISIONS), help="Close the gate if a result is not eligible in this division."
)
@click.option(
    "--expect",
    metavar="MECHANISM/VARIANT",
    multiple=True,
    help="Close the gate if no result has this technique; repeatable. The report lists other techniques.",
)
@click.option(
    "--format",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    help="Format of the report. Default: text.",
)
@click.option("--out", type=PATH, metavar="FILE", help="Also write the report to FILE; --format text writes JSON.")
@click.option(
    "--registry",
    type=PATH,
    metavar="DIR",
    default=REGISTRY_DIR,
    help="Directory of the registries of techniques and evaluations. Default: the registries of the harness.",
)
@score_options(". Default: the dataset in manifest.json.")
@declaration_options
def gate(targets: tuple[Path, ...], **options: Any) -> ExitCode:
    """Check the technique that a result declares, and its quality evaluation.

    The gate compares the declaration with the registry of techniques and with the engine configuration in the manifest.
    It recomputes the quality evaluation.

    TARGET is a run directory, a directory that contains performance/run_1 and accuracy, or a JSON file of rows (`store
    export --format json`). Give the performance run and the accuracy run of one result together.

    For each field of the declaration, the first of these sources counts: the option, the environment variable (such as
    MECHANISM_VARIANT for --mechanism-variant), the file of --declaration, and manifest.json (`run --mechanism`). The
    rows of a store contain their declarations. A result without a declaration is a baseline.

    The gate closes if the technique or its variant is not in the registry, if the engine configuration contradicts the
    declaration, if a completed evaluation fails, or if the division forbids the technique. Speculative decoding needs a
    declared draft model and acceptance rate. A lossy technique that is declared as supported needs a complete
    evaluation: an accuracy run that passes, or --quality-results. If no file proves another declared fact, the command
    prints a warning; with --strict, the gate closes.

    Exit codes: 0 open, 1 closed, 2 bad input, 3 the report cannot be written, 4 the command failed.
    """
    import orjson

    from compliance.judge.record import record
    from compliance.techniques.quality_gate import gate_exit_code, gate_markdown, gate_text
    from scenarios.terminal import Terminal

    with Terminal().status("judging"):
        verdict = _judge(targets, options)
    content = record(verdict)
    command_output.put(**content)
    json_text = orjson.dumps(content, option=orjson.OPT_INDENT_2).decode() + "\n"
    text = {"json": json_text, "markdown": gate_markdown(verdict), "text": gate_text(verdict)}[options["format"]]
    click.echo(text, nl=False)
    if options["out"] is not None:
        with writing("--out", options["out"]):
            write_atomic(options["out"], json_text if options["format"] == "text" else text)
    return gate_exit_code(verdict)
