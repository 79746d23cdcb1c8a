"""Changes of the files of a run directory that a submitter could make."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from runs.mlperf_endpoints.layout import CONFIG, EVENTS, SAMPLES

Change = Callable[[Path], object]
Lines = list[dict[str, Any]]  # lines of events.jsonl


def set_at_path(path: str, value: Any) -> Callable[[Any], None]:
    """Set a value at a path such as ttft/percentiles/99.0.

    A function computes it from the old value. In a list, a name selects the entry.
    """
    *keys, last = path.split("/")

    def change(content: Any) -> None:
        for key in keys:
            named = [entry for entry in content if isinstance(entry, dict) and entry.get("name") == key]
            content = content[key] if isinstance(content, dict) else named[0] if named else content[int(key)]
        place = last if isinstance(content, dict) else int(last)
        content[place] = value(content[place]) if callable(value) else value

    return change


def times(factor: float) -> Callable[[Any], Any]:
    return lambda value: type(value)(value * factor)


def in_json(name: str, change: Callable[[Any], object]) -> Change:
    def edit(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content, indent=2))

    return edit


def in_config(path: str, value: Any, run: str = "") -> Change:
    def edit(folder: Path) -> None:
        file = folder / run / CONFIG
        content = yaml.safe_load(file.read_text())
        set_at_path(path, value)(content)
        file.write_text(yaml.safe_dump(content))

    return edit


def in_map(change: Callable[[dict[str, int]], object]) -> Change:
    return in_json(SAMPLES, lambda phases: change(phases["performance"]))


def in_events(change: Callable[[Lines], Lines | None]) -> Change:
    def edit(folder: Path) -> None:
        lines = [json.loads(line) for line in (folder / EVENTS).read_text().splitlines()]
        lines = change(lines) or lines
        (folder / EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))

    return edit


def in_text(name: str, before: str, after: str) -> Change:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert before in text
        (folder / name).write_text(text.replace(before, after, 1))

    return edit


def places(lines: Lines, kind: str) -> list[int]:
    return [place for place, line in enumerate(lines) if line["event_type"] == kind]


def update(kind: str, place: int, **fields: Any) -> Change:
    """Change fields of an event. A function computes them from the old values."""

    def change(lines: Lines) -> None:
        line = lines[places(lines, kind)[place]]
        line |= {name: value(line[name]) if callable(value) else value for name, value in fields.items()}

    return in_events(change)


def lose(kind: str, place: int) -> Change:
    return in_events(lambda lines: lines.pop(places(lines, kind)[place]) and None)


def double(kind: str, place: int) -> Change:
    return in_events(lambda lines: lines.insert(start := places(lines, kind)[place], lines[start]))


def move(kind: str, place: int, by: int) -> Change:
    """Move an event to another line."""
    return in_events(lambda lines: lines.insert((start := places(lines, kind)[place]) + by, lines.pop(start)))


def shift_event(kind: str, place: int, ns: int) -> Change:
    """Move an event in time; a negative `ns` moves it earlier."""
    return update(kind, place, timestamp_ns=lambda old: old + ns)


def swap(kind: str, first_place: int, second_place: int, field: str) -> Change:
    def change(lines: Lines) -> None:
        first, second = (lines[places(lines, kind)[place]] for place in (first_place, second_place))
        first[field], second[field] = second[field], first[field]

    return in_events(change)


def combined(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]
