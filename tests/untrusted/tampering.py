"""What a tampering of a result is, and what they are made of (tamperings.py has them all).

Somebody who reads our code does it, and covers it afterwards: hashes and seal are made anew. A tampering changes a copy
of a result (performance and accuracy leg) and wants to gain by it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from runs.files import write_json
from runs.loadgen.detail_log import PREFIX
from runs.record.layout import RunDir
from tests.honest.pair import Pair
from tests.support.editing import loadgen_line, reseal

Json = dict[str, Any]
Change = Callable[[Pair], None]


@dataclass(frozen=True)
class Tampering:
    """A change, the scenario of the result that it is for, and the file that is to be named; "" = any."""

    name: str
    scenario: str
    change: Change
    covered: bool = True
    sealed: bool = True  # anew
    by: str = ""

    def apply(self, pair: Pair) -> None:
        self.change(pair)
        for run in pair.legs:
            if self.covered and run.manifest.is_file():
                reseal(run)
            if self.sealed:
                reseal(run)


TAMPERINGS: list[Tampering] = []


def tampering(
    scenario: str = "Server", *, covered: bool = True, sealed: bool = True, by: str = "", name: str = ""
) -> Callable[[Change], Change]:
    """The function is a tampering; without a name, of its own."""

    def add(change: Change) -> Change:
        TAMPERINGS.append(Tampering(name or change.__name__.replace("_", "-"), scenario, change, covered, sealed, by))
        return change

    return add


def of_both(
    name: str, change: Callable[[RunDir], None], scenario: str = "Server", *, covered: bool = True, by: str = ""
) -> None:
    """A tampering of each leg."""

    def both(pair: Pair) -> None:
        for run in pair.legs:
            change(run)

    TAMPERINGS.append(Tampering(name, scenario, both, covered, by=by))


def values(
    table: Mapping[str, Mapping[str, Any]], file: str, legs: slice, scenario: str = "Server", *, by: str | None = None
) -> None:
    """A tampering for each row: other values in a JSON file of some legs, by their dotted place; ... = left out."""
    for name, changes in table.items():

        def change(pair: Pair, changes: Mapping[str, Any] = changes) -> None:
            for run in pair.legs[legs]:
                edit(run.root / file, lambda content: [put(content, place, new) for place, new in changes.items()])

        TAMPERINGS.append(Tampering(name, scenario, change, covered=False, by=file if by is None else by))


BOTH, PERFORMANCE, ACCURACY = slice(0, 2), slice(0, 1), slice(1, 2)


def put(content: Any, place: str, value: Any) -> None:
    """Another value at a dotted place; ... takes it away."""
    *parents, last = [int(name) if name.isdecimal() else name for name in place.split(".")]
    for name in parents:
        content = content[name]
    if value is ...:
        del content[last]
    else:
        content[last] = value


def edit(path: Path, change: Callable[[Json], object]) -> None:
    """Another content of a JSON file."""
    content = orjson.loads(path.read_bytes())
    change(content)
    write_json(path, content)


def each_line(path: Path, change: Callable[[Json], Json | None]) -> None:
    """Every record of a log, changed; None takes it away."""
    lines = []
    for line in path.read_bytes().splitlines():
        record = change(orjson.loads(line.removeprefix(PREFIX)))
        if record is not None:
            lines.append(loadgen_line(record) if line.startswith(PREFIX) else orjson.dumps(record) + b"\n")
    path.write_bytes(b"".join(lines))
