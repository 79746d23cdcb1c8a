"""Plot the throughput-latency curve of one or more benches.

Usage: python examples/plot_bench.py PICTURE BENCH [BENCH...]

BENCH is a directory with bench.json. The format of PICTURE follows from its ending: .svg, .png or .pdf. A cross marks a
repeated run. Runs without latencies, such as a run that was stopped, are named on standard error.
"""

import sys

import matplotlib as mpl

from mlperf_llama_vllm import HarnessError, read_bench

mpl.use("agg")
from matplotlib import pyplot as plt


def main(picture: str, *benches: str) -> None:
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for bench in map(read_bench, benches):
        runs = [run for run in bench["runs"] if run["ttft"] and run["output_tokens_per_s"]]
        runs.sort(key=lambda run: run["output_tokens_per_s"])
        for run in bench["runs"]:
            if run["kind"] != "offline" and run not in runs:  # Offline runs have no first tokens.
                load = run["asked_qps"] or run["concurrency"]
                print(f"{bench['label']}: not drawn: {run['verdict']} run at {load:g}", file=sys.stderr)
        color = axes.plot([], [])[0].get_color()
        for name, style in (("p50", "-"), (bench["percentile"], "--")):
            if name is None:
                continue
            for repeated, line, mark in ((False, style, "o"), (True, "", "x")):
                chosen = [run for run in runs if (run["again"] or run["repetition"] > 1) == repeated]
                label = f"{bench['label']}, {name}" if not repeated else None
                rates = [run["output_tokens_per_s"] for run in chosen]
                values = [run["ttft"][name] for run in chosen]
                axes.plot(rates, values, marker=mark, ls=line, color=color, label=label)
        for run in runs:
            if run["verdict"] in ("saturated", "outside"):
                at = (run["output_tokens_per_s"], run["ttft"]["p50"])
                axes.annotate(run["verdict"], at, (-6, -12), textcoords="offset points", ha="right", fontsize=8)
    axes.set(xlabel="output tokens/s", ylabel="TTFT in ms", yscale="log")
    axes.margins(0.12)
    axes.set_xlim(left=0)
    axes.legend()
    figure.savefig(picture)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    try:
        main(*sys.argv[1:])
    except HarnessError as error:
        sys.exit(f"error: {error}")
