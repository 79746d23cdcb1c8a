"""The command line: find the command, run it, turn what went wrong into a message and an exit code."""

import errno
import importlib
import os
import sys
import traceback
from pathlib import Path

import click
from click.shell_completion import shell_complete

from runs.environment import HARNESS_VERSION
from runs.errors import ExecutionError, ExitCode, HarnessError, InputError, Interrupted, SetupError
from scenarios.command_line import answer
from scenarios.command_line.output import READER_GONE, steady_output
from scenarios.command_line.schema import normalise
from scenarios.console import engine_log_shown, is_verbose

PROGRAM, COMPLETION = "mlperf-llama-vllm", "_MLPERF_LLAMA_VLLM_COMPLETE"  # click's name for what a shell asks

# Each is the object of its name in `scenarios/commands/<name>.py`.
COMMANDS = [
    "anchor",
    "audit",
    "campaign",
    "check",
    "doctor",
    "gate",
    "init",
    "quantize",
    "report",
    "results",
    "run",
    "signoff",
    "status",
    "store",
    "submit",
    "tune",
    "verify",
]


class _Commands(click.Group):
    """Imports a command's module when the command is asked for: the start of a leg does not wait for the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return COMMANDS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = getattr(importlib.import_module(f"scenarios.commands.{cmd_name}"), cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first sentence of each command's help, whole; click would cut it to a line."""
        with formatter.section("Commands (more: `python main.py COMMAND --help`)"):
            formatter.write_dl([(name, _first_sentence(self.get_command(ctx, name))) for name in COMMANDS])


def _first_sentence(found: click.Command | None) -> str:
    text = " ".join((found.help or "").split()) if found else ""
    return text[: end + 1] if (end := text.find(". ")) >= 0 else text


@click.group(
    cls=_Commands,
    context_settings={"max_content_width": 100},
    help="MLPerf Inference with the official LoadGen and vLLM: Llama-3.1-8B on CNN-DailyMail, Llama-2-70B on OpenOrca."
    "\n\n"
    "A first result, on any machine: `python main.py --scenario Server --vllm`. The default command is `run`.\n\n"
    "Every command takes --json (one JSON object on standard output, also for errors; messages go to standard error), "
    "-q (errors only) and -v, --verbose (details and the engine's log; -vv with its debug messages).",
)
@click.version_option(HARNESS_VERSION, prog_name=PROGRAM)
def cli() -> None: ...


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit code. A user's mistake never ends in a traceback."""
    if asked := os.environ.get(COMPLETION):
        return shell_complete(cli, {}, PROGRAM, COMPLETION, asked)
    with steady_output() as output:
        code = _run(arguments)
    if output.error is not None and output.error.errno not in READER_GONE:
        print(f"error: the standard output cannot be written: {output.error.strerror}", file=sys.stderr)
        return code or ExitCode.FAILED
    return code


def _run(arguments: list[str]) -> int:
    """Run a command as people or programs want to hear of it."""
    answer.begin()
    try:
        plain = normalise(_readable(arguments), COMMANDS, "run")
    except HarnessError as error:
        code, why = _told(error)
        if answer.FLAG in arguments:
            print(answer.document("", code, why))
        return code
    quiet = any(word in plain for word in answer.QUIET)
    verbosity = max((answer.VERBOSE.get(word, 0) for word in plain), default=0)
    as_json = answer.asked_for(plain) and not _has_own_json(plain[0])
    plain = [word for word in plain if word not in (*answer.QUIET, *answer.VERBOSE)]
    if as_json:
        plain.remove(answer.FLAG)
    with engine_log_shown(verbosity):
        if not as_json and not quiet:
            code, failure = _outcome(plain)
            as_json = failure is not None and answer.FLAG in plain and _has_own_json(plain[0])
        else:
            with answer.no_prose(quiet):
                code, failure = _outcome(plain)
    if as_json:
        print(answer.document(plain[0], code, failure))
    return code


def _readable(arguments: list[str]) -> list[str]:
    """The arguments, unless one could not be written into a record, which is UTF-8."""
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            shown = word.encode("utf-8", "backslashreplace").decode()
            raise InputError(f"{shown}: this is not UTF-8", "rename it; in locale C, set PYTHONUTF8=1") from error
    return arguments


def _has_own_json(name: str) -> bool:
    """Whether the command has an answer of its own form; a mistake is told in the common one."""
    found = cli.get_command(click.Context(cli), name)
    return found is not None and any(
        isinstance(option, click.Option) and option.is_flag and answer.FLAG in option.opts for option in found.params
    )


def _outcome(arguments: list[str]) -> tuple[int, HarnessError | None]:
    try:
        return int(cli.main(arguments, standalone_mode=False, prog_name="main.py") or ExitCode.OK), None
    except SystemExit:
        raise
    except BaseException as error:  # an exit code of 1, Python's own, would be taken for a verdict
        return _told(error)


def _told(error: BaseException) -> tuple[int, HarnessError]:
    """Say what went wrong, and what exit code that is."""
    known = _known(error)
    print(f"error: {known}", file=sys.stderr)
    return known.exit_code, known


def _known(error: BaseException) -> HarnessError:
    if isinstance(error, HarnessError):
        return error
    if isinstance(error, click.ClickException):
        asked = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "main.py"
        return InputError(error.format_message(), f"see `python {asked} --help`")
    before: BaseException | None = error  # click wraps an interrupt, and an interrupted import may raise anything
    while before is not None:
        if isinstance(before, Interrupted):
            return before
        if isinstance(before, KeyboardInterrupt):
            return Interrupted(f"interrupted by {str(before) or 'SIGINT'}")
        before = before.__context__
    if isinstance(error, OSError):
        return ExecutionError(str(error), _fix(error))
    if isinstance(error, MemoryError):
        return ExecutionError("not enough memory", "free memory, or raise the limit (ulimit -v)")
    if isinstance(error, ImportError):
        return SetupError(f"{sys.executable} cannot import what it needs: {error}", "run `make clean setup`")
    if is_verbose():
        traceback.print_exception(error)
    at = traceback.extract_tb(error.__traceback__)[-1]
    return ExecutionError(
        f"{type(error).__name__}: {error} ({at.filename}:{at.lineno})",
        "this is a defect of the harness: report this message and the command; -v shows more",
    )


def _fix(error: OSError) -> str:
    """What to do about an error of the operating system that nobody closer to it has explained."""
    if error.filename is None and error.errno == errno.ENOENT:
        try:
            return f"set TMPDIR to a directory that can be written ({Path.cwd()} is none either)"
        except OSError:
            return "the working directory is gone: change to one that exists"
    return {
        errno.ENOSPC: "free disk space, or name a directory on another disk",
        errno.EDQUOT: "free disk space, or name a directory on another disk",
        errno.EFBIG: "raise the limit on the size of a file: ulimit -f unlimited",
        errno.EACCES: "name a place that you may read and write",
        errno.EROFS: "name a place that can be written",
        errno.EMFILE: "allow more open files: ulimit -n 4096",
        errno.ENOMEM: "free memory",
    }.get(error.errno or 0, "look at what the message names; if it was removed meanwhile, start again")
