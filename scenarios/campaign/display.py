"""What a person sees of a campaign: a table of its legs before and after, and a line before each leg."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from runs.wording import duration
from scenarios.campaign.plan import PlannedLeg
from scenarios.campaign.state import LegState
from scenarios.console import say

States = Mapping[str, LegState]  # by the leg's name

WITHOUT_SETUP = "without engine start and scoring"
_STYLES = {"done": "green", "negative": "red", "damaged": "yellow", "to do": ""}


def expected_s(legs: Sequence[PlannedLeg]) -> float:
    """By LoadGen's counts and the rates asked for; audits that cannot be counted are left out."""
    return sum(leg.count.expected_s for leg in legs if leg.count is not None)


def print_table(console: Console, legs: Sequence[PlannedLeg], states: States) -> None:
    """A line per leg: its state, what LoadGen will issue, how long that takes, and its numbers or the reason."""
    table = Table(box=box.SIMPLE if console.is_terminal else None, pad_edge=False, show_edge=False)
    for title, right in (("leg", False), ("state", False), ("samples", True), ("expected", True), ("", False)):
        table.add_column(title, justify="right" if right else "left", no_wrap=bool(title), overflow="fold")
    for leg in legs:
        state = states[leg.leg.name]
        count = leg.count
        why = (count.why if count else "as the audit decides leg by leg") if state.status == "to do" else state.text
        table.add_row(
            Text(leg.leg.name),
            Text(_status(state), style=_STYLES[state.status]),
            f"{count.samples:,}" if count else "?",
            duration(count.expected_s) if count else "?",
            Text(why),
        )
    console.print(table)


def print_header(console: Console, number: int, total: int, leg: PlannedLeg, remaining: Sequence[PlannedLeg]) -> None:
    """The line before a leg; `remaining` are the legs still to be run, this one among them."""
    line = (
        f"leg {number} of {total}: {leg.leg.name}, about {duration(expected_s(remaining))} to go for "
        f"{len(remaining)} leg{'' if len(remaining) == 1 else 's'} ({WITHOUT_SETUP})"
    )
    console.print()
    if console.is_terminal:
        console.rule(Text(line), align="left")
    else:
        say(console, line)


def _status(state: LegState) -> str:
    return "changed" if state.changed else state.status
