"""Commands with grouped options and examples.

`--help` fits on one screen of 24 lines × 100 columns: the options that most users need, with the first sentences of
their help. `--help-all` shows the whole text, all options in groups, and all examples.
"""

import contextlib
import difflib
import errno
import inspect
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from runs.errors import InputError, SetupError
from runs.files.writing import write_json
from runs.harness import NAME, PROGRAM
from runs.mistakes import Mistakes
from scenarios.command_line.command_output import JSON
from scenarios.spellings import field_and_key

_MISTAKES = "mistakes"  # key in click's context for the mistakes so far
GROUPS = {
    "": "Options",
    "bench": "Bench",
    "ab": "Comparison",
    "what": "What to run",
    "audit": "Audit",
    "tune": "Tuning",
    "loadgen": "LoadGen",
    "engine": "Engine",
}
# The groups of engines follow, whose options have their titles.
LAST_GROUPS = {
    "mechanism": "Declaration of the result",
    "compat": "Options of other programs, accepted for existing scripts",
}
# `--help`: number of examples; characters of an option's help and of its spelling that it does not shorten
SHORT_EXAMPLES, SHORT_LINE, MAX_SPELLING = 2, 70, 30


class GroupedOption(click.Option):
    """An option in one of `GROUPS`, or in a group with a title. Help and messages show its first spelling.

    A wrong value is collected.
    """

    def __init__(self, *arguments: Any, group: str = "", group_title: str = "", **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.group, self.group_title = group, group_title

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the value as the option's type; None after a mistake, which the command reports with all others."""
        mistakes: Mistakes = ctx.meta[_MISTAKES]
        return mistakes.attempt(super().process_value, ctx, value)

    def get_help_spec(self, ctx: click.Context) -> str:
        return self.opts[0] if self.is_flag else f"{self.opts[0]} {self.make_metavar(ctx)}"

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return f"'{self.opts[0]}'"


class _WithExamples(click.Command):
    """A command whose help ends with examples.

    Args:
        examples: Command lines after `main.py`, each with a title before a colon: "a first run: run …".
        shown: The options of `--help`, such as "--scenario". Default: all.
    """

    def __init__(
        self, *arguments: Any, examples: Sequence[str] = (), shown: Sequence[str] = (), **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self.examples, self.shown = examples, shown
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all,
                help="Show all options and details, and exit.",
            )
        )

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the whole help or, for `--help`, its first paragraph and the exit codes."""
        parts = inspect.cleandoc(self.help or "").split("\n\n")
        short = [part for part in parts if part is parts[0] or part.startswith("Exit codes")]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("\n\n".join(parts if ctx.meta.get("all") else short))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options: all, in the order of their groups, or those of `--help`."""
        is_all = ctx.meta.get("all")
        options = {option.opts[0]: option for option in self.get_params(ctx)}
        if not is_all:
            names = self.shown or [name for name in options if name != "--help"]
            options = {name: options[name] for name in dict.fromkeys((*names, "--help-all"))}
        titles = GROUPS | _titles_of_engines(options.values()) | LAST_GROUPS
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in titles}
        for option in options.values():
            row = option.get_help_record(ctx)
            if row is None or not row[1]:
                continue
            if is_all:
                group = option.group if isinstance(option, GroupedOption) else ""
                rows[group if group in titles else ""].append(row)
            else:
                rows[""].append(_short(*row))
            if is_all and isinstance(option, GroupedOption):
                rows["compat"] += ((spelling, f"Same as {option.opts[0]}.") for spelling in option.opts[1:])
        for group in (*list(titles)[1:], ""):
            if rows[group]:
                with formatter.section(titles[group]):
                    formatter.write_dl(rows[group])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        if not self.examples:
            return
        with formatter.section("Examples"):
            for example in self.examples if ctx.meta.get("all") else self.examples[:SHORT_EXAMPLES]:
                words, _, line = example.partition(": ")
                formatter.write(f"{'':>{formatter.current_indent}}# {words}\n")
                formatter.write(f"{'':>{formatter.current_indent}}{PROGRAM} {line}\n")


class Command(_WithExamples):
    """A command without subcommands. It reports all unknown options and all wrong values of grouped options together.

    Args:
        collects_mistakes: True if the command reports the mistakes of the command line in `all_mistakes`, together
            with the mistakes that it finds itself.
    """

    def __init__(self, *arguments: Any, collects_mistakes: bool = False, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.collects_mistakes = collects_mistakes

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        mistakes = ctx.meta[_MISTAKES] = Mistakes()
        words = list(args)
        while True:
            try:
                rest = super().parse_args(ctx, list(words))
                break
            except click.NoSuchOption as error:
                remaining = _without_option(words, error.option_name)
                if len(remaining) == len(words):
                    raise
                with mistakes.collected():
                    raise unknown_option(error, ctx) from error
                words = remaining
            except (click.UsageError, InputError):
                mistakes.refuse()  # an unknown option may be the cause
                raise
        if not self.collects_mistakes:
            mistakes.refuse()
        return rest


@contextlib.contextmanager
def all_mistakes(ctx: click.Context) -> Iterator[None]:
    """Report the mistakes that end the block together with the mistakes of the command line.

    Raises:
        HarnessError: If there are mistakes.
    """
    mistakes: Mistakes = ctx.meta[_MISTAKES]
    with mistakes.collected():
        yield
    mistakes.refuse()


def _without_option(words: list[str], option: str) -> list[str]:
    """Return the words without an option and its value."""
    for place, word in enumerate(words):
        if word.partition("=")[0] == option:
            following = words[place + 1 : place + 2]
            has_value = "=" not in word and following and not following[0].startswith("-")
            return [*words[:place], *words[place + 1 + bool(has_value) :]]
    return words


def unknown_option(error: click.NoSuchOption, above: click.Context) -> InputError:
    """Name the option of a command that replaces an option of another program, or the nearest option."""
    field, key = field_and_key(error.option_name)
    alike = difflib.get_close_matches(error.option_name, error.possibilities or (), 1, cutoff=0.8)
    near = [f"did you mean {name}?" for name in alike]
    if error.option_name == JSON:
        near = ["write --json last; here it takes no file name"]
    near += [f"see `{PROGRAM}{above.command_path.removeprefix(NAME)} --help`"]
    for option in above.command.params:
        if field and option.name == field:
            near.insert(0, f"here: {option.opts[0]}" + (f" {key}=VALUE" if key else ""))
    return InputError(f"{error.option_name}: unknown option", near[0])


class Group(_WithExamples, click.Group):
    """A command with subcommands."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the subcommands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def _short(option: str, text: str) -> tuple[str, str]:
    """Return an option and its help for one line: the first statement, and what click adds, such as a default."""
    option = re.sub(", --[^ ]+", "", option)
    text, gap, added = text.partition("  [")
    if len(text) > SHORT_LINE:
        text = re.split(r"(?<=\.) (?=[A-Z-])|; ", text)[0].rstrip(".") + "."
    name, _, values = option.partition(" ")
    if len(option) > MAX_SPELLING and "|" in values:
        option, text = f"{name} NAME", f"{text.rstrip('.')}: {values.strip('[]').replace('|', ', ')}."
    return option, text + gap + added


def _titles_of_engines(options: Iterable[click.Parameter]) -> dict[str, str]:
    grouped = (option for option in options if isinstance(option, GroupedOption))
    return {option.group: option.group_title for option in grouped if option.group_title}


def _show_all(ctx: click.Context, _option: click.Parameter, is_set: bool) -> None:
    if is_set:
        ctx.meta["all"] = True
        click.echo(ctx.get_help())
        ctx.exit()


def given_options() -> dict[str, str]:
    """Return the options on the command line of the current command, such as "--round", and their values."""
    ctx = click.get_current_context()
    return {
        option.opts[0]: str(ctx.params.get(option.name))
        for option in ctx.command.params
        if option.name and ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    }


class PathType(click.ParamType[Path]):
    """An argument type that returns a `Path` and refuses unusable names.

    It refuses an empty name (from an unset shell variable), a name that is not UTF-8 (the output files are UTF-8), a
    loop of links, a name that is too long for the file system, and a directory that the user must not enter.
    """

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """
        Raises:
            InputError: If the path is unusable; the message names the option and the value.
        """
        option = (
            param.opts[0] if isinstance(param, click.Option) else param.name.upper() if param and param.name else ""
        )
        text = os.fspath(value)
        shown = text.encode("utf-8", "backslashreplace").decode()
        if not text:
            raise InputError(f"{option}: empty value", "give a path; check for an unset shell variable")
        try:
            str(Path(text).absolute()).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{option} {shown}: absolute path is not UTF-8", "rename the directory") from error
        try:
            Path(text).stat()
        except OSError as error:
            why = {
                errno.ELOOP: "the links form a loop",
                errno.ENAMETOOLONG: "the name is too long",
                errno.EACCES: "no permission to enter the parent directory",
            }.get(error.errno or 0)
            if why is not None:
                raise InputError(f"{option} {shown:.200}: {why}", "give another path") from error
        except ValueError as error:
            raise InputError(f"{option} {shown!r}: {error}", "give another path") from error
        return Path(text)


PATH = PathType()


@contextlib.contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Create the folder of `path`, and report a failure to write `path` as a problem of `option`.

    Raises:
        SetupError: If the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise SetupError(f"{option} {path}: cannot be written: {error.strerror}", "give another file") from error


def write_record(option: str, path: Path | None, record: dict[str, Any]) -> None:
    """Write a JSON object to the file of `option`, if the option is given.

    Raises:
        SetupError: If the file cannot be written.
    """
    if path is not None:
        with writing(option, path):
            write_json(path, record)
