"""Commands, their options and their help. Options are made of pydantic schemas, so that they cannot drift from these.

`--help` shows options in groups and examples; rarely used options are shown by `--help-all`.
"""

import contextlib
import errno
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import click

from runs.errors import InputError, SetupError
from runs.files import write_json

if TYPE_CHECKING:  # commands without a schema do without it
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

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
RARELY_USED = ("compat", "dummy")


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
        if any(_group(option) in RARELY_USED for option in self.params):
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
            if row is not None and (ctx.meta.get("all") or _group(option) not in RARELY_USED):
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


class PathType(click.ParamType[Path]):
    """Turns an argument into a `Path`, refusing those that no later step could use.

    Refused are: an empty name (an unset shell variable, which would mean the working directory), a name that is not
    UTF-8 (the records are), a loop of links, a name that is too long for the file system, and a place that the user may
    not enter.
    """

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """
        Raises:
            InputError: naming the option and the value.
        """
        option = (
            param.opts[-1] if isinstance(param, click.Option) else param.name.upper() if param and param.name else ""
        )
        text = os.fspath(value)
        shown = text.encode("utf-8", "backslashreplace").decode()
        if not text:
            raise InputError(f"{option} is empty", "name a path; is a shell variable unset?")
        try:
            str(Path(text).absolute()).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{option} {shown}: its whole name is not UTF-8", "rename it") from error
        try:
            Path(text).stat()
        except OSError as error:
            why = {
                errno.ELOOP: "links that lead in a circle",
                errno.ENAMETOOLONG: "the name is too long",
                errno.EACCES: "you may not enter the directory that it lies in",
            }.get(error.errno or 0)
            if why is not None:
                raise InputError(f"{option} {shown:.200}: {why}", "name another path") from error
        except ValueError as error:
            raise InputError(f"{option} {shown!r}: {error}", "name another path") from error
        return Path(text)


PATH = PathType()


def options_of(
    schema: "type[BaseModel]", without: Collection[str] = (), changed: Mapping[str, Mapping[str, str]] = {}
) -> list[click.Parameter]:
    """One option a field; given options only reach the callback, so defaults stay in the schema.

    Args:
        without: fields that get none.
        changed: by field, what its option has in place of the schema's `help` or `metavar`.
    """
    fields = {name: field for name, field in schema.model_fields.items() if name not in without}
    return [_option(name, field, changed.get(name, {})) for name, field in fields.items()]


def _option(name: str, field: "FieldInfo", changed: Mapping[str, str]) -> click.Option:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    flag = "--" + name.replace("_", "-")
    metavar = str(extra.get("metavar") or "") or None
    kind = _without_none(field.annotation)
    settings: dict[str, Any] = {"help": field.description, "metavar": metavar, "default": None}
    if kind is bool:
        settings.update(is_flag=True, flag_value=True, metavar=None, type=bool)
    elif get_origin(kind) is Literal:
        settings.update(type=str, metavar="|".join(get_args(kind)))
    elif get_origin(kind) is dict or get_origin(kind) is list:
        settings.update(type=str, multiple=True)
    else:
        settings.update(type={int: int, float: float, Path: PATH}.get(kind, str))
    return GroupedOption([flag], group=str(extra.get("group") or ""), **{**settings, **changed})


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        (kind,) = [part for part in get_args(annotation) if part is not type(None)]
        return kind
    return annotation


def given_values(schema: "type[BaseModel]", parsed: dict[str, Any]) -> dict[str, Any]:
    """The options that were really given, KEY=VALUE pairs as dictionaries.

    Raises:
        InputError: a pair without `=`, or a key given twice.
    """
    values: dict[str, Any] = {}
    for name, value in parsed.items():
        if value is None or value == ():
            continue
        field = schema.model_fields[name]
        if get_origin(_without_none(field.annotation)) is dict:
            values[name] = _pairs("--" + name.replace("_", "-"), value)
        else:
            values[name] = list(value) if isinstance(value, tuple) else value
    return values


def _pairs(flag: str, texts: tuple[str, ...]) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise InputError(f"{flag} {text}: not of the form KEY=VALUE", f"write {flag} max_num_seqs=64, for example")
        if key in pairs:
            raise InputError(f"{flag} {key} is given twice ({pairs[key]!r} and {value!r})", "give it once")
        pairs[key] = parse_value(value)
    return pairs


def parse_value(text: str) -> Any:
    """A value from the command line: JSON where it is JSON, Python's words for booleans and None, else the text."""
    words = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}
    if text in words:
        return words[text]
    try:
        return json.loads(text)
    except ValueError:
        return text


def dry_run_option() -> click.Option:
    """`--dry-run`, as every command that runs legs has it."""
    return click.Option(["--dry-run"], is_flag=True, help="Check and show the plan; start and write nothing.")


@contextlib.contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Within: `path`, which `option` named, is written; its folder is made before.

    Raises:
        SetupError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise SetupError(f"{option} {path} cannot be written: {error.strerror}", "name another file") from error


def write_record(option: str, path: Path | None, record: dict[str, Any]) -> None:
    """Write a JSON object to the file that `option` named, if it named one.

    Raises:
        SetupError: it cannot be written.
    """
    if path is not None:
        with writing(option, path):
            write_json(path, record)
