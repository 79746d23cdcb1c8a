"""(c) The highest valid Server and Interactive rate against the Offline rate of the same engine.

The small model alone: legs of a larger one are too long for a bench. `main.py tune` finds its rates.
"""

from pathlib import Path
from typing import Any

from runs.record.layout import RunDir

from .legs import Finished, run_leg
from .models import TINY, VOCAB_SIZE, make_llama
from .null_path import highest
from .report import Part, at_least
from .rows import write_rows
from .sizes import Sizes

TARGETS = {"Server": 0.90, "Interactive": 0.75}
MIN_QUERIES = 459  # fewer cannot pass LoadGen's early stopping at p99
SIDES: dict[str, dict[str, Any]] = {
    "default": {},
    "two copies": {"engine_arg": ["data_parallel_size=2"]},
}


def run(work: Path, sizes: Sizes) -> Part:
    """A side after the other: a search for each scenario, with Offline legs before, between and after."""
    part = Part("c", "highest valid Server and Interactive rate ÷ Offline rate")
    model = make_llama(work / "model", TINY)
    rows = write_rows(work / "rows.json", sizes.offline_samples, VOCAB_SIZE)
    common = {"vllm": True, "model_path": str(model), "dataset_path": str(rows)}
    for side in sizes.rate_sides:
        options = {**common, **SIDES[side]}
        offline = [measured_offline(work / f"{side}-offline-0", options, sizes.offline_samples)]
        peaks: dict[str, float] = {}
        for number, scenario in enumerate(TARGETS, start=1):
            place, asked = work / f"{side}-{scenario}", {**options, "scenario": scenario}
            peaks[scenario] = highest_valid(place, asked, offline[0], sizes.rate_shares, sizes.server_seconds)
            offline.append(measured_offline(work / f"{side}-offline-{number}", options, sizes.offline_samples))
        offline_rate = part.add(f"T, {side}: Offline", "samples/s", offline).median
        for scenario, target in TARGETS.items():
            part.add(f"T, {side}: {scenario}", "queries/s", [peaks[scenario]])
            part.add(f"T, {side}: {scenario} ÷ Offline", "", [peaks[scenario] / offline_rate], at_least(target))
    start, end, step = sizes.rate_shares
    part.notes.append(
        f"tried: {start:g} to {end:g} of the first Offline rate in steps of {step:g}, by halving; VALID by LoadGen's "
        f"own verdict on legs of {sizes.server_seconds:g} s (an official leg has 600 s); 0: none of them was. One "
        "search each: a leg that the machine disturbed counts as it came."
    )
    return part


def measured_offline(work: Path, options: dict[str, Any], samples: int) -> float:
    """The rate in samples/s of an Offline leg of so many samples."""
    conf: dict[str, object] = {"min_duration": 1, "min_query_count": samples, "target_qps": 1}
    edge = {"lg_model_name": "llama3_1-8b-edge"}  # the datacenter key's own minimum is 13,368 samples
    leg = run_leg(RunDir(work), {**options, "scenario": "Offline", **edge}, conf)
    assert leg.result.reported is not None
    return leg.result.reported.samples_per_second or 0.0


def server_leg(work: Path, options: dict[str, Any], rate: float, seconds: float) -> Finished:
    """A Server or Interactive leg at a rate, of as many queries as early stopping needs at least."""
    conf: dict[str, object] = {
        "min_duration": round(seconds * 1e3),
        "min_query_count": MIN_QUERIES,
        "target_qps": f"{rate:.6f}",
    }
    return run_leg(RunDir(work), options, conf)


def highest_valid(
    work: Path, options: dict[str, Any], offline_rate: float, shares: tuple[float, float, float], seconds: float
) -> float:
    """The highest VALID rate in queries/s.

    Args:
        shares: of the Offline rate that are tried: from, to, step.
        seconds: of a leg.
    """
    start, end, step = shares

    def valid(share: float) -> bool:
        return server_leg(work / f"{share:.3f}", options, share * offline_rate, seconds).result.verdict == "VALID"

    return highest([start + step * number for number in range(round((end - start) / step) + 1)], valid) * offline_rate
