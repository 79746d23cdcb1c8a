"""The block `mechanism` of a run: what its configuration declares before it starts, and manifest.json keeps.

A configuration is refused where a row would only be marked: before a run there is still time to mend it.
"""

from pathlib import Path
from typing import Any

from pydantic import ConfigDict, RootModel, model_validator

from compliance.mechanisms.declaration import (
    FIELDS,
    SUPPORT_STATUS,
    SUPPORT_STATUSES,
    coerced,
    is_empty,
    read_declaration_file,
)
from compliance.mechanisms.technique_registry import BASELINE, NO_VARIANT

OPTION = "--mechanism"
_FILES = (".yaml", ".yml")


class MechanismBlock(RootModel[dict[str, Any]]):
    """The fields that were given, `mechanism` and `mechanism_variant` always.

    Made from a mapping of fields, from `MECHANISM` or `MECHANISM/VARIANT`, or from the path of a YAML declaration.

    Raises:
        ValidationError: a field that there is not, or a value that its field cannot hold.
        InputError: the YAML file cannot be read.
    """

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: object) -> dict[str, Any]:
        if isinstance(given, MechanismBlock):
            return given.root
        if isinstance(given, str):
            given = _of_text(given)
        if not isinstance(given, dict):
            raise ValueError("give MECHANISM/VARIANT, a YAML file, or a block of fields")
        return _checked({str(key).replace("-", "_"): value for key, value in given.items()})


def _of_text(text: str) -> dict[str, Any]:
    if text.endswith(_FILES):
        fields, status = read_declaration_file(Path(text), OPTION)
        return fields | ({SUPPORT_STATUS: status} if status else {})
    names = [part.strip() for part in text.split("/")]
    if len(names) > 2 or not all(names):
        raise ValueError(f"neither MECHANISM/VARIANT nor a file that ends in {' or '.join(_FILES)}")
    return dict(zip(("mechanism", "mechanism_variant"), names, strict=False))


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    block: dict[str, Any] = {"mechanism": BASELINE, "mechanism_variant": NO_VARIANT}
    status = given.pop(SUPPORT_STATUS, None)
    if not is_empty(status) and status not in SUPPORT_STATUSES:
        raise ValueError(f"support_status {status!r} is none of {', '.join(SUPPORT_STATUSES)}")
    for entry in FIELDS:
        value, issue = coerced(entry, given.pop(entry.name, None))
        if issue:
            raise ValueError(issue.partition(";")[0])
        if value is not None:
            block[entry.name] = value
    if given:
        known = ", ".join((*(entry.name for entry in FIELDS), SUPPORT_STATUS))
        raise ValueError(f"there is no field {next(iter(given))!r}; fields: {known}")
    return block | ({} if is_empty(status) else {SUPPORT_STATUS: status})
