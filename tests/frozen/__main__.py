"""`make freeze`, or `python -m tests.frozen [COMMAND…]`: write what the commands find today."""

import os
import sys
import time

from tests.frozen.cases import COMMANDS, cases_of, file_of, found_by
from tests.frozen.facts import as_text, difference, from_text


def main(names: list[str]) -> int:
    """Write the file of each command, and print what changed."""
    for command in names or COMMANDS:
        begun, cases, file = time.process_time(), cases_of(command), file_of(command)
        found = found_by(cases)
        text = as_text(
            f"What main.py {command} finds: tests/frozen/facts.py explains the lines, `make freeze` writes them.",
            found,
            {name: case.base for name, case in cases.items()},
        )
        before = from_text(file.read_text()) if file.exists() else {}
        file.write_text(text, "utf-8", "backslashreplace")
        spent = time.process_time() - begun
        print(f"{command}: {len(found)} cases, {len(text) / 1e3:,.0f} kB, {spent:.0f} s of processor time")
        print(difference(before, found) if before else "", end="\n" if before else "", flush=True)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("MLPERF_LLAMA_VLLM_REPORT", "0")
    sys.exit(main(sys.argv[1:]))
