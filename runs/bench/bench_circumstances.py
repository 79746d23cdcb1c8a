"""The circumstances of two benches that a change of the system does not explain: their age, and foreign load."""

from collections.abc import Iterator
from statistics import fmean

from runs.bench.bench_record import BenchRecord
from runs.harness import PROGRAM
from runs.wording import duration

MAX_AGE_S = 600.0  # benches that lie further apart are measured on a machine of another speed
MAX_FOREIGN_DIFFERENCE = 0.1  # difference of the cores' time that other processes used


def different_circumstances(base: BenchRecord, candidate: BenchRecord) -> Iterator[str]:
    """Yield a statement for each circumstance that differs."""
    starts_ns = [
        min((run.start_time_ns for run in record.runs if run.start_time_ns), default=None)
        for record in (base, candidate)
    ]
    if starts_ns[0] is not None and starts_ns[1] is not None:
        age_s = abs(starts_ns[1] - starts_ns[0]) / 1e9
        if age_s > MAX_AGE_S:
            yield f"the benches began {duration(age_s)} apart; a drift of the machine looks like a change"
    shares = [[run.contention for run in record.runs if run.contention is not None] for record in (base, candidate)]
    if all(shares):
        before, after = map(fmean, shares)
        if abs(after - before) > MAX_FOREIGN_DIFFERENCE:
            yield (
                f"other processes used {before:.0%} of the cores' time in {base.label} and {after:.0%} in "
                f"{candidate.label}"
            )


def deciding_command(base: BenchRecord, candidate: BenchRecord) -> str:
    """Return a sentence with the command that measures both systems together."""
    targets = [record.metadata.get("serve") or record.target for record in (base, candidate)]
    if any("serve" in record.metadata for record in (base, candidate)):
        words = " ".join(f'--serve "{target}"' for target in targets)
    else:
        words = " ".join(targets) if targets[0] != targets[1] else "URL_A URL_B"
    return (
        f"equal runs of one bench do not show how benches of an unchanged system differ; decide: {PROGRAM} ab {words}"
    )
