"""Command lines as the documentation and the help have them: do they parse, down to the values?"""

import click
from pydantic import BaseModel

from runs.errors import InputError
from scenarios.audit.config import AuditOptions
from scenarios.command_line import answer
from scenarios.command_line.command import given_values
from scenarios.command_line.dispatch import cli
from scenarios.leg.config import RunConfig
from scenarios.tune.config import TuneOptions

SCHEMAS: dict[str, tuple[type[BaseModel], ...]] = {
    "run": (RunConfig,),
    "audit": (RunConfig, AuditOptions),
    "tune": (RunConfig, TuneOptions),
}


def parse(words: list[str]) -> str:
    """Parse what follows `main.py`, running nothing.

    Returns:
        The command's name.

    Raises:
        click.ClickException, InputError, pydantic.ValidationError: it would be refused.
    """
    words = [word for word in words if word not in (*answer.QUIET, *answer.VERBOSE)]
    if answer.asked_for(words):
        words.remove(answer.FLAG)
    above = cli.make_context("main.py", words)
    name, command, rest = cli.resolve_command(above, [*above._protected_args, *above.args])
    assert name is not None
    assert command is not None
    if "--help" in rest or "--help-all" in rest:
        return name
    context = command.make_context(name, rest, parent=above)
    if isinstance(command, click.Group):
        inner_name, inner, inner_rest = command.resolve_command(context, [*context._protected_args, *context.args])
        if inner is None:
            raise InputError(f"{name} {inner_name}: there is no such command", "")
        inner.make_context(inner_name, inner_rest, parent=context)
    for schema in SCHEMAS.get(name, ()):
        parsed = {key: value for key, value in context.params.items() if key in schema.model_fields}
        given = {key: value for key, value in given_values(schema, parsed).items() if value is not False}
        needed = (
            {"scenario": "Offline"} if schema is RunConfig else {"test": "TEST06"} if schema is AuditOptions else {}
        )
        schema.model_validate({**needed, **given})
    return name
