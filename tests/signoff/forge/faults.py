"""Faults on purpose, put into copies of real runs: what the back-test proves the sign-off with.

Each changes files as somebody would who wants a better result. `inject` then seals the run again, so that its statement
fits the changed files.
"""

import inspect
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from runs.errors import InputError
from runs.files.writing import write_json
from runs.loadgen.detail_log import read_detail
from runs.record.layout import RunDir
from tests.signoff.forge import forged_runs, manifest_faults
from tests.support.files.editing import edit_lines, reseal, set_at

Json = dict[str, Any]


def set_detail(run: RunDir, key: str, value: Any) -> None:
    """Another value in the detail log; null is written as null, "-" removes the record."""
    edit_lines(run.detail, lambda one: one if one["key"] != key else None if value == "-" else one | {"value": value})


def scale_reported(run: RunDir, pattern: str, factor: float) -> None:
    """Multiply LoadGen's results whose key matches, in the detail log and, as it prints them, in the summary."""
    for key, value in read_detail(run.detail).values.items():
        if re.fullmatch(pattern, key) and type(value) in (int, float):
            new = round(value * factor) if isinstance(value, int) else float(f"{value * factor:.6g}")
            set_detail(run, key, new)
            _replace_in_summary(run, value, new)


def _replace_in_summary(run: RunDir, old: float, new: float) -> None:
    lines = []
    for line in run.summary.read_text().splitlines(keepends=True):
        head, colon, value = line.rpartition(":")
        try:
            same = bool(colon) and abs(float(value) - old) <= 0.0051
        except ValueError:
            same = False
        shown = str(new) if isinstance(new, int) else f"{new:.2f}"
        lines.append(f"{head}: {shown}\n" if same else line)
    run.summary.write_text("".join(lines))


def set_summary(run: RunDir, name: str, value: str) -> None:
    """Another value in the summary, at the first line of that name."""
    text, count = re.subn(rf"(?m)^({re.escape(name)}\s*: ).*$", rf"\g<1>{value}", run.summary.read_text(), count=1)
    assert count, name
    run.summary.write_text(text)


def set_manifest(run: RunDir, path: str, value: Any) -> None:
    """Another value in manifest.json; `path` has dots."""
    set_at(run.manifest, path, value)


def drop_processes(run: RunDir) -> None:
    """No record of the detail log names its process."""
    run.detail.write_text(re.sub(r'"pid": ?\d+, ?', "", run.detail.read_text()))


def shift_manifest(run: RunDir, by_ns: int) -> None:
    """The run's own start and end, moved."""
    for name in ("start_time_ns", "end_time_ns"):
        set_manifest(run, name, orjson.loads(run.manifest.read_bytes())[name] + by_ns)


def take(run: RunDir, source: RunDir, *names: str) -> None:
    """Files of another run in place of this one's."""
    for name in names:
        shutil.copyfile(source.root / name, run.root / name)


def append(run: RunDir, source: RunDir, name: str) -> None:
    """Another run's file behind this one's."""
    with (run.root / name).open("ab") as stream:
        stream.write((source.root / name).read_bytes())


def remove(run: RunDir, *names: str) -> None:
    """Files that are not there."""
    for name in names:
        (run.root / name).unlink()


def empty(run: RunDir, name: str) -> None:
    """A file without content."""
    (run.root / name).write_bytes(b"")


def cut(run: RunDir, name: str, share: float) -> None:
    """The first part of a file."""
    content = (run.root / name).read_bytes()
    (run.root / name).write_bytes(content[: int(len(content) * share)])


def edit_text(run: RunDir, name: str, old: str, new: str) -> None:
    """Another text in a file."""
    path = run.root / name
    text = path.read_text()
    assert old in text, old
    path.write_text(text.replace(old, new))


def edit_trace(run: RunDir, by_ns: int) -> None:
    """Every tenth completion in the trace, moved."""
    lines = run.trace.read_bytes().splitlines(keepends=True)
    pattern = re.compile(rb'("complete_ns":)(\d+)')
    places = [place for place, line in enumerate(lines) if line.startswith(b'{"name":"Sample",')]
    for place in places[::10]:
        lines[place] = pattern.sub(lambda found: found[1] + str(int(found[2]) + by_ns).encode(), lines[place])
    run.trace.write_bytes(b"".join(lines))


def scrub(run: RunDir) -> None:
    """Take an engine's cheats out of the record."""
    content = orjson.loads(run.manifest.read_bytes())
    if "cheats" in (options := content["plan"]["engine_options"]):  # of a run that was told to by an option
        options["cheats"] = []
    content["asked"].pop("dummy_cheat", None)
    write_json(run.manifest, content)


def adopt(run: RunDir, source: RunDir) -> None:
    """Take over the record of another run, with this one's process and times in it: a foreign run in its clothes."""
    mine = orjson.loads(run.manifest.read_bytes())
    source_manifest = orjson.loads(source.manifest.read_bytes())
    kept = ("pid", "parent_pid", "start_time_ns", "end_time_ns", "observed")
    write_json(run.manifest, source_manifest | {name: mine[name] for name in kept})


FAULTS: dict[str, Callable[..., None]] = {
    name: fault
    for module in (sys.modules[__name__], manifest_faults, forged_runs)
    for name, fault in inspect.getmembers(module, inspect.isfunction)
    if fault.__module__ == module.__name__ and not name.startswith("_")
}
WITH_ANOTHER_RUN = frozenset(
    {"swap_requests", "take", "append", "append_requests", "adopt", "borrow_answers", "borrow_latencies"}
)


def inject(run: RunDir, fault: str, arguments: list[Any], runs: Path) -> None:
    """Put one fault into a copied run, and seal it anew.

    Args:
        run: the copy.
        fault: name of a function here; of some, the first argument names another run.
        arguments: its other arguments.
        runs: where the unchanged runs are.

    Raises:
        InputError: there is no such fault.
    """
    if fault not in FAULTS:
        raise InputError(f"no fault {fault!r}", f"known are {', '.join(FAULTS)}")
    if fault in WITH_ANOTHER_RUN:
        arguments = [RunDir(runs / arguments[0]), *arguments[1:]]
    FAULTS[fault](run, *arguments)
    reseal(run)  # as who forges with care would
