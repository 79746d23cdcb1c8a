"""Download the dataset: `prepare_dataset.py` with the options and defaults of existing scripts."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.prepare_dataset import main

_DEFAULTS = ("--source", "hub", "--model-path", "meta-llama/Llama-3.1-8B-Instruct", "--output", "cnn_eval.json")
_SPELLINGS = {"--total-count": "--count", "--model-name": "--model-path"}


def translated(arguments: list[str]) -> list[str]:
    """Return the arguments of prepare_dataset.py; options that are given override the defaults."""
    words = list(_DEFAULTS)
    for argument in arguments:
        option, equals, value = argument.partition("=")
        option = option.replace("_", "-") if option.startswith("--") else option
        words.append(_SPELLINGS.get(option, option) + equals + value)
    return words


if __name__ == "__main__":
    sys.exit(main(translated(sys.argv[1:])))
