"""Write a data set in the MLCommons format from the hub's CNN-DailyMail or from a local file."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qsl.cnn_dailymail.prepare import HUB, HUB_DATASET, read_source
from qsl.tokenizers import load_tokenizer
from runs.benchmarks import BENCHMARKS
from scripts.dataset_output import INTERRUPTED, check_output, progress, write
from scripts.program import exit_code_of

DATACENTER_ROWS = BENCHMARKS["llama3_1-8b"].accuracy_samples


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    options = _parser().parse_args(arguments)
    return exit_code_of(lambda: _prepare(options), INTERRUPTED)


def _prepare(options: argparse.Namespace) -> None:
    check_output(options.output)
    tokenizer = load_tokenizer(options.model_path)
    source = read_source(options.source, options.count)
    with progress(len(source), "tokenising") as (tokenised,):
        prepared = write(options.output, source.articles, source.highlights, tokenizer, tokenised)
    print(f"wrote {prepared.path}")
    print(f"rows: {prepared.rows:,}")
    print(f"longest prompt: {prepared.longest_prompt_tokens:,} tokens")
    print(f"mean prompt: {prepared.mean_prompt_tokens:.1f} tokens")
    print(f"sha256: {prepared.sha256}")
    if prepared.rows == DATACENTER_ROWS:
        whose = "" if options.source == HUB else " if the source is CNN-DailyMail's validation split"
        print(f"{DATACENTER_ROWS:,} rows: the full datacenter data set{whose}")
    else:
        print(f"not the full datacenter data set, which has {DATACENTER_ROWS:,} rows")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Write a data set in the MLCommons format: a JSON array of rows with the columns input (article), "
        "tok_input (token ids of the official prompt) and output (reference summary).",
        epilog="--count takes the first N rows. The official edge data set is another selection of 5,000 articles, "
        "which is not reproduced here: fetch it from MLCommons. Exit codes: 0 done, 2 bad input, 3 the hub cannot be "
        "reached, 130 interrupted; the output is written whole or not at all.",
    )
    parser.add_argument(
        "--source",
        required=True,
        metavar="hub|FILE",
        help=f"'{HUB}' fetches {HUB_DATASET}'s validation split; FILE is Parquet, CSV, TSV, JSON or JSON lines with "
        "the columns article and highlights",
    )
    parser.add_argument("--model-path", required=True, metavar="MODEL", help="model folder or id with the tokenizer")
    parser.add_argument("--output", required=True, type=Path, metavar="OUT.json", help="file to write")
    parser.add_argument("--count", type=int, metavar="N", help="take the first N rows (default: all)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
