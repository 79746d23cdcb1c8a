"""Types of fields in the files that a leg leaves behind: of one type, finite, within bounds."""

from typing import Annotated, Literal

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
    """How parts of a record are read: no other types, no NaN, and no field that is not named unless `extra` allows."""
    return ConfigDict(extra=extra, frozen=frozen, strict=True, allow_inf_nan=False, protected_namespaces=())


class Part(BaseModel):
    """A part of a record; every field must be in the file."""

    model_config = strictly()
