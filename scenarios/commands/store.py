"""The `store` command, which stores runs in a SQLite file, and queries and compares them."""

from pathlib import Path
from typing import Any

import click

from runs.errors import ExitCode, InputError
from runs.files.writing import write_atomic
from runs.wording import counted, printable
from scenarios.command_line import command_output
from scenarios.command_line.command import PATH, Group, writing
from scenarios.command_line.declaration_options import declaration_options, take_declaration
from scenarios.command_line.options import round_option, score_options
from scenarios.console import tell, wide_console

EXAMPLES = (
    "add a run: store ingest RUN_DIR",
    "count the valid runs of each scenario: store query --where valid=1 --group-by scenario",
    "compare two runs: store compare RUN_ID RUN_ID",
)

# The columns that `query` shows. With `--json` it shows all columns.
SHOWN = (
    "run_id", "timestamp", "scenario", "model", "gpu_type", "mechanism", "mechanism_variant", "status", "valid",
    "throughput_tok_s", "ttft_p99_ms", "tpot_p99_ms", "rouge1",
)  # fmt: skip
PLAIN_WIDTH = 240  # width of a table in characters if the output is not a terminal
SHORT_RUN_ID = 8  # shown characters of a run ID; `compare` accepts the start of an ID


_db = click.option(
    "--db",
    type=PATH,
    metavar="FILE",
    default=Path("results.sqlite"),
    help="SQLite file of the store. Default: results.sqlite.",
)
_where = click.option(
    "--where",
    metavar="COLUMN=VALUE",
    multiple=True,
    help="Select rows with this value; `null` selects rows without a value. Repeatable.",
)


@click.group(cls=Group, examples=EXAMPLES)
def store() -> None:
    """Store results in a SQLite file, and query and compare them.

    If a store is from an earlier version, the command adds the missing columns and keeps all rows.

    Exit codes: 0 done, 1 the conditions of the two runs differ (compare), 2 bad input, 3 the store or the output file
    cannot be written.
    """


@store.command(shown=("--db", "--replace", "--round", "--dataset-path", "--model-path", "--declaration", "--mechanism"))
@_db
@click.argument("paths", metavar="RUN_DIR...", type=PATH, nargs=-1, required=True)
@click.option("--replace", is_flag=True, help="Overwrite runs in the store whose values differ.")
@round_option(
    "Round whose seeds, limits and sample counts the run must have. Default: the round of the seeds.", default=None
)
@score_options(". Default: the dataset in manifest.json.")
@declaration_options
def ingest(db: Path, paths: tuple[Path, ...], replace: bool, round: str | None, **options: Any) -> ExitCode:
    """Add results from run directories that `verify` accepts.

    Runs that are in the store already stay unchanged. If a result is declared as supported and the gate does not
    confirm this, the command stores it as reviewed_preview, with the reason.
    """
    from compliance.results.scoring import ScoreSources
    from compliance.techniques.quality_gate import stored_row
    from compliance.techniques.row import rows_of_runs
    from compliance.techniques.technique_registry import registries_or_error
    from runs.rounds import ROUNDS
    from runs.store import ResultStore
    from scenarios.terminal import Terminal

    in_round = None if round is None else ROUNDS[round]
    declaration = take_declaration(options)
    sources, registries = ScoreSources(options["dataset_path"], options["model_path"]), registries_or_error()
    with Terminal().status("reading runs"):
        judged = rows_of_runs(list(paths), declaration, registries, sources, in_round)
        rows = [stored_row(judged_row, registries) for judged_row in judged]
    with ResultStore.opened(db, create=True) as results:
        outcomes = results.ingest(rows, replace=replace)
    shown = ("run_id", "support_status", "support_status_reason")
    runs = [{name: row[name] for name in shown} for row in rows]
    command_output.put(runs=[{**run, "done": done} for run, done in zip(runs, outcomes, strict=True)])
    for row, done in zip(rows, outcomes, strict=True):
        name = "/".join(str(row[part]) for part in ("mechanism", "mechanism_variant") if row[part])
        what = f"{row['scenario']} {row['status'] or 'without a verdict'}, {name or 'no technique named'}"
        tell(f"{done}: {row['run_id']}  {what}  ({row['run_directory']})")
        if row["status"] is None and row["error_message"]:
            tell(f"  {row['error_message']}")
        if reason := row["support_status_reason"]:
            tell(f"  stored as {row['support_status']}, not as supported: {reason}")
        issues = (*row["mechanism_eval_validation"]["issues"], *row["evidence"]["misdeclared"])
        for issue in (text for text in issues if text not in (reason or "")):
            tell(f"  review: {issue}")
    return ExitCode.OK


@store.command()
@_db
@click.option(
    "--group-by",
    metavar="COLUMN[,COLUMN…]",
    help="Show one row per value of these columns, with counts and means. Means are over VALID runs.",
)
@_where
def query(db: Path, group_by: str | None, where: tuple[str, ...]) -> ExitCode:
    """Show runs or, with --group-by, counts and means."""
    from runs.store import ResultStore

    with ResultStore.opened(db) as results:
        if group_by is not None:
            groups = results.grouped([name.strip() for name in group_by.split(",")], _pairs(where))
        else:
            groups = results.rows(_pairs(where))
    rows = _exported(groups)
    command_output.put(rows=rows)
    _print_table(list(rows[0]) if rows and group_by is not None else list(SHOWN), rows)
    click.echo(counted(len(rows), "run" if group_by is None else "group"))
    return ExitCode.OK


@store.command()
@_db
@click.option("--output", type=PATH, metavar="FILE", help="File to write. Default: standard output.")
@_where
@click.option(
    "--format",
    "output_format",
    type=click.Choice(("csv", "json")),
    default="csv",
    help="Format of the output. Default: csv.",
)
def export(db: Path, output: Path | None, where: tuple[str, ...], output_format: str) -> ExitCode:
    """Write all columns as CSV, or as JSON rows for `gate`."""
    import csv
    import io

    import orjson

    from runs.store import ResultStore

    with ResultStore.opened(db) as results:
        stored, columns = results.rows(_pairs(where)), results.columns()
    rows = _exported(stored)
    command_output.put(rows=rows)
    if output_format == "json":
        text = orjson.dumps(rows, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
    else:
        stream = io.StringIO(newline="")
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(stored)
        text = stream.getvalue()
    if output is None:
        click.echo(text, nl=False)
        return ExitCode.OK
    with writing("--output", output):
        write_atomic(output, text)
    click.echo(f"{counted(len(rows), 'run')} written to {output}")
    return ExitCode.OK


@store.command()
@_db
def summary(db: Path) -> ExitCode:
    """Show counts and best values per scenario, model, GPU and technique."""
    from runs.store import ResultStore

    with ResultStore.opened(db) as results:
        rows = results.rows()
        best = results.grouped(["scenario", "lg_model_name", "model", "gpu_type", "mechanism", "mechanism_variant"])
    times = sorted(str(row["timestamp"]) for row in rows if row["timestamp"])
    command_output.put(runs=len(rows), best=best)
    click.echo(f"{db}: {counted(len(rows), 'run')}" + (f", {times[0]} to {times[-1]}" if times else ""))
    for name in ("success", "failed", "timeout"):
        click.echo(f"  {name:<8}{sum(row['status'] == name for row in rows)}")
    click.echo(f"  valid   {sum(row['valid'] == 1 for row in rows)}")
    if rows:
        _print_table(list(best[0]), best)
    return ExitCode.OK


@store.command()
@_db
@click.argument("first", metavar="RUN_ID")
@click.argument("second", metavar="RUN_ID")
def compare(db: Path, first: str, second: str) -> ExitCode:
    """Compare the conditions and numbers of two runs.

    The command exits with code 1 if the conditions differ. RUN_ID is an ID from `store query`, or the start of an ID.
    """
    from runs.store import ResultStore, compare_rows

    with ResultStore.opened(db) as results:
        rows = results.find(first), results.find(second)
    record = {"first": rows[0]["run_id"], "second": rows[1]["run_id"], **compare_rows(*rows)}
    command_output.put(**record)
    click.echo(_comparison_text(record), nl=False)
    return ExitCode.OK if record["same_conditions"] else ExitCode.NEGATIVE


def _comparison_text(record: dict[str, Any]) -> str:
    same = record["same_conditions"]
    lines = ["same conditions" if same else "NOT the same conditions: the numbers cannot be compared"]
    lines += [f"  condition  {_difference(change)}" for change in record["conditions"]]
    lines += [f"  condition  {name}: missing in one of the runs" for name in record["not_recorded"]]
    lines += [f"  system     {_difference(change)}" for change in record["system"]]
    lines += [f"  technique  {_difference(change)}" for change in record["techniques"]]
    lines += [f"  number     {_difference(change)}" for change in record["numbers"]]
    return printable("\n".join(lines) + "\n", lines=True)


def _difference(row: dict[str, Any]) -> str:
    ratio = "" if row["ratio"] is None else f"  ({row['ratio']:.4f} x)"
    return f"{row['name']}: {_cell(row['first'])} → {_cell(row['second'])}{ratio}"


def _exported(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as `gate` reads them: their columns, without the full verdict."""
    from runs.store_columns import RAW

    return [{name: value for name, value in row.items() if name not in (RAW, "id")} for row in rows]


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--where {text}: not of the form COLUMN=VALUE", "write --where scenario=Offline")
        pairs[name.strip()] = value
    return pairs


def _print_table(columns: list[str], rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(*columns, box=None)
    for row in rows:
        cells = {**row, "run_id": str(row.get("run_id") or "")[:SHORT_RUN_ID]}
        table.add_row(*(_cell(cells.get(name)) for name in columns))
    wide_console(PLAIN_WIDTH).print(table, markup=False, highlight=False)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else printable(str(value))
