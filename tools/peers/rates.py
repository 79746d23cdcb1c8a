"""The highest valid Server and Interactive rates, against the Offline rate (c) and over HTTP (m).

Only the small model is measured, because runs of a larger model take too long. `main.py tune` finds its rates.
"""

from pathlib import Path
from typing import Any

from runs.record.layout import RunDir

from .null_path import highest
from .report import PeerPart, at_least
from .sizes import Sizes
from .support.models import COMPUTE, TINY, model_and_rows
from .support.peer_runs import FinishedPeer, engine_plan, execute_run, offline_run
from .support.programs import vllm_serve

TARGETS = {"Server": 0.90, "Interactive": 0.75}
MIN_QUERIES = 459  # minimum for LoadGen's early stopping at p99


def run(work: Path, sizes: Sizes) -> PeerPart:
    """Search the rate of each scenario, with Offline runs before, between and after."""
    part = PeerPart("c", "highest valid Server and Interactive rate ÷ Offline rate")
    options = {"vllm": True, **model_and_rows(work, TINY, sizes.offline_samples)}
    offline = [offline_run(work / "offline-0", options, sizes.offline_samples).rate]
    highest_rates: dict[str, float] = {}
    for number, scenario in enumerate(TARGETS, start=1):
        highest_rates[scenario] = highest_valid(
            work / scenario, {**options, "scenario": scenario}, offline[0], sizes.rate_shares, sizes.server_seconds
        )
        offline.append(offline_run(work / f"offline-{number}", options, sizes.offline_samples).rate)
    offline_rate = part.add("T: Offline", "samples/s", offline).median
    for scenario, target in TARGETS.items():
        part.add(f"T: {scenario}", "queries/s", [highest_rates[scenario]])
        part.add(f"T: {scenario} ÷ Offline", "", [highest_rates[scenario] / offline_rate], at_least(target))
    part.notes.append(
        f"tried: {_steps(sizes.rate_shares)} of the first Offline rate, by halving; VALID by LoadGen's verdict on runs "
        f"of {sizes.server_seconds:g} s (an eligible run has 600 s); 0: none of them was. One search each."
    )
    return part


def over_http(work: Path, sizes: Sizes) -> PeerPart:
    """Measure an Offline run for the range; then search with `vllm serve`, and with the engine in the run's process."""
    part = PeerPart("m", "highest valid Server rate over HTTP ÷ in the run's process")
    samples = sizes.offline_samples // sizes.compute_share
    common = {**model_and_rows(work, COMPUTE, samples), "scenario": "Server"}
    here = {**common, "vllm": True}
    reached = offline_run(work / "offline", here, samples).rate
    seconds, rates = sizes.server_seconds, {}
    rates["in the run's process"] = highest_valid(work / "here", here, reached, sizes.http_rate_shares, seconds)
    with vllm_serve(work / "server", Path(common["model_path"]), engine_plan(work, here)) as url:
        options = {**common, "engine": "endpoint", "api_server": url}
        rates["over HTTP"] = highest_valid(work / "over-http", options, reached, sizes.http_rate_shares, seconds)
    own_figure, peer_figure = (part.add(f"C: {side}", "queries/s", [rate]) for side, rate in rates.items())
    part.add_ratio("C: over HTTP ÷ in the run's process", peer_figure, own_figure, at_least(0.90))
    part.notes.append(
        f"tried: {_steps(sizes.http_rate_shares)} of an Offline rate of {reached:.3g}/s, by halving; VALID by "
        f"LoadGen's verdict on runs of {seconds:g} s and {MIN_QUERIES} queries at least"
    )
    return part


def server_run(work: Path, options: dict[str, Any], rate: float, seconds: float) -> FinishedPeer:
    """Execute a Server or Interactive run at a rate, with the minimum of queries for early stopping."""
    conf: dict[str, object] = {
        "min_duration": round(seconds * 1e3),
        "min_query_count": MIN_QUERIES,
        "target_qps": f"{rate:.6f}",
    }
    return execute_run(RunDir(work), options, conf)


def highest_valid(
    work: Path, options: dict[str, Any], offline_rate: float, shares: tuple[float, float, float], seconds: float
) -> float:
    """Return the highest VALID rate in queries/s.

    Args:
        shares: tried shares of the Offline rate: from, to, step.
    """
    start, end, step = shares

    def valid(share: float) -> bool:
        return server_run(work / f"{share:.3f}", options, share * offline_rate, seconds).result.verdict == "VALID"

    return highest([start + step * number for number in range(round((end - start) / step) + 1)], valid) * offline_rate


def _steps(shares: tuple[float, float, float]) -> str:
    start, end, step = shares
    return f"{start:g} to {end:g} in steps of {step:g}"
