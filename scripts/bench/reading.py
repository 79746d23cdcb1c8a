"""(f) `result.json` of a long run: time and memory; and how our own code grows with the samples of one query.

As a program, `python -m scripts.bench.reading RUN_DIR`: builds and writes the run's result.json.
"""

import dataclasses
import sys
import time
from pathlib import Path

from runs.numbers.result import build_result, write_result
from runs.record.layout import RunDir

from .report import BenchPart, at_most
from .sizes import Sizes
from .tools.null_run import NullSpec, null_run
from .tools.programs import measure, peak_memory_bytes, tell

MAKING_QPS = 15_000.0  # of the run that makes the logs
LIBRARY_SAMPLES = 8_448  # a divisor of 270,336: LoadGen issues whole copies of the data set


def run(work: Path, sizes: Sizes) -> BenchPart:
    """Make the logs once, then read them several times."""
    part = BenchPart("f", f"result.json of a Server run of {sizes.result_queries:,} queries; growth with the samples")
    leg = RunDir(work / f"long-server-{sizes.result_queries}")
    library = min(LIBRARY_SAMPLES, sizes.result_queries)
    making = NullSpec(str(leg.root), "Server", target_qps=MAKING_QPS, min_query_count=sizes.result_queries)
    null_run(dataclasses.replace(making, library_samples=library))
    measured = [measure("reading", leg.root, log=work / "reading.log") for _ in range(sizes.repeats)]
    part.add("time", "s", [one["seconds"] for one in measured], at_most(20.0))
    part.add("peak memory", "GB", [one["peak_memory_bytes"] / 1e9 for one in measured], at_most(1.0))
    part.add("of it before reading", "GB", [one["memory_before_bytes"] / 1e9 for one in measured])
    for count in sizes.growth_samples:
        _growth(part, work, count)
    queries = {one["samples"] for one in measured}
    part.notes.append(
        f"{', '.join(f'{number:,}' for number in sorted(queries))} records, no trace; LoadGen's detail log and "
        "requests.jsonl parsed, every number derived again, sample order and schedule replayed from the seeds."
    )
    return part


def _growth(part: BenchPart, work: Path, count: int) -> None:
    """One Offline query of `count` samples around a null engine: our process while it runs, and its result."""
    leg = RunDir(work / f"long-offline-{count}")
    _, facts = null_run(NullSpec(str(leg.root), min_query_count=count, library_samples=min(count, 1_000)))
    reading = measure("reading", leg.root, log=work / "reading.log")
    name = f"one Offline query of {count:,} samples"
    part.add(f"{name}: leg's memory, LoadGen's included", "GB", [facts["peak_memory_bytes"] / 1e9])
    part.add(f"{name}: result.json, time", "s", [reading["seconds"]])
    part.add(f"{name}: result.json, memory", "GB", [reading["peak_memory_bytes"] / 1e9])


def main() -> None:
    """Build one result.json, as a leg's parent does."""
    leg = RunDir(Path(sys.argv[1]))
    before = peak_memory_bytes()
    started = time.perf_counter()
    result = build_result(leg)
    write_result(leg, result)
    seconds = time.perf_counter() - started
    if result.disagreements:
        raise SystemExit(f"LoadGen and requests.jsonl disagree: {result.disagreements[:3]}")
    tell(
        {
            "seconds": seconds,
            "peak_memory_bytes": peak_memory_bytes(),
            "memory_before_bytes": before,
            "samples": result.counts.samples,
        }
    )


if __name__ == "__main__":
    main()
