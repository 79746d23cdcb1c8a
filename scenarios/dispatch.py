"""The command line: it finds and runs a command, and turns a failure into a message and an exit code."""

import difflib
import errno
import importlib
import os
import sys
import traceback
from pathlib import Path

import click
from click.shell_completion import CompletionItem, shell_complete

from runs.errors import Ending, ExecutionError, ExitCode, InputError, Interrupted, SetupError
from runs.harness import HARNESS_VERSION, INSTALL, NAME, PROGRAM
from runs.processes import listening
from scenarios.command_line import command_output
from scenarios.command_line.command import unknown_option
from scenarios.command_line.command_output import take_output_options
from scenarios.commands import COMMAND_GROUPS, COMMANDS
from scenarios.verbosity import engine_log_shown, is_verbose

COMPLETED, COMPLETION = "mlperf-llama-vllm", "_MLPERF_LLAMA_VLLM_COMPLETE"  # program and variable of a completion
HELP_BEFORE = f"""Usage: {NAME} [COMMAND] [OPTIONS]   A first result on any machine: {NAME} --scenario Server --vllm
Run MLPerf Inference benchmarks on vLLM with MLCommons' LoadGen, and check the results. Commands:
"""
HELP_AFTER = "Every command has --help, --json (output as JSON), -q (errors only), -v and -vv (details)."
_json_for: list[str] = []  # the command in progress, if its output is JSON


class BrokenInstallationError(ImportError):
    """A command's module cannot be imported; main.py may continue with another Python."""


class _Commands(click.Group):
    """The group of all commands. It imports only the requested command, so that a run starts early."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; the default command is `run`."""
        is_run = not args or (args[0].startswith("-") and args[0] not in ("--help", "-h", "--version"))
        return super().parse_args(ctx, ["run", *args] if is_run and not ctx.resilient_parsing else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            raise InputError(
                f"{args[0]}: unknown command",
                f"did you mean {near[0]!r}?" if near else f"commands: {', '.join(COMMANDS)}",
            )
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            command: click.Command = getattr(importlib.import_module(f"scenarios.commands.{cmd_name}"), cmd_name)
        except ImportError as error:
            raise BrokenInstallationError(str(error)) from error
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands and options without importing the commands. click itself would import them."""
        items = [
            CompletionItem(name, help=sentence) for name, sentence in COMMANDS.items() if name.startswith(incomplete)
        ]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by group, on one screen, without importing them. click itself would import them."""
        formatter.write(f"{HELP_BEFORE}\n")
        for group, commands in COMMAND_GROUPS.items():
            for name, sentence in commands.items():
                formatter.write(f"  {'' if name != next(iter(commands)) else group:<10}{name:<10}{sentence}\n")
        formatter.write(f"{HELP_AFTER}\n")


@click.group(
    cls=_Commands,
    context_settings={"max_content_width": 100, "token_normalize_func": lambda name: name.replace("_", "-")},
)
@click.version_option(HARNESS_VERSION, prog_name=COMPLETED)
def cli() -> None: ...


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit code. Every failure is reported without a traceback.

    Raises:
        BrokenInstallationError: If the command cannot be imported.
    """
    if shell := os.environ.get(COMPLETION):
        return shell_complete(cli, {}, COMPLETED, COMPLETION, shell)
    with command_output.steady_output() as output:
        code = _run(arguments)
    listening.outcome_stands()
    if output.error is not None and output.error.errno not in command_output.READER_GONE:
        print(f"error: standard output cannot be written: {output.error.strerror}", file=sys.stderr)
        return code or ExitCode.FAILED
    return code


def _run(arguments: list[str]) -> int:
    """Run a command with output as text or JSON; return its exit code."""
    command_output.begin()
    output, words = take_output_options(arguments)
    name = words[0] if words and not words[0].startswith("-") else "run"
    command = name if name in COMMANDS else ""
    if output.is_json:
        _json_for[:] = [command]
    with (
        engine_log_shown(output.verbosity),
        command_output.prose(output.is_quiet, command if output.is_json else None),
    ):
        code, failure = _outcome(words)
    _json_for.clear()
    if output.is_json:
        print(command_output.document(command, code, failure))
    return code


def last_words(error: Interrupted) -> None:
    """Write the closing output of `_run` when a signal ends the process at once."""
    listening.write_to_stderr(error)
    for command in _json_for:
        os.write(1, f"{command_output.document(command, error.exit_code, error)}\n".encode())


def _readable(arguments: list[str]) -> list[str]:
    """Return the arguments. Refuse an argument that is not UTF-8, because the output files are UTF-8."""
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            shown = word.encode("utf-8", "backslashreplace").decode()
            raise InputError(f"{shown}: not UTF-8", "rename the file; in locale C, set PYTHONUTF8=1") from error
    return arguments


def _outcome(arguments: list[str]) -> tuple[int, Ending | None]:
    """Run a command and print its error; return the exit code and the error."""
    try:
        code = cli.main(_readable(arguments), standalone_mode=False, prog_name=NAME)
        return int(code or ExitCode.OK), None
    except SystemExit:
        raise
    except BaseException as error:  # Python's own exit code 1 would mean a negative verdict.
        harness_error = _known(error)
        if isinstance(error, BrokenInstallationError) and not isinstance(harness_error, Interrupted):
            raise
        rule = f"\n  rule: {harness_error.cause}" if "/" in harness_error.cause else ""
        print(f"error: {harness_error}{rule}", file=sys.stderr)
        return harness_error.exit_code, harness_error


def _known(error: BaseException) -> Ending:
    if isinstance(error, Ending):
        return error
    if isinstance(error, click.NoSuchOption):
        return unknown_option(error, error.ctx or click.Context(cli))
    if isinstance(error, click.ClickException):
        command_path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else NAME
        return InputError(error.format_message(), f"see `{PROGRAM}{command_path.removeprefix(NAME)} --help`")
    if isinstance(error, OSError):
        return ExecutionError(str(error), _fix(error))
    if isinstance(error, MemoryError):
        return ExecutionError("not enough memory", "free memory, or raise the limit with ulimit -v")
    if isinstance(error, ImportError):
        return SetupError(f"{sys.executable}: import failed: {error}", INSTALL.replace("make", "make clean"))
    if is_verbose():
        traceback.print_exception(error)
    at = traceback.extract_tb(error.__traceback__)[-1]
    return ExecutionError(
        f"{type(error).__name__}: {error} ({at.filename}:{at.lineno})",
        "report this message and the command as a defect of the harness; -v shows details",
    )


def _fix(error: OSError) -> str:
    """Return the fix for an error of the operating system that no caller handled."""
    if error.filename is None and error.errno == errno.ENOENT:
        try:
            return f"set TMPDIR to a writable directory ({Path.cwd()} is not writable either)"
        except OSError:
            return "change to an existing directory; the working directory was removed"
    return {
        errno.ENOSPC: "free disk space, or give a directory on another disk",
        errno.EDQUOT: "free disk space, or give a directory on another disk",
        errno.EFBIG: "raise the limit on the file size: ulimit -f unlimited",
        errno.EACCES: "give a path with permission to read and write",
        errno.EROFS: "give a path on a writable file system",
        errno.EMFILE: "allow more open files: ulimit -n 4096",
        errno.ENOMEM: "free memory",
    }.get(error.errno or 0, "check the file in this message; if it was removed during the command, start again")
