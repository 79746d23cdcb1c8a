"""`main.py gate`: does a result's declared technique hold, and is its quality shown?"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console

from compliance.evidence.accuracy import ScoreSources
from compliance.mechanisms.declaration import (
    FIELD_NAMES,
    FIELDS,
    SUPPORT_STATUSES,
    Declaration,
    declare,
    from_environment,
    read_declaration_file,
)
from compliance.mechanisms.eligibility import DIVISIONS
from compliance.mechanisms.gate import GateOutcome, judge_rows
from compliance.mechanisms.gate_report import as_json, as_markdown, as_text
from compliance.mechanisms.registry import REGISTRY_DIR, load_registries
from compliance.mechanisms.row import JudgedRow, rows_of_runs
from compliance.mechanisms.rows_file import read_rows
from runs.errors import ExitCode, InputError
from runs.files import write_atomic
from scenarios.commands import answer
from scenarios.commands.help import Command
from scenarios.commands.paths import PATH
from scenarios.commands.written import writing

GATE_HELP = """Judge what technique a result declares: is it registered, does the engine's own record agree, does its
quality evaluation pass when it is derived again?

TARGET is a run directory, a directory with performance/run_1 and accuracy in it, or a JSON file of rows (`store export
--format json`). Give the performance and the accuracy leg of one result together. A declaration comes from options,
else from environment variables (the option in capitals: MECHANISM_VARIANT), else from --declaration, else from the
run's own manifest.json (`run --mechanism`); the first three are for run directories, rows bring their own. Without any,
a result is a baseline.

What evidence refutes closes the gate: a declaration that the engine's record contradicts, a completed evaluation that
does not pass, a division that does not allow the technique. What is only missing or not registered is advice, unless
--strict.

Exit codes: 0 open, 1 closed, 2 bad input, 3 the report cannot be written, 4 failed."""

EXAMPLES = (
    "one result, as its run declares it: gate RESULT",
    "may it enter the closed division: gate RESULT --strict --division closed",
    "rows of a store: gate rows.json --format markdown",
)


def declaration_options() -> list[click.Parameter]:
    """The options that declare a technique, for every command that makes rows."""
    fields: list[click.Parameter] = [
        click.Option([f"--{entry.name.replace('_', '-')}"], metavar=entry.kind.upper(), help=entry.help)
        for entry in FIELDS
    ]
    return [
        click.Option(["--declaration"], type=PATH, metavar="FILE", help="YAML with the fields below."),
        click.Option(
            ["--support-status"],
            type=click.Choice(SUPPORT_STATUSES),
            help="How far the result is vouched for. Default: supported for a baseline, else reviewed_preview.",
        ),
        *fields,
    ]


def score_options() -> list[click.Parameter]:
    """What answers are scored with."""
    return [
        click.Option(
            ["--dataset-path"],
            type=PATH,
            metavar="FILE",
            help="Data set to score answers with. Default: the one in manifest.json.",
        ),
        click.Option(["--model-path"], metavar="MODEL", help="Model whose tokenizer decodes them; likewise."),
    ]


def take_declaration(options: dict[str, Any]) -> Declaration:
    """Take the declaration's options out of `options`: the command line before the environment before the file.

    What all of them leave open, the record of each run declares.

    Raises:
        InputError: the file is no declaration.
    """
    given = {name: options.pop(name) for name in FIELD_NAMES}
    path, status = options.pop("declaration"), options.pop("support_status")
    fields, status_of_file = read_declaration_file(path) if path is not None else ({}, None)
    declared = declare(given, from_environment(dict(os.environ)), fields)
    return replace(declared, support_status=status or status_of_file)


def take_sources(options: dict[str, Any]) -> ScoreSources:
    """Take the scoring options out of `options`."""
    return ScoreSources(options.pop("dataset_path"), options.pop("model_path"))


def _judge(targets: tuple[Path, ...], options: dict[str, Any]) -> GateOutcome:
    declaration, sources = take_declaration(options), take_sources(options)
    registries = load_registries(options["registry"])  # a gate that does not know what may pass is closed to all
    directories = [path for path in targets if path.is_dir()]
    rows: list[JudgedRow] = []
    if directories:
        rows += rows_of_runs(directories, declaration, registries, sources=sources)
    for path in targets:
        if not path.is_dir():
            rows += read_rows(path, registries, sources=sources)
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


def gate_click_command() -> click.Command:
    """The command for main.py; its callback returns the exit code."""

    def callback(targets: tuple[Path, ...], **options: Any) -> ExitCode:
        console = Console()
        with console.status("judging"):
            outcome = _judge(targets, options)
        answer.put(**as_json(outcome))
        json_text = orjson.dumps(as_json(outcome), option=orjson.OPT_INDENT_2).decode() + "\n"
        text = {"json": lambda: json_text, "markdown": lambda: as_markdown(outcome), "text": lambda: as_text(outcome)}
        click.echo(text[options["format"]](), nl=False)
        if options["out"] is not None:
            with writing("--out", options["out"]):
                write_atomic(options["out"], json_text if options["format"] == "text" else text[options["format"]]())
        return ExitCode.NEGATIVE if outcome.closed else ExitCode.OK

    path = PATH
    return Command(
        "gate",
        callback=callback,
        help=GATE_HELP,
        examples=EXAMPLES,
        params=[
            click.Argument(["targets"], metavar="TARGET...", type=path, nargs=-1, required=True),
            click.Option(["--strict"], is_flag=True, help="Every failure closes the gate."),
            click.Option(["--division"], type=click.Choice(DIVISIONS), help="Rows must be eligible there."),
            click.Option(
                ["--expect"],
                metavar="MECHANISM/VARIANT",
                multiple=True,
                help="The rows have to cover it; others are listed. Repeatable.",
            ),
            click.Option(
                ["--format"], type=click.Choice(["text", "json", "markdown"]), default="text", help="Default: text."
            ),
            click.Option(["--out"], type=path, metavar="FILE", help="Also write the report there (text: as JSON)."),
            click.Option(
                ["--registry"],
                type=path,
                metavar="DIR",
                default=REGISTRY_DIR,
                help="Registries to use instead of those of this program.",
            ),
            *score_options(),
            *declaration_options(),
        ],
    )
