"""Remarks on runs: each text once, with the runs that it is about."""

from collections.abc import Iterable
from dataclasses import dataclass

from runs.wording import counted, shortened_list

MAX_PLACES = 6  # names of runs after a remark


@dataclass(frozen=True)
class Remark:
    """A text, and the names of the runs that it is about."""

    text: str
    places: tuple[str, ...]

    @property
    def places_text(self) -> str:
        names = shortened_list(self.places, MAX_PLACES)
        return f"{counted(len(self.places), 'run')}: {names}" if len(self.places) > 1 else names


def grouped_remarks(pairs: Iterable[tuple[str, str]]) -> list[Remark]:
    """Return each text once, in order, with the places that have it.

    Args:
        pairs: Place and text of each remark.
    """
    places: dict[str, list[str]] = {}
    for place, text in pairs:
        places.setdefault(text, []).append(place)
    return [Remark(text, tuple(dict.fromkeys(names))) for text, names in places.items()]
