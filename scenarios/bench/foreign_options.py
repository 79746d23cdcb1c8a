"""Options of other benchmarks that a bench refuses or ignores, and what to type here."""

import re
from collections.abc import Mapping

from runs.mistakes import Mistakes

# Options of other programs → what to type here.
REFUSED = {
    "burstiness": "remove --burstiness",
    "data": "give --dataset-path FILE, or --input-len 1024 --output-len 128",
    "extra_inputs": "give --extra-body JSON; --ignore-eos and --sampling-arg KEY=VALUE set the sampling",
    "output": "give --output-dir DIR, or -o DIR",
    "max_time_per_run": "give --duration 10m",
    "profile": "give --rates 25%,50% for rates, or --concurrency 1,8,32 for open queries",
    "rate_type": "give --rates 5,10, --rates inf, or --concurrency 1,8,32",
    "traffic_scenario": "give --input-len 100 --output-len 100, or a range such as --input-len 80-120",
}
# Options of other programs that a bench cannot have → the reason.
_REASONS = {"burstiness": "LoadGen draws Poisson arrivals, and its schedule is official"}
# Options of other programs that have no effect → the reason.
IGNORED = {
    "batch_size": "the engine batches continuously",
    "metric_percentiles": "bench.json has p50, p90, p95 and p99",
    "num_warmups": "each bench warms up until two windows agree within 5%",
    "num_workers": "one event loop serves all queries",
    "percentile_metrics": "bench.json has TTFT, TPOT, ITL and latency",
    "streaming": "responses are streamed at each rate",
    "task": "a bench generates text",
    "warmup_request_count": "each bench warms up until two windows agree within 5%",
}
FLAGS = frozenset({"streaming"})  # options above without a value
_LENGTHS_OF = re.compile(r"prompt_tokens\W+(\d+)\b.*output_tokens\W+(\d+)|\((\d+),\s*(\d+)\)")


def check_foreign(options: Mapping[str, str], mistakes: Mistakes) -> list[str]:
    """Return a note for each ignored option; the refused options are added to the mistakes."""
    notes = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if name in REFUSED:
            mistakes.add(f"{flag} {value}: {_REASONS.get(name, 'not an option of bench')}", _fix(name, value))
        else:
            notes.append(f"{flag} is ignored; {IGNORED[name]}")
    return notes


def _fix(name: str, value: str) -> str:
    """Return what to type for an option in REFUSED, with its values."""
    if name in ("data", "traffic_scenario") and (match := _LENGTHS_OF.search(value)):
        prompt, output = (group for group in match.groups() if group)
        return f"give --input-len {prompt} --output-len {output}"
    return f"give --duration {value}" if name == "max_time_per_run" else REFUSED[name]
