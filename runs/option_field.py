"""A field of a schema from which the command line, the YAML file and the manifest are made."""

from typing import Any

from pydantic import Field


def option_field(default: Any, help: str, group: str, metavar: str | None = None, **limits: Any) -> Any:
    """A pydantic field with what `--help` says of it; `limits` as pydantic's Field takes them (ge, gt, …)."""
    return Field(default, description=help, json_schema_extra={"group": group, "metavar": metavar or ""}, **limits)
