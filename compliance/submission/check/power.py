"""Rules on a measurement of power: its files, and readings during the run."""

from contextlib import suppress
from datetime import datetime
from pathlib import Path

from compliance.finding import decides
from compliance.submission.check.findings import is_folder, is_regular, read_bytes
from compliance.submission.check.legs import Result
from compliance.submission.tree import MOST_FILE_BYTES
from runs.loadgen.detail_log import power_time
from runs.record.layout import RunDir

OF_POWER = {"power", "ranging"}  # directories next to run_1
POWER_LOG = "spl.txt"  # in run_1 and ranging
# [checker] constants.REQUIRED_POWER_FILES
_FILES = ("client.json", "client.log", "ptd_logs.txt", "server.json", "server.log")


def check_power(result: Result) -> None:
    """Judge a measurement of power where there is one; its result is not computed."""
    run = result.tree.performance(result.place)
    if is_regular(run.root / POWER_LOG) or any(is_folder(run.root.parent / name) for name in OF_POWER):
        _check_measurement(result, run)


@decides(
    "tree",
    ("power-files", "error", "[checker] power_check.required_files_check", "a measurement of power has its files",
     "add what the power tools wrote"),
    ("power-readings", "error", "[checker] power_check.get_power_metric_check", "power was read during the run",
     "submit the readings of the run, by a clock that is LoadGen's"),
)  # fmt: skip
def _check_measurement(result: Result, run: RunDir) -> None:
    folder = run.root.parent
    logs = [folder / name / POWER_LOG for name in (run.root.name, "ranging")]
    for path in (*logs, *(folder / "power" / name for name in _FILES)):
        if not is_regular(path):
            result.findings.add("power-files", path, "there is no such file")
    detail = result.details.get("performance")
    begin, end = (power_time(detail.get(key)) if detail else None for key in ("power_begin", "power_end"))
    if begin is not None and end is not None and is_regular(logs[0]):
        readings = _readings(result, logs[0])
        if not any(begin < when < end and watts > 0 for when, watts in readings):
            span = f"{readings[0][0]:%m-%d-%Y %H:%M:%S} to {readings[-1][0]:%m-%d-%Y %H:%M:%S}" if readings else "none"
            wanted = f"some from {begin:%m-%d-%Y %H:%M:%S} to {end:%m-%d-%Y %H:%M:%S}"
            result.findings.add("power-readings", logs[0], f"readings: {span}", wanted, beside=[run.detail])


def _readings(result: Result, path: Path) -> list[tuple[datetime, float]]:
    """When power was read, and the watts."""
    found = []
    content = read_bytes(path, result.findings, "power-readings", MOST_FILE_BYTES) or b""
    for line in content.decode(errors="replace").splitlines():
        with suppress(IndexError, ValueError):
            name, said, _, watts, *_ = line.split(",")
            if name == "Time" and (when := power_time(said)) is not None:
                found.append((when, float(watts)))
    return found
