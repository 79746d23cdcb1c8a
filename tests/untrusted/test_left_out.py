"""Each field of each record, left out of both legs of a result, or made empty: no check may be switched off by it."""

from collections.abc import Iterator
from typing import Any

EMPTY: tuple[Any, ...] = (..., None, "", 0, [], {})  # ... = left out


def places(content: Any, parents: tuple[str, ...] = ()) -> Iterator[str]:
    """Every place in a record, by its dotted name."""
    rows = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in rows:
        place = (*parents, str(name))
        if not any("." in one for one in place):
            yield ".".join(place)
        yield from places(value, place)


def at(content: Any, place: str) -> Any:
    for name in place.split("."):
        content = content[int(name) if isinstance(content, list) else name]
    return content
