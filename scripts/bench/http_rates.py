"""(m) The highest valid Server rate through `vllm serve` against that of the engine in the leg's own process."""

from pathlib import Path
from typing import Any

from .legs import engine_plan
from .models import COMPUTE, VOCAB_SIZE, make_llama
from .rates import highest_valid, measured_offline
from .report import Figure, Part, at_least
from .rows import write_rows
from .sizes import Sizes
from .vllm_serve import vllm_serve


def run(work: Path, sizes: Sizes) -> Part:
    """One Offline leg for the range, then a search on each side."""
    part = Part("m", "highest valid Server rate over HTTP ÷ in the leg's process")
    model = make_llama(work / "model", COMPUTE)
    samples = sizes.offline_samples // sizes.compute_share
    rows = write_rows(work / "rows.json", samples, VOCAB_SIZE)
    common = {"model_path": str(model), "dataset_path": str(rows)}
    here = {**common, "vllm": True}
    reached = measured_offline(work / "offline", here, samples)

    def peak(side: str, options: dict[str, Any]) -> Figure:
        place, asked = work / side.replace(" ", "-"), {**options, "scenario": "Server"}
        rate = highest_valid(place, asked, reached, sizes.http_rate_shares, sizes.server_seconds)
        return part.add(f"C: {side}", "queries/s", [rate])

    own = peak("in the leg's process", here)
    with vllm_serve(work / "server", model, engine_plan(work, {**here, "scenario": "Server"})) as server:
        part.add_ratio(
            "C: over HTTP ÷ in the leg's process",
            peak("over HTTP", {**common, "engine": "endpoint", "api_server": server.url}),
            own,
            at_least(0.90),
        )
    start, end, step = sizes.http_rate_shares
    part.notes.append(
        f"tried: {start:g} to {end:g} of an Offline rate of {reached:.3g}/s in steps of {step:g}, by halving; VALID by "
        f"LoadGen's own verdict on legs of {sizes.server_seconds:g} s and 459 queries at least"
    )
    return part
