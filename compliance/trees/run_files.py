"""Rules on accuracy.txt, the truncated accuracy log, pictures or videos, and power measurements."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from compliance.judge.rule import decides
from compliance.judge.verdict import Finding, NotApplied, compared
from compliance.results.truncate import CUT, SHOWN_BYTES, is_truncated
from compliance.trees.findings import MISSING, Reads, is_folder, is_regular, read_tree_bytes
from compliance.trees.scenario_directory import POWER_LOG, ScenarioDirectory, check_hash, check_text
from compliance.trees.tree import MAX_FILE_BYTES
from runs.loadgen.detail_log import power_time
from runs.record.layout import RunDir


def check_accuracy_files(directory: ScenarioDirectory, run: RunDir) -> Iterator[Finding | NotApplied]:
    """Check the files of an accuracy run."""
    yield from directory.text_read[0]
    yield from _check_size(run, directory.tree.round.table.max_accuracy_log_bytes)
    yield from _check_folders(run, directory)


@decides(
    "tree",
    ("accuracy-size", "error", "[checker] accuracy_check.accuracy_json_check", "size of the accuracy log",
     "truncate the log with tools/submission/truncate_accuracy_log.py"),
    ("accuracy-shape", "error", "tools/submission/truncate_accuracy_log.py", "truncation of the accuracy log",
     "truncate LoadGen's own log with tools/submission/truncate_accuracy_log.py"),
)  # fmt: skip
def _check_size(run: RunDir, max_bytes: int) -> Iterator[Finding]:
    path = run.accuracy_log
    content = yield from read_tree_bytes(path, "accuracy-size", 64 * 1024)
    if content is None:
        return
    if len(content) > max_bytes:
        yield compared("accuracy-size", False, f"{len(content):,} bytes", f"at most {max_bytes:,} bytes", path)
    elif problem := next(_shape_problems(content, is_truncated(run)), None):
        yield compared("accuracy-shape", False, *problem, path)


def _shape_problems(content: bytes, truncated: bool) -> Iterator[tuple[str, str]]:
    """Yield each difference from a log that the official tool truncated, with the required value.

    The tool keeps 4,096 characters of both ends; on some systems it writes lines that end in \\r\\n.
    """
    if not truncated:
        yield "none", f"the first and last {SHOWN_BYTES:,} bytes"
        return
    plain = content.replace(b"\r\n", b"\n")
    size = SHOWN_BYTES * 2 + len(CUT)
    if len(plain) != size:
        yield f"{len(plain):,} bytes", f"{size:,} bytes"
    elif plain[SHOWN_BYTES : SHOWN_BYTES + len(CUT)] != CUT:
        dots = CUT.index(b".")
        yield f"truncation mark at byte {plain.find(b'...'):,}", f"at byte {SHOWN_BYTES + dots:,}, between empty lines"
    elif not plain.startswith(b"[") or not plain.rstrip().endswith(b"]"):
        yield f"begins with {plain[:1]!r} and ends with {plain.rstrip()[-1:]!r}", "'[' and ']'"


@decides(
    "tree",
    ("accuracy-files", "error", "[checker] accuracy_check.extra_files_check",
     "pictures or videos of the accuracy run", "copy the missing files from the accuracy run"),
)  # fmt: skip
def _check_folders(run: RunDir, directory: ScenarioDirectory) -> Iterator[Finding | NotApplied]:
    """Check the pictures or videos that the round requires of a benchmark."""
    required = directory.claim.entry.accuracy_folders
    if required and directory.tree.round.is_published:
        yield NotApplied("MLCommons removes pictures and videos from published rounds", ("accuracy-files",))
        return
    for name, wanted in required.items():
        folder = run.root / name
        existing = {path.name.split(".")[0] for path in folder.iterdir()} if is_folder(folder) else set()
        if missing := [file for file in wanted if file not in existing]:
            value = f"{len(missing)} of {len(wanted)} missing: {', '.join(missing)}"
            yield compared("accuracy-files", False, value, f"all {len(wanted)}", folder)


# Power ----------------------------------------------------------------------------------------------------------------


# [checker] constants.REQUIRED_POWER_FILES
_FILES = ("client.json", "client.log", "ptd_logs.txt", "server.json", "server.log")


@decides(
    "tree",
    ("power-files", "error", "[checker] power_check.required_files_check", "file of the power measurement",
     "copy the file that the power tools wrote"),
    ("power-readings", "error", "[checker] power_check.get_power_metric_check", "time span of the power readings",
     "submit the readings of the run; synchronize the clocks of the power meter and of LoadGen's host"),
    needs=("power",),
)  # fmt: skip
def check_power(directory: ScenarioDirectory) -> Iterator[Finding]:
    """Check the files and readings of a power measurement; the power result itself is not computed."""
    run = directory.performance.dir
    folder = run.root.parent
    logs = [folder / name / POWER_LOG for name in (run.root.name, "ranging")]
    for path in (*logs, *(folder / "power" / name for name in _FILES)):
        if not is_regular(path):
            yield compared("power-files", False, MISSING, "a regular file", path)
    detail = directory.performance.detail if directory.performance.is_readable else None
    begin, end = (power_time(detail.get(key)) if detail else None for key in ("power_begin", "power_end"))
    if begin is not None and end is not None and is_regular(logs[0]):
        readings = yield from _readings(logs[0])
        if not any(begin < when < end and watts > 0 for when, watts in readings):
            span = f"{readings[0][0]:%m-%d-%Y %H:%M:%S} to {readings[-1][0]:%m-%d-%Y %H:%M:%S}" if readings else "none"
            wanted = f"readings from {begin:%m-%d-%Y %H:%M:%S} to {end:%m-%d-%Y %H:%M:%S}"
            yield compared("power-readings", False, span, wanted, logs[0], run.detail)


def _readings(path: Path) -> Reads[list[tuple[datetime, float]]]:
    """Return the time and the watts of each power reading."""
    readings = []
    content = (yield from read_tree_bytes(path, "power-readings", MAX_FILE_BYTES)) or b""
    for line in content.decode(errors="replace").splitlines():
        with suppress(IndexError, ValueError):
            name, text, _, watts, *_ = line.split(",")
            if name == "Time" and (when := power_time(text)) is not None:
                readings.append((when, float(watts)))
    return readings


OF_ACCURACY = (check_text, check_hash, _check_size, _check_folders)
