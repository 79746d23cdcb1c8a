"""The commands in the documentation: the fenced blocks as a shell reads them, and their validity."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from pydantic import BaseModel

from runs.errors import InputError
from scenarios.audit.audit_config import all_options, load_audit
from scenarios.command_line.command_output import take_output_options
from scenarios.command_line.schema_options import given_values
from scenarios.dispatch import cli
from scenarios.launch.run_config import RunConfig
from scenarios.tune.tune_config import TuneOptions
from tests.conftest import ROOT

FRONT = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "tools/README.md",
    "tools/gpu/README.md",
)
WORKED_EXAMPLE = ROOT / "docs/add-an-audit.md"  # example with missing files; tests/test_audit_pages.py runs it
DOCUMENTS = [*(ROOT / name for name in FRONT), *sorted({*(ROOT / "docs").glob("*.md")} - {WORKED_EXAMPLE})]
SHELL = ("", "sh", "bash")
OTHER = ("text", "yaml", "python")
KEYWORDS = ("do", "then", "else")


@dataclass(frozen=True)
class CommandLine:
    """One command of a page, with the variables that the page sets."""

    page: str
    line: int
    words: tuple[str, ...]

    @property
    def head(self) -> str:
        """The program. Commands of main.py and of Python are named after the program that they run."""
        first = Path(self.words[0]).name
        if first == "python" and len(self.words) > 1:
            return self.words[2] if self.words[1] == "-m" else self.words[1]
        return first

    @property
    def arguments(self) -> list[str]:
        """The words after the program."""
        if Path(self.words[0]).name != "python":
            return list(self.words[1:])
        return list(self.words[3 if self.words[1] == "-m" else 2 :])

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def command_lines(path: Path) -> Iterator[CommandLine]:
    """Return the commands of a page, in order."""
    text = path.read_text()
    variables: dict[str, str] = {}
    for block in re.finditer(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE):
        assert block[2] in SHELL + OTHER, f"{path.name}: a block of {block[2]!r}"
        if block[2] in OTHER:
            continue
        first = text[: block.start(3)].count("\n") + 1
        joined = block[3].replace("\\\n", "\x00")
        for offset, line in _numbered(joined):
            for words in _split(line.replace("\x00", " "), variables):
                yield CommandLine(path.name, first + offset, tuple(words))


def _numbered(joined: str) -> Iterator[tuple[int, str]]:
    number = 0
    for line in joined.splitlines():
        yield number, line
        number += 1 + line.count("\x00")


def _split(line: str, variables: dict[str, str]) -> Iterator[list[str]]:
    line = re.sub(r" > \S+", "", line)  # an output file is not an argument
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for token in lexer:
        if set(token) <= set(";&|()"):
            commands.append([])
        else:
            commands[-1].append(token)
    for words in commands:
        plain = words[1:] if words and words[0] in KEYWORDS else words
        if plain[:1] == ["for"]:
            variables[plain[1]] = plain[3]
        while plain and (assigned := re.fullmatch(r"(\w+)=(.*)", plain[0])):
            variables[assigned[1]] = "MODEL" if assigned[2] == "$" else assigned[2]
            plain = plain[1:]
        filled = [
            word
            for token in plain
            for word in (
                re.sub(r"\$(\w+)", lambda name: variables.get(name[1], name[0]), token).split()
                if "$" in token
                else [token]
            )
        ]
        if filled and filled[0] not in ("for", "done"):
            yield filled


SCHEMAS: dict[str, tuple[type[BaseModel], ...]] = {
    "run": (RunConfig,),
    "audit": (RunConfig, all_options()),
    "tune": (RunConfig, TuneOptions),
}


def parse(words: list[str]) -> str:
    """Parse the words after `main.py` without running the command.

    Returns:
        The name of the command.

    Raises:
        click.ClickException, InputError, pydantic.ValidationError: If the command would refuse the words.
    """
    _, words = take_output_options(words)
    if words == ["--help"]:
        return ""
    above = cli.make_context("main.py", words)
    name, command, rest = cli.resolve_command(above, [*above._protected_args, *above.args])
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
        values = {key: value for key, value in given_values(parsed).items() if value is not False}
        if schema is all_options():
            file = ROOT / (context.params["config"] or "")
            load_audit(file if file.is_file() else None, values, {"scenario": "Offline"})
        else:
            schema.model_validate(values if schema is not RunConfig else {"scenario": "Offline", **values})
    return name
