"""What an acceptance hands over: one table of target, measured, met, as Markdown and as JSON."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runs.files import write_atomic, write_json
from scripts.bench.report import Goal, number

from .steps import Outcome


@dataclass(frozen=True)
class Row:
    """One line. `met` is None where there is no target, or nothing was measured."""

    what: str
    target: str
    measured: str
    met: bool | None
    value: float | None = None


@dataclass
class AcceptTable:
    """All lines so far."""

    rows: list[Row] = field(default_factory=list)

    def figure(self, what: str, value: float | None, unit: str = "", target: Goal | None = None) -> None:
        """A number, or what is missing of one."""
        if value is None:
            self.missing(what, "" if target is None else f"{target} {unit}".strip())
            return
        told = f"{number(value)} {unit}".strip()
        aim = "" if target is None else f"{target} {unit}".strip()
        self.rows.append(Row(what, aim, told, None if target is None else target.met(value), value))

    def verdict(self, what: str, target: str, measured: str, met: bool) -> None:
        self.rows.append(Row(what, target, measured, met))

    def missing(self, what: str, target: str) -> None:
        self.rows.append(Row(what, target, "not measured", None))

    @property
    def missed(self) -> list[Row]:
        """Lines with a target that is not met, or of which nothing is known."""
        return [row for row in self.rows if row.target and not row.met]


def write_table(
    folder: Path, head: dict[str, Any], notes: list[str], table: AcceptTable, outcomes: list[Outcome]
) -> None:
    """accept.json and accept.md.

    Args:
        head: command, time, machine and versions.
        notes: what the figures do not say.
    """
    steps = [{**asdict(outcome), "answer": None} for outcome in outcomes]
    content = {
        "schema_version": 1,
        **head,
        "notes": notes,
        "rows": [asdict(row) for row in table.rows],
        "steps": [{name: value for name, value in step.items() if name != "answer"} for step in steps],
    }
    write_json(folder / "accept.json", content)
    write_atomic(folder / "accept.md", markdown(head, notes, table, outcomes).encode())


def markdown(head: dict[str, Any], notes: list[str], table: AcceptTable, outcomes: list[Outcome]) -> str:
    """The same for a person."""
    lines = ["# Acceptance", "", *(f"- {name}: {_plain(value)}" for name, value in head.items()), ""]
    lines += [*(f"**{note}**\n" for note in notes)]
    lines += ["| | target | measured | met |", "|---|---|---|---|"]
    word = {True: "yes", False: "**no**", None: ""}
    lines += [
        f"| {row.what} | {row.target} | {row.measured} | {word[row.met] or ('**?**' if row.target else '')} |"
        for row in table.rows
    ]
    lines += ["", "| step | seconds | exit code | |", "|---|---|---|---|"]
    lines += [
        f"| {one.name} | {one.seconds:.0f} | {'' if one.exit_code is None else one.exit_code} | {_cell(one.error)} |"
        for one in outcomes
    ]
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items() if not isinstance(item, list | dict))
    return "; ".join(map(_plain, value)) if isinstance(value, list) else str(value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
