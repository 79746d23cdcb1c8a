"""A rule of your own: the same samples have the same output in two runs.

Usage: python examples/custom_audit.py ACCURACY_RUN PERFORMANCE_RUN

With greedy decoding, an honest engine gives a sample nearly the same output in each run. Numerics may change a few.
To add an audit to the harness, with options and runs of its own, see docs/extensions.md.
"""

import sys
from pathlib import Path

from mlperf_llama_vllm import HarnessError, open_run, read_requests

ALLOWED_SHARE = 0.05  # of the samples whose output differs


def outputs(directory: str) -> dict[int, str]:
    """Return sample index → SHA-256 of its output."""
    requests = read_requests(Path(directory) / "requests.jsonl")
    return dict(zip(requests["sample_index"].tolist(), requests["output_sha256"], strict=True))


def main(reference: str, candidate: str) -> int:
    for directory in (reference, candidate):
        run = open_run(directory)
        print(f"{directory}: {run.scenario}, {run.mode}, {run.verdict}")
    expected, actual = outputs(reference), outputs(candidate)
    common = sorted(expected.keys() & actual.keys())
    if not common:
        sys.exit("error: the runs have no sample in common")
    different = [sample for sample in common if expected[sample] != actual[sample]]
    share = len(different) / len(common)
    passed = share <= ALLOWED_SHARE
    print(f"{'PASS' if passed else 'FAIL'}: {len(different)} of {len(common)} outputs differ ({share:.1%})")
    return 0 if passed else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    try:
        sys.exit(main(*sys.argv[1:]))
    except HarnessError as error:
        sys.exit(f"error: {error}")
