"""The `gate` command, which checks the declared technique of a result."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compliance.mechanisms.technique_registry import DIVISIONS, REGISTRY_DIR, load_registries
from runs.errors import ExitCode, InputError
from runs.files.writing import write_atomic
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Command, writing
from scenarios.command_line.declaration_options import declaration_options, take_declaration
from scenarios.command_line.options import score_options

if TYPE_CHECKING:
    from compliance.mechanisms.quality_gate import GateOutcome

EXAMPLES = (
    "a result with the declaration in its manifest: gate RESULT",
    "eligibility for the closed division: gate RESULT --strict --division closed",
    "rows of a store: gate rows.json --format markdown",
)


def _judge(targets: tuple[Path, ...], options: dict[str, Any]) -> "GateOutcome":
    from compliance.evidence.scoring import ScoreSources
    from compliance.mechanisms.quality_gate import judge_rows
    from compliance.mechanisms.row import read_rows, rows_of_runs

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
        rows,
        registries,
        strict=options["strict"],
        division=options["division"],
        expected=options["expect"],
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
@click.option("--strict", is_flag=True, help="Also close the gate for missing or unregistered facts.")
@click.option("--division", type=click.Choice(DIVISIONS), help="Rows must be eligible in this division.")
@click.option(
    "--expect",
    metavar="MECHANISM/VARIANT",
    multiple=True,
    help="Require this technique among the rows; repeatable. Other techniques are listed.",
)
@click.option("--format", type=click.Choice(["text", "json", "markdown"]), default="text", help="Default: text.")
@click.option("--out", type=PATH, metavar="FILE", help="Also write the report to FILE (text: as JSON).")
@click.option(
    "--registry",
    type=PATH,
    metavar="DIR",
    default=REGISTRY_DIR,
    help="Use these registries instead of the registries of the harness.",
)
@score_options(". Default: the one in manifest.json.")
@declaration_options
def gate(targets: tuple[Path, ...], **options: Any) -> ExitCode:
    """Check the declared technique of a result, and its quality evaluation.

    The gate compares the declaration with the registry and the engine configuration in the manifest, and recomputes the
    quality evaluation.

    TARGET is a run directory, a directory with performance/run_1 and accuracy in it, or a JSON file of rows (`store
    export --format json`). Give the performance and the accuracy run of one result together.

    The declaration of a run is read, field by field, from the options, the environment variables (the option in
    capitals: MECHANISM_VARIANT), --declaration, and manifest.json (`run --mechanism`), in this order. Rows contain
    their own declaration. A result without a declaration is a baseline.

    Contradicting evidence closes the gate: a declaration that the engine configuration contradicts, a completed
    evaluation that fails, or a division that forbids the technique. So does a lossy technique that is declared as
    supported without a completed evaluation: an accuracy run that passes, or the file of --quality-results. Other
    missing or unregistered facts are advice; with --strict, they close the gate too.

    Exit codes: 0 open, 1 closed, 2 bad input, 3 the report cannot be written, 4 failed.
    """
    import orjson

    from scenarios.terminal import Terminal

    with Terminal().status("judging"):
        outcome = _judge(targets, options)
    record = outcome.record()
    command_output.put(**record)
    json_text = orjson.dumps(record, option=orjson.OPT_INDENT_2).decode() + "\n"
    text = {"json": json_text, "markdown": outcome.as_markdown(), "text": outcome.as_text()}[options["format"]]
    click.echo(text, nl=False)
    if options["out"] is not None:
        with writing("--out", options["out"]):
            write_atomic(options["out"], json_text if options["format"] == "text" else text)
    return outcome.exit_code(strict=outcome.strict)
