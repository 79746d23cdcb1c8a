"""(c) The highest valid Server and Interactive rate against the Offline rate, with and without admission control."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from qsl.bundled import bundled_dataset
from runs.layout import RunDir

from .legs import run_leg
from .models import SHAPES, TINY, make_llama
from .null_path import highest
from .report import Figure, Part, at_least
from .sizes import Sizes

TARGETS = {"Server": 0.90, "Interactive": 0.75}
ABOVE_STOCK = 1.15  # Interactive of the compute-bound model, against vLLM's scheduling without admission control
MIN_QUERIES = 459  # fewer cannot pass LoadGen's early stopping at p99


def run(work: Path, sizes: Sizes) -> Part:
    """One Offline leg a model, then a search over shares of its rate for each scenario and admission order."""
    part = Part("c", "highest valid Server and Interactive rate ÷ Offline rate")
    for name in sizes.rate_models:
        _model(part, work / name, name, sizes)
    start, end, step = sizes.rate_shares
    part.notes.append(
        f"shares of the Offline rate tried: {start:g} to {end:g} in steps of {step:g}, by halving; VALID by LoadGen's "
        f"own verdict on legs of {sizes.server_seconds:g} s (an official leg has 600 s); 0: none of them was. One "
        "search each: a leg that the machine disturbed counts as it came."
    )
    return part


def _model(part: Part, work: Path, name: str, sizes: Sizes) -> None:
    model = make_llama(work / "model", SHAPES[name])
    common = {"vllm": True, "model_path": str(model), "dataset_path": str(bundled_dataset(str(model)))}
    samples = sizes.offline_samples // (1 if SHAPES[name] is TINY else sizes.compute_share)
    conf: dict[str, object] = {"min_duration": 1, "min_query_count": samples, "target_qps": 1}
    edge = {"lg_model_name": "llama3_1-8b-edge"}  # the datacenter key's own minimum is 13,368 samples
    offline = run_leg(RunDir(work / "offline"), {"scenario": "Offline", **edge, **common}, conf)
    assert offline.result.reported is not None
    offline_rate = offline.result.reported.samples_per_second or 0.0
    part.add(f"{name}: Offline", "samples/s", [offline_rate])
    start, end, step = sizes.rate_shares
    shares = [start + step * number for number in range(round((end - start) / step) + 1)]
    for scenario, target in TARGETS.items():
        found: dict[str, Figure] = {}
        for admission in sizes.admissions:
            options = {"scenario": scenario, "admission": admission, **common}
            share = highest(shares, _valid(work / f"{scenario}-{admission}", options, offline_rate, sizes))
            label = f"{name}: {scenario}, admission {admission}"
            found[admission] = part.add(label, "queries/s", [share * offline_rate])
            part.add(f"{label}, ÷ Offline", "", [share], at_least(target))
            if admission != "off" and "off" in found and found["off"].median:
                bound = scenario == "Interactive" and SHAPES[name] is not TINY
                part.add_ratio(
                    f"{label}, ÷ off", found[admission], found["off"], at_least(ABOVE_STOCK) if bound else None
                )


def _valid(work: Path, options: dict[str, Any], offline_rate: float, sizes: Sizes) -> Callable[[float], bool]:
    def valid(share: float) -> bool:
        conf: dict[str, object] = {
            "min_duration": round(sizes.server_seconds * 1e3),
            "min_query_count": MIN_QUERIES,
            "target_qps": f"{share * offline_rate:.6f}",
        }
        return run_leg(RunDir(work / f"{share:.3f}"), options, conf).result.verdict == "VALID"

    return valid
