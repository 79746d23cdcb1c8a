"""Rewrite the `--help` blocks in the documentation, or tell with --check which are out of date.

A block is a fenced code block after a line `<!-- help: COMMAND -->`, where COMMAND is a Python program of this
repository with its arguments.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"<!-- help: (?P<command>[^\n]+) -->\n```text\n(?P<text>.*?)```\n", re.DOTALL)
WIDTH = "100"


def help_text(command: str) -> str:
    """What `COMMAND --help` prints, 100 columns wide."""
    done = subprocess.run(
        [sys.executable, *shlex.split(command), "--help"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH},
        capture_output=True,
        text=True,
        check=True,
    )
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


def updated(text: str) -> str:
    """The document with every help block as it should be."""
    return BLOCK.sub(
        lambda match: f"<!-- help: {match['command']} -->\n```text\n{help_text(match['command'])}```\n", text
    )


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]


def main() -> int:
    """Run the program; returns the exit code."""
    parser = argparse.ArgumentParser(description="Rewrite the --help blocks in the documentation.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a block is out of date")
    options = parser.parse_args()
    stale = []
    for path in documents():
        old = path.read_text()
        new = updated(old)
        if new != old:
            stale.append(path)
            if not options.check:
                path.write_text(new)
    for path in stale:
        print(f"{'out of date' if options.check else 'updated'}: {path.relative_to(ROOT)}")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
