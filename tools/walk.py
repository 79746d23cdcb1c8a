"""Print the files through which a command gets from an input to the line of a finding.

    .venv/bin/python -m tools.walk RULE COMMAND ARGUMENT…
    .venv/bin/python -m tools.walk perf-duration verify RUN_DIR

The program runs the command in this process. It prints the product's files on the stack at three moments: a file that
the finding names is opened, the finding is made, and its line is made. The command line, which starts every command,
does not count.
"""

import argparse
import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import main as program
from compliance.judge.verdict import Finding
from runs.harness import HARNESS_ROOT

PRODUCT = ("compliance/", "scenarios/", "runs/", "sut/", "qsl/")
COMMANDS = "scenarios/commands/"
Frames = dict[str, list[str]]  # functions on the stack by file, outermost first


@dataclass
class CodePath:
    """The stacks of the first finding of a rule in one run of a command."""

    rule: str
    opened: dict[str, Frames] = field(default_factory=dict)  # by resolved path; the first time that a file is opened
    finding: Finding | None = None
    made: Frames = field(default_factory=dict)
    printed: Frames = field(default_factory=dict)

    def see(self, frame: FrameType, event: str, value: Any) -> None:
        """Note what a function returns. This is a function for `sys.setprofile`."""
        if event != "return":
            return
        if self.finding is None and isinstance(value, Finding) and value.rule == self.rule:
            self.finding, self.made = value, on_stack(frame)
        elif self.finding is not None and not self.printed and isinstance(value, str) and f"{self.rule}:" in value:
            self.printed = on_stack(frame)

    def see_open(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note an opened file. This is a function for `sys.addaudithook`."""
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if path not in self.opened and (frames := on_stack(sys._getframe(1))):
                self.opened[path] = frames

    @property
    def stages(self) -> Iterator[tuple[str, Frames]]:
        """The moments with their stacks."""
        for path in self.finding.files if self.finding else ():
            if frames := self.opened.get(os.path.realpath(path)):
                yield f"{path.name} is opened", frames
        yield "the finding is made", self.made
        yield "its line is made", self.printed


def on_stack(frame: FrameType | None) -> Frames:
    """Return the product's files on the stack, from the file of the command on; in a thread, all of them."""
    codes: list[CodeType] = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    frames: Frames = {}
    for code in reversed(codes):
        path = Path(code.co_filename)
        name = path.relative_to(HARNESS_ROOT).as_posix() if path.is_relative_to(HARNESS_ROOT) else ""
        if name.startswith(COMMANDS) and name not in frames:
            frames = {}  # without the command line, which starts every command
        if name.startswith(PRODUCT):
            functions = frames.setdefault(name, [])
            if code.co_name not in functions and not code.co_name.startswith("<"):
                functions.append(code.co_name)
    return frames


def code_path_of(rule: str, arguments: Sequence[str]) -> CodePath:
    """Run a command without its output, and return the code path of a rule."""
    code_path, active = CodePath(rule), True
    sys.addaudithook(lambda event, values: code_path.see_open(event, values) if active else None)  # cannot be removed
    sys.setprofile(code_path.see)
    threading.setprofile(code_path.see)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            program.main(list(arguments))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        active = False
    return code_path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rule", metavar="RULE")
    parser.add_argument("command", metavar="COMMAND ARGUMENT…", nargs=argparse.REMAINDER)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Print the files of the first finding of a rule, and their number."""
    options = _parser().parse_args(arguments)
    code_path = code_path_of(options.rule, options.command)
    if code_path.finding is None:
        print(f"no finding of {options.rule} in this process: {' '.join(options.command)}", file=sys.stderr)
        return 1
    files: dict[str, None] = {}
    print(code_path.finding)
    for moment, frames in code_path.stages:
        print(f"{moment}:")
        for name, functions in frames.items():
            print(f"  {name}: {', '.join(functions)}")
        files |= dict.fromkeys(frames)
    print(f"{len(files)} files")
    return 0


if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # on one core, `check` starts no processes
    sys.exit(main(sys.argv[1:]))
