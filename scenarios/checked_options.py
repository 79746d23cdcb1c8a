"""Options that a schema declares: the check of their values, and the report of all mistakes together."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from runs.files.yaml_keys import line_of_key
from runs.mistakes import Mistakes
from scenarios.spellings import field_and_key
from sut.http.secret_options import SECRET_FIELDS

_BOUNDS = {
    "greater_than": "above",
    "greater_than_equal": "at least",
    "less_than": "below",
    "less_than_equal": "at most",
}
# Kind of error in pydantic → rule that the value violates.
_RULES = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), "must be a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "must be a number"),
    "finite_number": "must be a finite number",
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "path_type": "must be a path",
    "dict_type": "must have keys and values",
    "list_type": "must be a list",
}
OptionsT = TypeVar("OptionsT", bound=BaseModel)


class CheckedOptions(BaseModel):
    """Options of a command. They refuse values that pydantic would convert."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_stand_ins(cls, value: object, info: ValidationInfo) -> object:
        """Refuse values that pydantic would convert: an empty text to a path, true to the number 1."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        kinds = [annotation, *get_args(annotation)]
        if isinstance(value, str | Path) and "\0" in str(value):
            raise ValueError("contains a null byte")
        if value == "" and (Path in kinds or str in kinds):
            raise ValueError("empty value; check for an unset shell variable")
        if isinstance(value, bool) and (int in kinds or float in kinds):
            raise ValueError("must be a number")
        return value


def checked(schema: type[OptionsT], values: dict[str, Any], fix: str, file: Path | None = None) -> OptionsT:
    """Validate values from the command line and a YAML file with their schema.

    Args:
        values: The values; keys from a file carry their line number.
        file: The file with all the values; None if some are from the command line.

    Raises:
        InputError: If values are wrong; the message names each key, its value and the allowed values.
    """
    mistakes = Mistakes()
    return mistakes.accept(check_options(mistakes, schema, values, fix, file))


def check_options(
    mistakes: Mistakes, schema: type[OptionsT], values: dict[str, Any], fix: str, file: Path | None = None
) -> OptionsT | None:
    """Return the values as options without the wrong values, which are added to the mistakes; None if one is missing.

    Args:
        values: The values; keys from a file carry their line number.
        file: The file with all the values; None if some are from the command line.
    """
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        problems = error.errors()
    for problem in problems:
        mistakes.add(*_mistake(problem, values, schema, file, fix))
    wrong = {name for problem in problems for name in problem["loc"][:1]}
    try:
        return schema.model_validate({key: value for key, value in values.items() if key not in wrong})
    except ValidationError:
        return None


def _mistake(
    problem: Any, values: dict[str, Any], schema: type[BaseModel], file: Path | None, fix: str
) -> tuple[str, str]:
    """Return the text of a mistake, and what to type."""
    name, *deeper = [str(part) for part in problem["loc"] if part != "[key]"] or [""]
    place = line_of_key(values, name) or (str(file) if file else "")
    key = ": ".join([place, name, *deeper]) if place else "--" + name.replace("_", "-")
    field = schema.model_fields.get(name)
    name = (deeper or [name])[-1]
    if problem["type"] == "extra_forbidden":
        return _unknown(key, name, schema, place, fix)
    typed = f"{name}: " if place else f"{key} "
    allowed = _allowed(field) if field is not None and not deeper else ()
    example = allowed[0] if allowed else _example(field, problem) if field is not None and not deeper else ""
    if example:
        fix = f"write, for example, {typed}{example}"
    if problem["type"] == "missing":
        return f"{key}: missing", f"give {typed}{'|'.join(allowed) or example}".rstrip() if allowed or example else fix
    value = "" if name in SECRET_FIELDS or problem.get("input") == "" else f" {problem.get('input')!s:.80}"
    if allowed and (near := difflib.get_close_matches(str(problem.get("input")), allowed, 1, cutoff=0.5)):
        fix = f"did you mean {typed}{near[0]}?"
    return f"{key}{value}: {_rule(problem, allowed)}", fix


def _unknown(key: str, name: str, schema: type[BaseModel], place: str, fix: str) -> tuple[str, str]:
    text, (field, pair) = f"{key}: unknown {'key' if place else 'option'}", field_and_key(name)
    if field in schema.model_fields:
        return f"{text}; here: {field}" + (f": {{{pair}: VALUE}}" if pair else ""), f"write {field}"
    if near := difflib.get_close_matches(name, schema.model_fields, 1):
        return f"{text}; did you mean {near[0]}?", f"write {near[0]}, or remove {name}"
    return text, fix


def _allowed(field: FieldInfo) -> tuple[str, ...]:
    """Return the values of an option with few values; none for other options."""
    kinds = [field.annotation, *get_args(field.annotation)]
    values = next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    choices = str(extra.get("metavar") or "")
    return tuple(map(str, values)) or (tuple(choices.split("|")) if choices.islower() and "|" in choices else ())


def _example(field: FieldInfo, problem: Any) -> str:
    """Return a value that an option accepts; an empty text if no value is typical."""
    default = field.get_default(call_default_factory=True)
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    if extra.get("example"):
        return str(extra["example"])
    if not {int, float} & {field.annotation, *get_args(field.annotation)}:
        return str(extra.get("metavar") or "") if problem["loc"][0] in SECRET_FIELDS else ""
    bounds = [value for name, value in (problem.get("ctx") or {}).items() if name in ("ge", "le") and value >= 1]
    return f"{next(iter(bounds), default or 1):g}"


def _rule(problem: Any, allowed: Sequence[str]) -> str:
    """Return the rule that a value violates, without the words of pydantic."""
    kind, context = str(problem["type"]), problem.get("ctx") or {}
    if kind == "literal_error" and allowed:
        return f"must be one of {', '.join(allowed)}"
    for name, words in _BOUNDS.items():
        if kind == name:
            return f"must be {words} {next(iter(context.values())):g}"
    return _RULES.get(kind) or str(problem["msg"]).removeprefix("Value error, ")
