"""Program entry: find the environment, then start the command line (scenarios/dispatch.py).

This file uses only the standard library and the syntax of Python 3.7, because the Python version and the installed
packages are unknown at this point.
"""

from __future__ import annotations

import os
import signal
import sys  # Further imports would delay the handling of signals.

OLDEST_PYTHON = (3, 11)
NEEDED = ("click", "rich", "pydantic", "yaml", "mlperf_loadgen")  # packages that `make setup` installs
REFUSED, INTERRUPTED = 3, 130  # Exit codes of runs/errors.py, which an old Python cannot import.

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end(number: int, _frame: object) -> None:
    """End the process at once. Later, runs/processes/interrupts.py handles signals and cleans up."""
    try:
        os.write(2, f"error: interrupted by {signal.Signals(number).name}\n".encode())
    finally:
        os._exit(INTERRUPTED)


def _open_what_is_closed() -> None:
    """Open the null device for each closed standard stream, so that no file gets its descriptor."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _have_names_in_utf8() -> None:
    """Restart in UTF-8 mode if a locale or PYTHONUTF8=0 selects another encoding for file names."""
    utf8 = sys.getfilesystemencoding().lower().replace("-", "") == "utf8"
    if not utf8 and os.environ.get("PYTHONUTF8") != "1" and sys.version_info >= (3, 10):  # -X utf8=0 prevails.
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _keep_typed_words() -> None:
    """Keep the words with which the user started this program, for messages (PROGRAM of runs/harness.py)."""
    words = getattr(sys, "orig_argv", [])[:2]
    if len(words) == 2 and words[1].split("/")[-1] == "main.py" and " " not in "".join(words):
        os.environ.setdefault("MLPERF_LLAMA_VLLM_PROGRAM", " ".join(words))


def entry() -> int:
    """Run the command line of this process; return the exit code."""
    _open_what_is_closed()
    _have_names_in_utf8()
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP.
            signal.signal(number, _end)
    _keep_typed_words()
    code = main(sys.argv[1:], hears_signals=True)
    if code == INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)  # Do not wait for threads of libraries.
    return code


def main(arguments: list[str], *, hears_signals: bool = False) -> int:
    """Run the command line and return the exit code. Every failure is reported without a traceback."""
    lacking = _lacking()
    if lacking:
        return _go_on_elsewhere(lacking, arguments)
    from pathlib import Path

    here = str(Path(__file__).resolve().parent)
    if here not in sys.path:  # PYTHONSAFEPATH leaves this directory out.
        sys.path.insert(0, here)
    try:
        from runs.processes.listening import listening
        from scenarios.dispatch import last_words
        from scenarios.dispatch import main as command_line

        if not hears_signals:
            return command_line(arguments)
        with listening(last_words):
            code = command_line(arguments)
            _keep_outcome(code)
        return code
    except ImportError as error:  # An installed package is broken.
        return _go_on_elsewhere(f"import failed: {error}", arguments)


def _keep_outcome(code: int) -> None:
    """Keep the exit code after all output is written: a later signal ends the process with this code or is ignored."""
    import atexit

    handled = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        signal.signal(number, lambda *_: os._exit(code))

    def ignore() -> None:  # At exit, Python restores the default effect of signals.
        for number in handled:
            signal.signal(number, signal.SIG_IGN)

    atexit.register(ignore)


def _lacking() -> str:
    """Return what is missing in this Python; empty if a command can start."""
    if sys.version_info < OLDEST_PYTHON:
        return f"Python {sys.version_info[0]}.{sys.version_info[1]} is older than 3.11"
    import importlib.util

    missing = next((name for name in NEEDED if importlib.util.find_spec(name) is None), "")
    return missing and f"package {missing} is missing"


def _go_on_elsewhere(lacking: str, arguments: list[str]) -> int:
    """Continue with the Python of this checkout's environment; without it, print the command that builds it."""
    from pathlib import Path

    here = Path(__file__).resolve().parent
    environment = here / ".venv"
    python = environment / "bin" / "python"
    inside = Path(sys.prefix).resolve() == environment.resolve()
    if os.access(python, os.X_OK) and not inside:
        print(f"main.py: {sys.executable}: {lacking}; continuing with {python}", file=sys.stderr, flush=True)
        os.execv(python, [str(python), str(here / "main.py"), *arguments])
    fix = f"make -C {here} {'clean ' if inside else ''}setup"
    if (here / "__init__.py").exists():
        fix = "pip install --force-reinstall . in a clone of the harness"  # in a wheel, which is on no registry
    print(f"error: {sys.executable}: {lacking}\n  fix: {fix}", file=sys.stderr)
    return REFUSED


if __name__ == "__main__":
    sys.exit(entry())
