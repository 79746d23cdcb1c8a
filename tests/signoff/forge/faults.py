"""Faults in copies of real runs, with which the back-test proves the sign-off.

Each one changes files as a person would who wants a better result. `inject` then attests the run again, so that its
attestation fits the changed files.
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
    """Replace a value in the detail log; null is written as null, "-" removes the record."""
    edit_lines(
        run.detail,
        lambda record: record if record["key"] != key else None if value == "-" else record | {"value": value},
    )


def scale_reported(run: RunDir, pattern: str, factor: float) -> None:
    """Multiply the results of LoadGen whose key matches, in the detail log and, in its printed form, in the summary."""
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
    """Replace a value in the summary, in the first line of that name."""
    text, count = re.subn(rf"(?m)^({re.escape(name)}\s*: ).*$", rf"\g<1>{value}", run.summary.read_text(), count=1)
    assert count, name
    run.summary.write_text(text)


def set_manifest(run: RunDir, path: str, value: Any) -> None:
    """Replace a value in manifest.json; `path` has dots."""
    set_at(run.manifest, path, value)


def drop_processes(run: RunDir) -> None:
    """Remove the process from each record of the detail log."""
    run.detail.write_text(re.sub(r'"pid": ?\d+, ?', "", run.detail.read_text()))


def shift_manifest(run: RunDir, by_ns: int) -> None:
    """Move the start and the end of the run."""
    for name in ("start_time_ns", "end_time_ns"):
        set_manifest(run, name, orjson.loads(run.manifest.read_bytes())[name] + by_ns)


def take(run: RunDir, source: RunDir, *names: str) -> None:
    """Replace files by those of another run."""
    for name in names:
        shutil.copyfile(source.root / name, run.root / name)


def append(run: RunDir, source: RunDir, name: str) -> None:
    """Append the file of another run."""
    with (run.root / name).open("ab") as stream:
        stream.write((source.root / name).read_bytes())


def remove(run: RunDir, *names: str) -> None:
    """Remove files."""
    for name in names:
        (run.root / name).unlink()


def empty(run: RunDir, name: str) -> None:
    """Empty a file."""
    (run.root / name).write_bytes(b"")


def cut(run: RunDir, name: str, share: float) -> None:
    """Keep the first part of a file."""
    content = (run.root / name).read_bytes()
    (run.root / name).write_bytes(content[: int(len(content) * share)])


def edit_text(run: RunDir, name: str, old: str, new: str) -> None:
    """Replace a text in a file."""
    path = run.root / name
    text = path.read_text()
    assert old in text, old
    path.write_text(text.replace(old, new))


def edit_trace(run: RunDir, by_ns: int) -> None:
    """Move every tenth completion in the trace."""
    lines = run.trace.read_bytes().splitlines(keepends=True)
    pattern = re.compile(rb'("complete_ns":)(\d+)')
    places = [place for place, line in enumerate(lines) if line.startswith(b'{"name":"Sample",')]
    for place in places[::10]:
        lines[place] = pattern.sub(lambda line: line[1] + str(int(line[2]) + by_ns).encode(), lines[place])
    run.trace.write_bytes(b"".join(lines))


def scrub(run: RunDir) -> None:
    """Remove the cheats of an engine from the record."""
    content = orjson.loads(run.manifest.read_bytes())
    if "cheats" in (options := content["plan"]["engine_options"]):  # recorded by the option of the run
        options["cheats"] = []
    content["asked"].pop("dummy_cheat", None)
    write_json(run.manifest, content)


def adopt(run: RunDir, source: RunDir) -> None:
    """Take over the record of another run, with the process and times of this one."""
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
    """Put one fault into a copied run, and attest it again.

    Args:
        run: Copy of a run.
        fault: Name of a function of these modules. For some, the first argument names another run.
        arguments: Its other arguments.
        runs: Directory of the unchanged runs.

    Raises:
        InputError: If the fault does not exist.
    """
    if fault not in FAULTS:
        raise InputError(f"no fault {fault!r}", f"known are {', '.join(FAULTS)}")
    if fault in WITH_ANOTHER_RUN:
        arguments = [RunDir(runs / arguments[0]), *arguments[1:]]
    FAULTS[fault](run, *arguments)
    reseal(run)  # as a careful forger would
