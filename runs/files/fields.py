"""Types of fields in files and options, checked by pydantic."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat

from runs.errors import ExitCode

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Text = Annotated[str, Field(pattern=r"\S")]
Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
Pid = Annotated[int, Field(ge=1, lt=2**31)]
Nanoseconds = Annotated[int, Field(ge=0, lt=2**62)]  # since 1970, to the year 2116
Amount = Annotated[FiniteFloat, Field(ge=0)]
Versions = dict[str, Text]
OurExitCode = Annotated[int, AfterValidator(lambda code: int(ExitCode(code)))]


def strictly(extra: Literal["forbid", "allow"] = "forbid", *, frozen: bool = True) -> ConfigDict:
    """Strict types and no NaN; unknown fields are refused unless `extra` allows them.

    As everywhere here, schemas are built when they are first used: a command uses few of those that it imports.
    """
    return ConfigDict(
        extra=extra, frozen=frozen, strict=True, allow_inf_nan=False, protected_namespaces=(), defer_build=True
    )


class StrictModel(BaseModel):
    """A part of a record; every field must be in the file."""

    model_config = strictly()


def option_field(default: Any, help: str, group: str, metavar: str | None = None, **limits: Any) -> Any:
    """A field that is an option of the command line, a key of a YAML file and an entry of the manifest.

    Args:
        limits: as pydantic's Field takes them (ge, gt, …).
    """
    return Field(default, description=help, json_schema_extra={"group": group, "metavar": metavar or ""}, **limits)
