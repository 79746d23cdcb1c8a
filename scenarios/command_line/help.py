"""What `--help` shows: options in groups, examples, and what few people need only with `--help-all`."""

from collections.abc import Sequence
from typing import Any

import click

GROUPS = {
    "": "Options",
    "what": "What to run",
    "audit": "The audit",
    "tune": "The tune",
    "loadgen": "LoadGen",
    "engine": "Engine",
    "endpoint": "A server as the engine",
    "mechanism": "Declaration of the result",
    "compat": "Accepted for the reference implementation's scripts",
    "dummy": "Dummy engine (no model; for trying and testing the harness)",
}
FOR_FEW = ("compat", "dummy")


class GroupedOption(click.Option):
    """An option that belongs to one of `GROUPS`."""

    def __init__(self, *arguments: Any, group: str = "", **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.group = group


class _WithExamples(click.Command):
    """A command whose help ends with examples.

    Args:
        examples: command lines after `main.py`, each with a few words before a colon: "a first leg: run …".
    """

    def __init__(self, *arguments: Any, examples: Sequence[str], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples."""
        with formatter.section("Examples"):
            for example in self.examples:
                words, _, line = example.partition(": ")
                formatter.write(f"{'':>{formatter.current_indent}}# {words}\n")
                formatter.write(f"{'':>{formatter.current_indent}}python main.py {line}\n")


class Group(_WithExamples, click.Group):
    """Commands below a command."""


class Command(_WithExamples):
    """A command whose options are shown in groups."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        if any(_group(option) in FOR_FEW for option in self.params):
            self.params.append(
                click.Option(
                    ["--help-all"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_show_all,
                    help="Also show rarely used options, and exit.",
                )
            )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The groups in the order of `GROUPS`."""
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for option in self.get_params(ctx):
            row = option.get_help_record(ctx)
            if row is not None and (ctx.meta.get("all") or _group(option) not in FOR_FEW):
                rows[_group(option)].append(row)
        for group in (*list(GROUPS)[1:], ""):
            if rows[group]:
                with formatter.section(GROUPS[group]):
                    formatter.write_dl(rows[group])


def _group(option: click.Parameter) -> str:
    return option.group if isinstance(option, GroupedOption) and option.group in GROUPS else ""


def _show_all(ctx: click.Context, _option: click.Parameter, given: bool) -> None:
    if given:
        ctx.meta["all"] = True
        click.echo(ctx.get_help())
        ctx.exit()
