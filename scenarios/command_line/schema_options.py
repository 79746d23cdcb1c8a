"""Command-line options that are generated from pydantic schemas."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import click

from runs.errors import InputError
from scenarios.command_line.command import PATH, GroupedOption
from scenarios.spellings import ACCEPTED
from sut.http.secret_options import SECRET_FIELDS, without_secrets

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


def options_of(
    schema: "type[BaseModel]",
    without: Collection[str] = (),
    changed: Mapping[str, Mapping[str, Any]] = {},
    spellings: Mapping[str, Sequence[str]] = ACCEPTED,
) -> list[click.Parameter]:
    """Return one option per field. Options that are not given have no value, so the schema sets the defaults.

    The values are texts and paths, so that the schema finds all wrong values together.

    Args:
        without: Fields without an option.
        changed: Field → replacements of the schema's `help`, `metavar` or `type`.
        spellings: Field → other spellings of its option.
    """
    fields = {name: field for name, field in schema.model_fields.items() if name not in without}
    return [_option(name, field, changed.get(name, {}), spellings.get(name, ())) for name, field in fields.items()]


def _option(name: str, field: "FieldInfo", changed: Mapping[str, Any], spellings: Sequence[str]) -> click.Option:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    flags = ["--"[: len(spelling)] + spelling.replace("_", "-") for spelling in (name, *spellings)]
    metavar = str(extra.get("metavar") or "") or None
    kind = _without_none(field.annotation)
    settings: dict[str, Any] = {"help": field.description, "metavar": metavar, "default": None}
    if kind is bool:
        settings.update(is_flag=True, flag_value=True, metavar=None, type=bool)
    elif get_origin(kind) is Literal:
        settings.update(type=str, metavar=metavar or "|".join(get_args(kind)))
    elif get_origin(kind) is dict:
        settings.update(type=str, multiple=True, callback=_pairs)
    else:
        settings.update(type=PATH if kind is Path else str, multiple=get_origin(kind) is list)
    group, title = (str(extra.get(key) or "") for key in ("group", "group_title"))
    return GroupedOption([name, *flags], group=group, group_title=title, **{**settings, **changed})


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        (kind,) = [part for part in get_args(annotation) if part is not type(None)]
        return kind
    return annotation


def given_values(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the given options, as the schema accepts them."""
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in parsed.items()}
    return without_secrets({name: value for name, value in values.items() if value not in (None, [])})


def words_without_secrets(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with references instead of values that may be secret."""
    spelled = {name: field for field in SECRET_FIELDS for name in (field, *ACCEPTED[field])}
    shown: list[str] = []
    waiting = ""  # field whose value is the next word
    for word in words:
        option, equals, value = word.partition("=")
        if word.startswith("-H") and word != "-H":  # `-HNAME=VALUE`
            option, equals, value = "-H", "", word[2:]
        field = spelled.get(option.lstrip("-").replace("-", "_"), "") if word.startswith("-") and not waiting else ""
        if waiting or (value and field):
            reference = without_secrets({waiting or field: value if field else word})[waiting or field]
            shown.append(option * bool(field) + equals * bool(field) + "".join(reference))
        else:
            shown.append(word)
        waiting = field if field and not value else ""
    return shown


def _pairs(_: click.Context, option: click.Parameter, texts: Sequence[str] | None) -> dict[str, Any] | None:
    """Return KEY=VALUE texts as a dictionary; None without texts.

    Raises:
        InputError: If a text has no `=`, or a key is given twice.
    """
    pairs: dict[str, Any] = {}
    flag = option.opts[0]
    for text in texts or ():
        key, equals, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise InputError(f"{flag} {text}: not of the form KEY=VALUE", f"write, for example, {flag} max_num_seqs=64")
        if key in pairs:
            raise InputError(f"{flag} {key}: given twice ({pairs[key]!r} and {value!r})", f"give {key} once")
        pairs[key] = parse_value(value)
    return pairs or None


def parse_value(text: str) -> Any:
    """Parse a value from the command line: JSON, or Python's words for booleans and None, otherwise the text itself."""
    words = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}
    if text in words:
        return words[text]
    try:
        return json.loads(text)
    except ValueError:
        return text


def config_option(what: str = "YAML file with options as keys.") -> click.Option:
    """Return the option `--config` with the help text `what`."""
    return GroupedOption(["--config"], type=PATH, metavar="FILE", help=what)


def dry_run_option() -> click.Option:
    """Return `--dry-run`, an option of every command that starts runs."""
    return click.Option(
        ["--dry-run"], is_flag=True, help="Check the options and show the plan. Start no run and write no file."
    )
