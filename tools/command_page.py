"""Write the table of commands in docs/cli.md from the first sentences of the commands' help.

`python -m tools.command_page` rewrites the page's table.
"""

import re

from runs.harness import HARNESS_ROOT
from scenarios.commands import COMMAND_GROUPS

PAGE = HARNESS_ROOT / "docs" / "cli.md"
BEGIN, END = "<!-- commands: tools/command_page.py -->\n", "<!-- end of commands -->\n"
CODE = re.compile(r"(?<!\w)(--[\w-]+|\./\w+|\w+\.(?:json|yaml|txt|conf|md)|\w+_qps)\b")


def table() -> str:
    """Return one row per command, in the groups of `main.py --help`."""
    rows = [
        f"| `{group}` | `{name}` | {CODE.sub(lambda match: f'`{match[0]}`', sentence)} |\n"
        for group, commands in COMMAND_GROUPS.items()
        for name, sentence in commands.items()
    ]
    return "| group | command | what it does |\n|---|---|---|\n" + "".join(rows)


def documented() -> str:
    """Return the table that the page has."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    """Replace the table of the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
