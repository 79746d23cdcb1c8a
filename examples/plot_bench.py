"""Plot the throughput-latency curve of one or more benches.

Usage: python examples/plot_bench.py PICTURE BENCH [BENCH...]

BENCH is a directory with bench.json. The format of PICTURE follows from its ending: .svg, .png or .pdf.
"""

import sys

import matplotlib as mpl

from mlperf_llama_vllm import HarnessError, read_bench

mpl.use("agg")
from matplotlib import pyplot as plt


def main(picture: str, *benches: str) -> None:
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for bench in map(read_bench, benches):
        # Offline runs have no first tokens, and a failed run has no numbers.
        runs = [run for run in bench["runs"] if run["ttft"] and run["output_tokens_per_s"]]
        runs.sort(key=lambda run: run["done_qps"])
        rates = [run["output_tokens_per_s"] for run in runs]
        (line,) = axes.plot(rates, [run["ttft"]["p50"] for run in runs], marker="o", label=f"{bench['label']}, p50")
        if name := bench["percentile"]:
            tail = [run["ttft"][name] for run in runs]
            axes.plot(rates, tail, marker="o", ls="--", color=line.get_color(), label=f"{bench['label']}, {name}")
        for run, rate in zip(runs, rates, strict=True):
            if run["verdict"] in ("saturated", "outside"):
                axes.annotate(run["verdict"], (rate, run["ttft"]["p50"]), fontsize=8)
    axes.set(xlabel="output tokens/s", ylabel="TTFT in ms", yscale="log")
    axes.legend()
    figure.savefig(picture)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except HarnessError as error:
        sys.exit(f"error: {error}")
