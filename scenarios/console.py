"""Words for a person, as they are: no markup, no colours, no line breaks of the terminal's."""

from rich.console import Console


def say(console: Console, text: str) -> None:
    """One line as it is."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)
