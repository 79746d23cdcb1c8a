"""The entries, the best rate, the command and points.csv of a bench, compared with each other."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from runs.bench.agreement import agree, shown
from runs.bench.bench_record import RUNS, WARM_UP, BenchRecord, BenchRun, Best, limits_text, numbered
from runs.bench.best_rate import best_rate, rounded_rate, steady_rate
from runs.bench.points import POINTS, points_csv
from runs.files.writing import sha256_of
from runs.record.layout import BENCH_FILE, RunDir

# Limits on a command line: `--limits ttft=500,tpot=50`, `--goodput ttft:500 tpot:50`, and their other forms.
_LIMIT = re.compile(r"(ttft|tpot|e2el)[=:](\d+(?:\.\d+)?)")
_SLA = {"--ttft-sla-ms": "ttft", "--tpot-sla-ms": "tpot"}


def repeated_runs(folder: Path, record: BenchRecord) -> Iterator[str]:
    """Yield entries that are one run: each entry has its own directory, attestation, log and time."""
    identities: dict[str, list[Any]] = {"directory": [], "attestation": [], "start time": [], "log": []}
    for run in record.runs:
        detail = RunDir(folder / run.run_dir).detail
        digest = sha256_of(detail) if detail.is_file() else None
        identity = (run.run_dir, run.seal_sha256, run.start_time_ns, digest)
        for column, value in zip(identities.values(), identity, strict=True):
            column.append(value)
    numbers = [run.number for run in record.runs]
    seen: set[tuple[int, ...]] = set()
    for name, values in identities.items():
        for value, count in Counter(values).items():
            same = tuple(number for number, entry in zip(numbers, values, strict=True) if entry == value)
            if value and count > 1 and same not in seen:
                seen.add(same)
                yield f"runs {' and '.join(map(str, same))} have one {name}: they are one run"


def unlisted_runs(folder: Path, record: BenchRecord) -> Iterator[str]:
    """Yield complete runs in the directory of the bench without an entry. A bench in progress may have one."""
    listed = {Path(run.run_dir).name for run in record.runs}
    paths = [path for path in sorted((folder / RUNS).glob("*")) if path.name not in listed]
    complete = [path for path in paths if not path.name.startswith(numbered(WARM_UP)) and RunDir(path).seal.is_file()]
    following = numbered(max((run.number for run in record.runs), default=WARM_UP) + 1)
    for path in complete:
        if record.status == "complete" or not path.name.startswith(following):
            yield f"{path}: a complete run without an entry in {BENCH_FILE}"


def compare_rates(record: BenchRecord) -> Iterator[str]:
    """Compare the rates of Server runs with their shares of the Offline rate."""
    offline_qps = steady_rate(record.runs)
    for run in record.runs:
        if run.share is not None and offline_qps and run.asked_qps is not None:
            expected = rounded_rate(run.share * offline_qps)
            if not math.isclose(run.asked_qps, expected, rel_tol=1e-3):
                is_rate = f"{run.share:.4g} of the Offline rate is {expected:g} queries/s"
                yield f"run {run.number}: {is_rate}, not {run.asked_qps:g}"


def compare_summary(folder: Path, record: BenchRecord, entries: Sequence[BenchRun]) -> Iterator[str]:
    """Compare the best rate, the limits of the command, and points.csv with the entries."""
    best = best_rate(entries)
    has_verdicts = all(
        stated.verdict == computed.verdict for stated, computed in zip(record.runs, entries, strict=True)
    )
    if record.status == "complete" and has_verdicts and not _is_same_best(record.best, best):
        low, computed_low = (rate.low if rate else None for rate in (record.best, best))
        yield f"the best rate is {shown(low)} queries/s in {BENCH_FILE}, and {shown(computed_low)} by its runs"
    if (labels := _values_of(record.command, "--label")) and labels[0] != record.label:
        yield f"the label is {record.label}, and {labels[0]} in the recorded command"
    in_command = _limits_in(record.command)
    limits = record.limits.model_dump(exclude_none=True) if record.limits else {}
    if in_command is not None and in_command != limits:
        stated, typed = (
            ", ".join(f"{name} {ms:g} ms" for name, ms in part.items()) or "none" for part in (limits, in_command)
        )
        yield f"the limits are {stated}, and {typed} in the recorded command"
    in_conditions = record.conditions.equal.get("limits", limits_text(record.limits))
    if in_conditions != limits_text(record.limits):
        yield f"the limits are {limits_text(record.limits)}, and {in_conditions} in the conditions"
    points, expected = folder / POINTS, points_csv(record).splitlines()
    if points.is_file():
        lines = points.read_bytes().decode("utf-8", "replace").splitlines()
        if lines[:1] == expected[:1] and lines != expected:  # another version may write other columns
            yield f"{points} differs from {BENCH_FILE}"


def _values_of(command: Sequence[str], *options: str) -> list[str] | None:
    """Return the values of options on a command line; None if it has none of the options."""
    values: list[str] | None = None
    for place, word in enumerate(command):
        name, _, value = word.partition("=")
        if name in options:
            following = takewhile(lambda text: not text.startswith("--"), command[place + 1 :])
            values = [*(values or ()), *([value] if value else following)]
    return values


def _limits_in(command: Sequence[str]) -> dict[str, float] | None:
    """Return the limits in ms that a command line sets; None if it sets none."""
    limits: dict[str, float] | None = None
    if (texts := _values_of(command, "--limits", "--goodput")) is not None:
        limits = {name: float(ms) for name, ms in _LIMIT.findall(" ".join(texts))}
    for option, name in _SLA.items():
        if texts := _values_of(command, option):
            limits = (limits or {}) | {name: float(texts[0])}
    return limits


def _is_same_best(stated: Best | None, computed: Best | None) -> bool:
    if stated is None or computed is None:
        return stated is computed
    return all(agree(getattr(stated, name), getattr(computed, name)) for name in ("low", "high", "run", "again"))
