"""vLLM's own client: `python -m tools.gpu.vllm_client OPTION…` is `vllm bench serve OPTION…`.

The packed vLLM has no program `vllm`, and its command line imports packages that are not packed.
"""

import argparse
import sys


def main(arguments: list[str]) -> None:
    """Run the client."""
    from vllm.benchmarks.serve import add_cli_args
    from vllm.benchmarks.serve import main as measure

    parser = argparse.ArgumentParser(prog="vllm bench serve", allow_abbrev=False)
    add_cli_args(parser)
    measure(parser.parse_args(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
