"""Types of fields in files and options, checked by pydantic."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat
from pydantic.config import JsonDict

from runs.errors import ExitCode

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Text = Annotated[str, Field(pattern=r"\S")]
Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
Pid = Annotated[int, Field(ge=1, lt=2**31)]
Nanoseconds = Annotated[int, Field(ge=0, lt=2**62)]  # ns since 1970, up to the year 2116
Amount = Annotated[FiniteFloat, Field(ge=0)]
Versions = dict[str, Text]
OurExitCode = Annotated[int, AfterValidator(lambda code: int(ExitCode(code)))]


def strictly(extra: Literal["forbid", "allow"] = "forbid", *, frozen: bool = True) -> ConfigDict:
    """Return a configuration with strict types and without NaN; `extra` decides about unknown fields.

    Schemas are built on first use, because a command uses few of the schemas that it imports.
    """
    return ConfigDict(
        extra=extra, frozen=frozen, strict=True, allow_inf_nan=False, protected_namespaces=(), defer_build=True
    )


class StrictModel(BaseModel):
    """A part of a JSON file; every field must be in the file."""

    model_config = strictly()


def option_field(
    default: Any,
    help: str,
    group: str,
    metavar: str | None = None,
    example: str = "",
    group_title: str = "",
    **limits: Any,
) -> Any:
    """Return a field that is an option on the command line, a key of a YAML file and an entry of the manifest.

    Args:
        example: Typical value, for the fix of a mistake. Default: a limit or the default, if the option is a number.
        group_title: Title of the group in help texts; "" for a group of scenarios/command_line/command.py.
        limits: Limits as for pydantic's Field (ge, gt, …).
    """
    extra: JsonDict = {"group": group, "metavar": metavar or "", "example": example, "group_title": group_title}
    return Field(default, description=help, json_schema_extra=extra, **limits)


def options_in(group: str, title: str = "") -> Callable[..., Any]:
    """Return `option_field` for a group of options, with the arguments help, metavar, default (None) and others.

    Args:
        title: Title of a group that belongs to one engine.
    """

    def field(help: str, metavar: str | None = None, default: Any = None, **others: Any) -> Any:
        return option_field(default, help, group, metavar, group_title=title, **others)

    return field
