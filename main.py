"""Front door: find the environment, then hand over to the command line (scenarios/command_line/dispatch.py).

It uses the standard library only, in the syntax of Python 3.7: which Python runs it, and what is installed, is not
known yet.
"""

from __future__ import annotations

import os
import signal
import sys  # and no more than these, so that a signal is heard from the start

OLDEST_PYTHON = (3, 11)
NEEDED = ("click", "rich", "pydantic", "yaml", "mlperf_loadgen")  # where one is absent, `make setup` was not
REFUSED, INTERRUPTED = 3, 130  # as in runs/errors.py, which an old Python cannot read

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end(number: int, _frame: object) -> None:
    """Until the command is imported and hears signals itself (runs/interrupts.py), there is nothing to clean up."""
    try:
        os.write(2, f"error: interrupted by {signal.Signals(number).name}\n".encode())
    finally:
        os._exit(INTERRUPTED)


def _open_what_is_closed() -> None:
    """A file that is opened next would take the place of a closed standard stream, and be written to as that."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _have_names_in_utf8() -> None:
    """Start again in UTF-8 mode where a locale or PYTHONUTF8=0 has file names read in another encoding."""
    utf8 = sys.getfilesystemencoding().lower().replace("-", "") == "utf8"
    if not utf8 and os.environ.get("PYTHONUTF8") != "1" and sys.version_info >= (3, 10):  # once: -X utf8=0 wins
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def entry() -> int:
    """The command line of this process."""
    _open_what_is_closed()
    _have_names_in_utf8()
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    code = main(sys.argv[1:], hears_signals=True)
    if code == INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)  # threads of libraries are not waited for
    return code


def main(arguments: list[str], *, hears_signals: bool = False) -> int:
    """Run the command line; returns the exit code. A user's mistake never ends in a traceback."""
    lacking = _lacking()
    if lacking:
        return _go_on_elsewhere(lacking, arguments)
    from pathlib import Path

    here = str(Path(__file__).resolve().parent)
    if here not in sys.path:  # as with PYTHONSAFEPATH
        sys.path.insert(0, here)
    try:
        from runs.listening import listening
        from scenarios.command_line.dispatch import last_words
        from scenarios.command_line.dispatch import main as command_line

        if not hears_signals:
            return command_line(arguments)
        with listening(last_words):
            code = command_line(arguments)
            _keep_outcome(code)
        return code
    except ImportError as error:  # what is installed is broken
        return _go_on_elsewhere(f"cannot import what it needs: {error}", arguments)


def _keep_outcome(code: int) -> None:
    """All output is written: a signal ends the process with the exit code that stands, or changes nothing."""
    import atexit

    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, lambda *_: os._exit(code))

    def ignore() -> None:  # Python is about to restore what signals do by default
        for number in heard:
            signal.signal(number, signal.SIG_IGN)

    atexit.register(ignore)


def _lacking() -> str:
    """What this Python lacks; empty when a command can start."""
    if sys.version_info < OLDEST_PYTHON:
        return f"is Python {sys.version_info[0]}.{sys.version_info[1]}, older than 3.11"
    import importlib.util

    missing = next((name for name in NEEDED if importlib.util.find_spec(name) is None), "")
    return missing and f"has no {missing}"


def _go_on_elsewhere(lacking: str, arguments: list[str]) -> int:
    """Go on with the Python of this checkout's environment; where there is none, say how to make it."""
    from pathlib import Path

    here = Path(__file__).resolve().parent
    environment = here / ".venv"
    python = environment / "bin" / "python"
    inside = Path(sys.prefix).resolve() == environment.resolve()
    if os.access(python, os.X_OK) and not inside:
        print(f"main.py: {sys.executable} {lacking}; going on with {python}", file=sys.stderr, flush=True)
        os.execv(python, [str(python), str(here / "main.py"), *arguments])
    fix = f"make -C {here} {'clean ' if inside else ''}setup"
    print(f"error: {sys.executable} {lacking}\n  fix: {fix}", file=sys.stderr)
    return REFUSED


if __name__ == "__main__":
    sys.exit(entry())
