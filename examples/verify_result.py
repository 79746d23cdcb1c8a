"""Verify a result from its logs, and print its numbers and each violated rule with its source.

Usage: python examples/verify_result.py RESULT

RESULT is a run directory, or a directory with performance/run_1 and accuracy in it, also of a published submission.
"""

import sys

from mlperf_llama_vllm import HarnessError, verify


def main(result: str) -> int:
    worst = 0
    for verdict in verify(result, official=True):
        print(f"{verdict.outcome}  {', '.join(verdict.record['directories'])}")
        for part in verdict.record["parts"]:
            print(f"  {part['mode']} {part['scenario']}: {', '.join(part['lines'])}")
        for finding in verdict.findings:
            if finding["severity"] in ("error", "warning"):
                required = f", required: {finding['expected']}" if finding["expected"] else ""
                print(f"  {finding['rule']}: {finding['text']}: {finding['found']}{required}")
                print(f"    source: {finding['source']}")
        worst = max(worst, verdict.exit_code)
    return worst


if __name__ == "__main__":  # needed, because verify() starts processes for large results
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    try:
        sys.exit(main(sys.argv[1]))
    except HarnessError as error:
        sys.exit(f"error: {error}")
