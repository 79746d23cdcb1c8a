"""Write the findings of the commands, or show the changes since a commit.

make freeze                                     all commands
.venv/bin/python -m tests.frozen [COMMAND…]     some of them
.venv/bin/python -m tests.frozen --since COMMIT rules that are violated in other cases than in that commit's files
"""

import os
import subprocess
import sys
import time

from tests.frozen import golden
from tests.frozen.cases import COMMANDS, cases_of, facts_of_cases, file_of
from tests.frozen.facts import as_text, by_rule, difference, from_text


def main(names: list[str]) -> int:
    """Write the file of each command, and print the changes."""
    for command in names or COMMANDS:
        begun, cases, file = time.process_time(), cases_of(command), file_of(command)
        facts = facts_of_cases(cases)
        text = as_text(
            f"What main.py {command} finds: tests/frozen/facts.py explains the lines, `make freeze` writes them.",
            facts,
            {name: case.base for name, case in cases.items()},
        )
        before = from_text(file.read_text()) if file.exists() else {}
        file.write_text(text, "utf-8", "backslashreplace")
        spent = time.process_time() - begun
        print(f"{command}: {len(facts)} cases, {len(text) / 1e3:,.0f} kB, {spent:.0f} s of processor time")
        if command in golden.INPUTS:
            print(f"{command}: {golden.write(command)} texts")
        print(difference(before, facts) if before else "", end="\n" if before else "", flush=True)
    return 0


def show_since(commit: str) -> int:
    """Print how the frozen files differ from those of a commit."""
    for command in COMMANDS:
        file = file_of(command)
        shown = ["git", "-C", str(file.parent), "show", f"{commit}:./{file.name}"]
        before = subprocess.run(shown, capture_output=True, text=True).stdout
        print(f"{command}:", *by_rule(from_text(before), from_text(file.read_text())), sep="\n  ")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("MLPERF_LLAMA_VLLM_REPORT", "0")
    sys.exit(show_since(sys.argv[2]) if sys.argv[1:2] == ["--since"] else main(sys.argv[1:]))
